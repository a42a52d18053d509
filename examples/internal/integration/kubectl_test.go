package integration

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

// kubectlEnv makes a process of this binary kubectl.
const kubectlEnv = "INTEGRATION_KUBECTL"

// runKubectl does what kubectl's own main function does, if this process was started for that.
func runKubectl() {
	if os.Getenv(kubectlEnv) == "" {
		return
	}
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
	os.Exit(0)
}

// invocation is a call of kubectl.
type invocation struct {
	args  []string
	stdin []byte
	// editor is the command that kubectl edit runs.
	editor string
	// plugins is a folder with plugins of kubectl.
	plugins string
}

// kubectl runs kubectl as the admin, with w's namespace as the default, and returns what it prints.
func (w *world) kubectl(args ...string) string {
	w.t.Helper()
	out, err := w.tryKubectl(invocation{args: args})
	require.NoError(w.t, err, "kubectl %s", args)
	return out
}

// tryKubectl is kubectl that may fail: the error is then what it says.
func (w *world) tryKubectl(call invocation) (string, error) {
	w.t.Helper()
	self, err := os.Executable()
	require.NoError(w.t, err)
	ctx, cancel := context.WithTimeout(w.ctx, waitTimeout)
	defer cancel()
	home := filepath.Join(w.Dir(), "kubectl-"+w.namespace) // for its caches and temporary files
	require.NoError(w.t, os.MkdirAll(home, 0o700))
	// The first file of those in KUBECONFIG that has a context decides.
	config := filepath.Join(home, "config")
	context := "contexts: [{name: controlplane, context: {cluster: controlplane, user: admin, namespace: " + w.namespace + "}}]"
	require.NoError(w.t, os.WriteFile(config, []byte(context), 0o600))
	command := exec.CommandContext(ctx, self, call.args...)
	command.Args[0] = "kubectl"
	command.Env = append(os.Environ(), kubectlEnv+"=1", "HOME="+home, "TMPDIR="+home,
		"KUBECONFIG="+config+":"+w.Kubeconfig(), "KUBE_EDITOR="+call.editor)
	if call.plugins != "" {
		command.Env = append(command.Env, "PATH="+call.plugins)
	}
	command.Stdin = bytes.NewReader(call.stdin)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("%w: %s%s", err, &stdout, &stderr)
	}
	return stdout.String(), nil
}

// assertField checks a field of a policy's spec as the API server has it.
func (w *world) assertField(policy, path, want string) {
	w.t.Helper()
	assert.Equal(w.t, want, w.kubectl("get", "placementpolicy", policy, "-o", "jsonpath={.spec."+path+"}"), path)
}

// TestKubectlApply creates and changes a policy in each way of applying.
func TestKubectlApply(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, created, unchanged, changed string
		args                              []string
	}{
		{name: "client-side", created: "created", unchanged: "unchanged", changed: "configured"},
		{name: "server-side", created: "serverside-applied", unchanged: "serverside-applied", changed: "serverside-applied", args: []string{"--server-side"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			run := func(command, spec string) (string, error) {
				args := append([]string{command, "--filename=-"}, tt.args...)
				return w.tryKubectl(invocation{args: args, stdin: policyManifest(w.namespace, "web", spec)})
			}
			apply := func(spec, outcome string) {
				t.Helper()
				said, err := run("apply", spec)
				require.NoError(t, err)
				assert.Equal(t, "placementpolicy.placement-policy.scheduling.x-k8s.io/web "+outcome+"\n", said)
			}
			apply(strict40, tt.created)
			apply(strict40, tt.unchanged) // although the API server has filled in defaults
			_, err := run("diff", strict40)
			require.NoError(t, err)

			apply(policySpec("Strict", "Must", "5", "matchLabelKeys: []"), tt.changed)
			w.assertField("web", "policy.targetSize", "5")
			w.assertField("web", "matchLabelKeys", "[]")
			_, err = run("apply", policySpec("Strict", "Must", "140%"))
			require.ErrorContains(t, err, `spec.policy.targetSize: Invalid value: "140%"`+wantSize)
			_, err = run("apply", policySpec("Strict", "Must", "40%", "wieght: 3"))
			require.ErrorContains(t, err, "wieght")
			w.assertField("web", "policy.targetSize", "5")

			apply(strict40, tt.changed)
			w.assertField(
				"web",
				"matchLabelKeys",
				`["pod-template-hash","rollouts-pod-template-hash"]`,
			) // what a manifest leaves out has its default again
			assert.Contains(t, w.kubectl("delete", "pp", "web"), `"web" deleted`)
		})
	}
}

