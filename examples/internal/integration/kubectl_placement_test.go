package integration

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// placement builds the plugin and returns a function that runs it through kubectl.
func (w *world) placement() func(args ...string) (string, error) {
	w.t.Helper()
	folder := w.t.TempDir()
	plugin := filepath.Join(folder, "kubectl-placement")
	build := exec.CommandContext(w.ctx, "go", "build", "-o", plugin, "../../kubectl-placement")
	out, err := build.CombinedOutput()
	require.NoError(w.t, err, "%s", out)
	return func(args ...string) (string, error) {
		return w.tryKubectl(invocation{args: append([]string{"placement"}, args...), plugins: folder})
	}
}

// TestKubectlPlacement asks about a policy whose target group has no room, as a user who may do nothing but what the
// plugin asks for.
func TestKubectlPlacement(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	placement := w.placement()
	w.addNodes("m1", cordoned)
	w.addNodes("o1")
	w.setPolicy("web", strict40)
	w.deploy("web", 10)
	w.requireCounts("web", 10, 0, 6)
	w.requirePending("web", 4)
	user := "--as=reader-of-" + w.namespace

	_, err := placement("status", user)
	require.ErrorContains(t, err, "you may not list placementpolicies.placement-policy.scheduling.x-k8s.io, pods, ")
	_, grant, found := strings.Cut(err.Error(), "  kubectl create clusterrole placement-reader ")
	require.True(t, found, err)
	w.kubectl(append([]string{"create", "clusterrole", w.namespace}, strings.Fields(grant)...)...)
	name := strings.TrimPrefix(user, "--as=")
	w.kubectl("create", "clusterrolebinding", w.namespace, "--clusterrole="+w.namespace, "--user="+name)
	t.Cleanup(func() { w.kubectl("delete", "clusterrole,clusterrolebinding", w.namespace) })
	requireSaid := func(pattern string, args ...string) {
		t.Helper()
		w.eventually(func(c *assert.CollectT) { // the API server learns of rights a little later
			said, err := placement(append(args, user)...)
			require.NoError(c, err)
			assert.Regexp(c, pattern, said)
		})
	}
	requireSaid(`(?s)web +Strict, Must 40%, weight 0 +10 +target 0/4, other 6/6 +4 +4 pending\n.*`+
		`web +4 pending: 0/\d+ nodes are available: .*group other full`,
		"status")
	pod := w.podsOn("")[0]
	requireSaid(`(?s)^Pod: .*`+pod+`, pending\nPolicy: .*web\n.*Pods of: +ReplicaSet/web-.* \(10\)\n`+
		`Counts: +10 qualify: target 0/4, other 6/6, 4 pending\nWaits: .*group other full.*`+
		`target +0 of 4 +yes +yes +0 +[^\n]*cordoned.*other +6 of 6 +no +no +1: \S+-o1 `,
		"explain", "pod", pod)
	said, err := placement("whatif", "--set=policy.targetSize=0%", "-o", "json", user)
	require.NoError(t, err)
	var answer struct {
		After struct {
			Decisions []struct{ Pod, Group string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(said), &answer))
	require.Len(t, answer.After.Decisions, 4)
	assert.Equal(t, "other", answer.After.Decisions[0].Group)
}
