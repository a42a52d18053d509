// Package releases builds a scheduler of each release of Kubernetes that the library is for, as README.md says, in a
// module of its own, and runs it with the newest control plane: a scheduler may be older than its API server.
package releases

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/placement-policy/scheduler-plugin/examples"
	"github.com/placement-policy/scheduler-plugin/examples/internal/controlplane"
	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
)

const (
	root = "../../.."
	// schedulerEnv has the path of the scheduler that a child process runs.
	schedulerEnv = "RELEASES_SCHEDULER"
)

func TestMain(m *testing.M) {
	controlplane.Main(func() *cobra.Command {
		return &cobra.Command{
			DisableFlagParsing: true,
			SilenceUsage:       true,
			RunE: func(_ *cobra.Command, args []string) error {
				scheduler := exec.Command(os.Getenv(schedulerEnv), args...)
				scheduler.Stdout, scheduler.Stderr = os.Stdout, os.Stderr
				runtime.LockOSThread() // the signal below comes when the thread ends, not the process
				scheduler.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
				return scheduler.Run()
			},
		}
	})
	os.Exit(m.Run())
}

func TestSchedulersOfEachRelease(t *testing.T) {
	ctx := t.Context()
	cp := startControlPlane(t)
	kubeconfig, err := cp.ServiceAccountKubeconfig(ctx, "kube-system", "placement-policy-scheduler")
	require.NoError(t, err)
	config, err := examples.Files.ReadFile("scheduler/config.yaml")
	require.NoError(t, err)

	for i, release := range []string{"35.8", "36.5", "37.2"} {
		t.Run("1."+release, func(t *testing.T) {
			t.Setenv(schedulerEnv, build(t, release))
			scheduler, err := cp.StartScheduler(ctx, controlplane.SchedulerOptions{
				Name:       "kube-scheduler-1." + release,
				Config:     config,
				Kubeconfig: kubeconfig,
				ExtraArgs:  []string{"--leader-elect=false"},
			})
			require.NoError(t, err)
			defer scheduler.Kill()

			app := fmt.Sprint("web-", i)
			require.NoError(t, cp.Apply(ctx, []byte(fmt.Sprintf(manifests, app))))
			require.EventuallyWithT(t, func(c *assert.CollectT) {
				require.NoError(c, scheduler.Err())
				pods, err := cp.Client().CoreV1().Pods(
					"default",
				).List(
					ctx,
					metav1.ListOptions{LabelSelector: "app=" + app},
				)
				require.NoError(c, err)
				on := map[string]int{}
				for _, pod := range pods.Items {
					on[pod.Spec.NodeName]++
				}
				assert.Equal(c, map[string]int{"spot-1": 4, "od-1": 6}, on)
			}, 90*time.Second, 50*time.Millisecond)
		})
	}
}

// manifests are a policy and a Deployment for it.
const manifests = `
apiVersion: placement-policy.scheduling.x-k8s.io/v1alpha1
kind: PlacementPolicy
metadata: {name: %[1]s, namespace: default}
spec:
  enforcementMode: Strict
  podSelector: {matchLabels: {app: %[1]s}}
  nodeSelector: {matchLabels: {pool: spot}}
  policy: {action: Must, targetSize: 40%%}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, namespace: default}
spec:
  replicas: 10
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      containers: [{name: main, image: "registry.k8s.io/pause:3.10"}]
`

// startControlPlane starts one with a node of each kind, the CustomResourceDefinition, and the rights of a scheduler.
func startControlPlane(t *testing.T) *controlplane.ControlPlane {
	ctx := t.Context()
	cp, err := controlplane.Start(ctx, controlplane.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, cp.Stop()) })
	rbac, err := examples.Files.ReadFile("deploy/rbac.yaml")
	require.NoError(t, err)
	require.NoError(t, cp.Apply(ctx, rbac))
	require.NoError(t, cp.Apply(ctx, []byte(v1alpha1.CRDManifest())))
	require.NoError(t, cp.CreateNodes(ctx,
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "spot-1", Labels: map[string]string{"pool": "spot"}}},
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "od-1"}}))
	return cp
}

// build returns the path of the scheduler of a release, the 35.8 of v1.35.8 and v0.35.8, that a module with the go.mod
// of README.md makes.
func build(t *testing.T, release string) string {
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	block := regexp.MustCompile("(?s)\n```\n(module example.com/scheduler\n.*?)```\n").FindSubmatch(readme)
	require.NotNil(t, block, "README.md has no go.mod of a scheduler")
	gomod := strings.ReplaceAll(string(block[1]), "36.5", release)
	if strings.HasPrefix(release, "35.") {
		gomod = regexp.MustCompile(`(?m)^.*// since 1\.36\n`).ReplaceAllString(gomod, "")
	}
	assert.NotContains(t, gomod, "replace")
	library, err := filepath.Abs(root)
	require.NoError(t, err)
	gomod += "\nreplace github.com/placement-policy/scheduler-plugin => " + library + "\n" // as it is not published
	main, err := os.ReadFile("../../scheduler/main.go")
	require.NoError(t, err)

	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(gomod), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), main, 0o600))
	run := func(args ...string) {
		command := exec.CommandContext(t.Context(), "go", args...)
		command.Dir = dir
		command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "CGO_ENABLED=0")
		out, err := command.CombinedOutput()
		require.NoError(t, err, "go %s: %s", args, out)
	}
	run("mod", "tidy")
	run("build", "-ldflags=-s -w", "-o", "scheduler", ".")
	binary := filepath.Join(dir, "scheduler")
	info, err := buildinfo.ReadFile(binary)
	require.NoError(t, err)
	for _, module := range info.Deps {
		if module.Path == "k8s.io/kubernetes" {
			assert.Equal(t, "v1."+release, module.Version)
		}
	}
	return binary
}