// TestKubectlEditAndPatch changes a policy by hand, well and badly.
func TestKubectlEditAndPatch(t *testing.T) {
	t.Parallel()
	w := fourOfTen(t, strict40)

	edit := func(from, to string) (string, error) {
		return w.tryKubectl(invocation{
			args:   []string{"edit", "placementpolicy", "web"},
			editor: fmt.Sprintf("sed -i 's/ %s$/ %s/'", from, to),
		})
	}
	said, err := edit("40%", "60%")
	require.NoError(t, err)
	assert.Contains(t, said, "web edited")
	w.scale("web", 20)
	w.requireSplit("web", 12, 8)
	// kubectl has the file edited again, with what is wrong in it, and gives up, since the editor changes nothing more.
	_, err = edit("60%", "160%")
	require.ErrorContains(t, err, "no valid changes were saved")
	kept := regexp.MustCompile(`stored to "(.+?)"`).FindStringSubmatch(err.Error())
	require.NotNil(t, kept, err)
	file, err := os.ReadFile(kept[1])
	require.NoError(t, err)
	assert.Contains(t, string(file), `spec.policy.targetSize: Invalid value: "160%"`+wantSize)
	w.assertField("web", "policy.targetSize", "60%")

	for _, tt := range []struct{ kind, patch, size, refused string }{
		{kind: "merge", patch: `{"spec": {"policy": {"targetSize": 3}}}`, size: "3"},
		{kind: "json", patch: `[{"op": "replace", "path": "/spec/policy/targetSize", "value": "50%"}]`, size: "50%"},
		{kind: "merge", patch: `{"spec": {"policy": null}}`, size: ""}, // which means 100%
		{kind: "merge", patch: `{"spec": {"enforcementMode": "strict"}}`, refused: `spec.enforcementMode: Unsupported value: "strict": supported values: "BestEffort", "Strict"`},
		{kind: "merge", patch: `{"spec": {"podSelector": null}}`, refused: "spec.podSelector: Required value: write the labels of the pods to place, or {} for every pod of the namespace"},
	} {
		_, err := w.tryKubectl(
			invocation{args: []string{"patch", "pp", "web", "--type=" + tt.kind, "--patch=" + tt.patch}},
		)
		if tt.refused == "" {
			assert.NoError(t, err, tt.patch)
		} else {
			assert.ErrorContains(t, err, tt.refused)
		}
		w.assertField("web", "policy.targetSize", tt.size)
	}
	w.scale("web", 30)
	w.requireCounts("web", 30, 22, 8)
}

// ancestorManifests are as users of Azure's placement-policy scheduler plugin wrote them.
const ancestorManifests = `
apiVersion: placement-policy.scheduling.x-k8s.io/v1alpha1
kind: PlacementPolicy
metadata:
  name: web-strict-must
spec:
  weight: 100
  enforcementMode: Strict
  podSelector:
    matchLabels:
      app: web
  nodeSelector:
    matchLabels:
      pool: spot
  policy:
    action: Must
    targetSize: 40%
---
apiVersion: placement-policy.scheduling.x-k8s.io/v1alpha1
kind: PlacementPolicy
metadata:
  name: api-besteffort-mustnot
spec:
  weight: 50
  enforcementMode: BestEffort
  podSelector:
    matchLabels:
      app: api
  nodeSelector:
    matchLabels:
      pool: spot
  policy:
    action: MustNot
    targetSize: 40%
---
apiVersion: placement-policy.scheduling.x-k8s.io/v1alpha1
kind: PlacementPolicy
metadata:
  name: db-absolute
spec:
  enforcementMode: Strict
  podSelector:
    matchLabels:
      app: db
  nodeSelector:
    matchLabels:
      pool: spot
  policy:
    action: Must
    targetSize: 3
`

func TestManifestsOfTheAncestor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addNodes("m1 o1")
	said, err := w.tryKubectl(invocation{args: []string{"apply", "--filename=-"}, stdin: []byte(ancestorManifests)})
	require.NoError(t, err)
	assert.Equal(t, 3, strings.Count(said, " created"), said)
	w.requireAgreement()
	for _, app := range []string{"web", "api", "db"} {
		w.deploy(app, 10)
	}
	w.requireSplit("web-strict-must", 4, 6)
	w.requireSplit("api-besteffort-mustnot", 4, 6)
	w.requireSplit("db-absolute", 3, 7)
	w.requireOn("m", 4+6+3)
}

func TestKubectlExplain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for path, want := range map[string][]string{
		"":                        {"KIND:       PlacementPolicy", "VERSION:    v1alpha1", "40% of the pods"},
		".spec":                   {"podSelector	<Object>", "enforcementMode	<string>", "enum: BestEffort, Strict", "weight	<integer>"},
		".spec.policy":            {"action	<string>", "enum: Must, MustNot", "targetSize	<"},
		".spec.policy.targetSize": {"an integer of 0 or more, or a percentage from 0%"},
		".spec.matchLabelKeys":    {"FIELD: matchLabelKeys <[]string>", "[pod-template-hash, rollouts-pod-template-hash]"},
	} {
		said := strings.Join(strings.Fields(w.kubectl("explain", "placementpolicy"+path)), " ")
		for _, part := range want {
			assert.Contains(t, said, strings.Join(strings.Fields(part), " "), path)
		}
	}
}

// TestKubectlGetAndDescribe looks at a policy whose target group has no room.
func TestKubectlGetAndDescribe(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addNodes("m1", cordoned)
	w.addNodes("o1")
	w.setPolicy("web", strict40)
	w.deploy("web", 10)
	w.requireCounts("web", 10, 0, 6)
	w.requirePending("web", 4)
	requireSaid := func(pattern string, args ...string) {
		t.Helper()
		w.eventually(func(c *assert.CollectT) {
			said, err := w.tryKubectl(invocation{args: args})
			require.NoError(c, err)
			assert.Regexp(c, pattern, said)
		})
	}
	requireSaid(`^NAME +MODE +ACTION +SIZE +MANAGED +TARGET +QUALIFYING +ON-TARGET +AGE\n`+
		`web +Strict +Must +40% +0 +4 +10 +False +\d+s\n$`,
		"get", "placementpolicies")
	requireSaid(`^NAME +MODE .* ON-TARGET +WEIGHT +PODS +NODES +AGE\n`+
		`web +Strict .* False +0 +{"matchLabels":{"app":"web"}} +{"matchLabels":{"pool":"spot"}} +\d+s\n$`,
		"get", "pp", "--output=wide")
	requireSaid(
		`(?s)Spec:.*Target Size: +40%.*Status:.*Conditions:.*Message: +group target has 0 of 4 pods, other has 6 of 6 pods; 4 pods wait.*Type: +OnTarget`,
		"describe",
		"pp",
		"web",
	)
	requireSaid(
		`Warning +FailedScheduling .* placement policy `+w.namespace+`/web: group other full \(6 of 6 pods; [^)]* ?qualify\)`,
		"describe",
		"pod",
		w.podsOn("")[0],
	)
}
