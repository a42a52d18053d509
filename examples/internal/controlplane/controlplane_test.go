package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// hostEnv makes the test binary a host that starts a control plane, describes its processes, and waits to be killed.
const hostEnv = "CONTROLPLANE_TEST_HOST"

const waitTimeout = time.Minute

func TestMain(m *testing.M) {
	Main(func() *cobra.Command { return app.NewSchedulerCommand() })
	if os.Getenv(hostEnv) != "" {
		runHost()
	}
	os.Exit(m.Run())
}

const schedulerConfig = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {qps: 1000, burst: 1000}
`

// schedulerManifests are a service account for the stock scheduler, with the permissions that Kubernetes itself gives
// it, and one without any.
const schedulerManifests = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: scheduler, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: test-scheduler}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:kube-scheduler"}
subjects: [{kind: ServiceAccount, name: scheduler, namespace: kube-system}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: test-volume-scheduler}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:volume-scheduler"}
subjects: [{kind: ServiceAccount, name: scheduler, namespace: kube-system}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: test-scheduler, namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: extension-apiserver-authentication-reader}
subjects: [{kind: ServiceAccount, name: scheduler, namespace: kube-system}]
---
# An object without a namespace goes to the namespace default.
apiVersion: v1
kind: ServiceAccount
metadata: {name: nobody}
`

const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 5
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: web, image: web}]
`

const job = `
apiVersion: batch/v1
kind: Job
metadata: {name: batch}
spec:
  completions: 2
  parallelism: 2
  template:
    spec:
      restartPolicy: Never
      containers: [{name: batch, image: batch}]
`

const customResource = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Thing, plural: things}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object}}
---
apiVersion: example.com/v1
kind: Thing
metadata: {name: thing}
`

func TestControlPlane(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ctx := t.Context()
	begun := time.Now()
	cp, err := Start(ctx, Options{Progress: t.Output()})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, cp.Stop()) })
	t.Logf("started in %s", time.Since(begun))

	require.NoError(t, cp.Apply(ctx, []byte(schedulerManifests)))
	kubeconfig, err := cp.ServiceAccountKubeconfig(ctx, "kube-system", "scheduler")
	require.NoError(t, err)
	options := SchedulerOptions{Config: []byte(schedulerConfig), Kubeconfig: kubeconfig}
	first, err := cp.StartScheduler(ctx, options)
	require.NoError(t, err)
	require.NoError(t, cp.CreateNodes(ctx, node("node-1"), node("node-2")))

	// Pods run, and run on while the scheduler is replaced.
	require.NoError(t, cp.Apply(ctx, []byte(deployment)))
	requirePods(t, cp, "app=web", v1.PodRunning, 5)
	first.Kill()
	<-first.Done()
	require.NoError(t, first.Err(), "it was told to end")
	scale(t, cp, 8)
	second, err := cp.StartScheduler(ctx, options)
	require.NoError(t, err)
	requirePods(t, cp, "app=web", v1.PodRunning, 8)

	metrics, err := second.Get(ctx, "/metrics")
	require.NoError(t, err)
	assert.Contains(t, string(metrics), "scheduler_schedule_attempts_total")

	// The schedulers wrote once for each pod, beside events, and one has asked whose token came with the GET.
	want := map[string]int{"create pods/binding": 8, "create tokenreviews": 1}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		writes, err := cp.WriteRequests("system:serviceaccount:kube-system:scheduler")
		require.NoError(c, err)
		delete(writes, "create events") // the scheduler that was killed may have kept some to itself
		assert.Equal(c, want, writes)
	}, waitTimeout, pollInterval)

	// Pods that are deleted vanish, those of a Job complete.
	scale(t, cp, 0)
	requirePods(t, cp, "app=web", v1.PodRunning, 0)
	require.NoError(t, cp.Apply(ctx, []byte(job)))
	requirePods(t, cp, "job-name=batch", v1.PodSucceeded, 2)

	// The API server comes back with its state, and custom resources are served.
	require.NoError(t, cp.RestartAPIServer(ctx))
	require.NoError(t, cp.Apply(ctx, []byte(customResource)))
	require.NoError(t, cp.Apply(ctx, []byte(deployment)))
	requirePods(t, cp, "app=web", v1.PodRunning, 5)

	t.Run("scheduler without permissions", func(t *testing.T) {
		nobody, err := cp.ServiceAccountKubeconfig(ctx, "default", "nobody")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		options := SchedulerOptions{Name: "nobody", Config: []byte(schedulerConfig), Kubeconfig: nobody}
		_, err = cp.StartScheduler(ctx, options)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "forbidden: User")
	})
	t.Run("scheduler without configuration", func(t *testing.T) {
		_, err := cp.StartScheduler(ctx, SchedulerOptions{Kubeconfig: kubeconfig})
		require.EqualError(t, err, "starting kube-scheduler: no configuration given")
		_, err = cp.StartScheduler(ctx, SchedulerOptions{Config: []byte(schedulerConfig)})
		require.EqualError(t, err, "starting kube-scheduler: no kubeconfig given")
	})
	t.Run("scheduler that exits", func(t *testing.T) {
		options := SchedulerOptions{Name: "broken", Config: []byte("kind: Nonsense"), Kubeconfig: kubeconfig}
		_, err := cp.StartScheduler(ctx, options)
		require.ErrorContains(t, err, "waiting for broken to be ready: broken ended unexpectedly (exit status 1)")
		assert.ErrorContains(t, err, "Object 'apiVersion' is missing")
	})

	require.NoError(t, second.Stop())
	pids := livingPIDs(cp)
	assert.Len(t, pids, 4)
	begun = time.Now()
	require.NoError(t, cp.Stop())
	t.Logf("stopped in %s", time.Since(begun))
	require.NoError(t, cp.Stop(), "once more")
	_, err = cp.StartScheduler(ctx, options)
	require.Error(t, err, "after Stop")
	requireNothingLeft(t, pids)
}

func TestStartFails(t *testing.T) {
	t.Run("cancelled", func(t *testing.T) {
		t.Setenv("TMPDIR", t.TempDir())
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := Start(ctx, Options{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "starting a control plane: waiting for the API server to be ready")
		requireNothingLeft(t, nil)
	})
	t.Run("component exits", func(t *testing.T) {
		t.Setenv("TMPDIR", t.TempDir())
		t.Setenv("GODEBUG", "fips140=invalid") // whatever makes a Go program exit at once
		_, err := Start(t.Context(), Options{})
		require.ErrorContains(t, err, "ended unexpectedly (exit status 2); its log ends:")
		requireNothingLeft(t, nil)
	})
	t.Run("no temporary folder", func(t *testing.T) {
		t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "missing"))
		_, err := Start(t.Context(), Options{})
		require.ErrorIs(t, err, os.ErrNotExist)
	})
}

// TestHostKilled kills a host that has no chance to clean up.
func TestHostKilled(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	host := exec.Command(os.Args[0])
	host.Env = append(os.Environ(), hostEnv+"=1")
	host.Stderr = t.Output()
	stdout, err := host.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, host.Start())
	var pids []int
	decodeErr := json.NewDecoder(stdout).Decode(&pids)
	require.NoError(t, host.Process.Kill())
	_ = host.Wait() // killed
	require.NoError(t, decodeErr)
	assert.Len(t, pids, 4)
	requireNothingLeft(t, pids)
}

func runHost() {
	cp, err := Start(context.Background(), Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(livingPIDs(cp)); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	select {}
}

func livingPIDs(cp *ControlPlane) []int {
	var pids []int
	for _, p := range cp.processes {
		if !p.exited() {
			pids = append(pids, p.cmd.Process.Pid)
		}
	}
	return pids
}

// requireNothingLeft checks that the processes are gone and that the test's temporary folder is empty.
func requireNothingLeft(t *testing.T, pids []int) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		for _, pid := range pids {
			// The command line of a process that nobody has waited for yet is empty.
			commandLine, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			assert.Empty(c, string(commandLine))
		}
		entries, err := os.ReadDir(os.TempDir())
		require.NoError(c, err)
		assert.Empty(c, entries)
	}, waitTimeout, pollInterval)
}

func node(name string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func scale(t *testing.T, cp *ControlPlane, replicas int) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	deployments := cp.Client().AppsV1().Deployments("default")
	_, err := deployments.Patch(t.Context(), "web", types.MergePatchType, patch, metav1.PatchOptions{}, "scale")
	require.NoError(t, err)
}

// requirePods waits until there are count pods that match the selector, all in the given phase.
func requirePods(t *testing.T, cp *ControlPlane, selector string, phase v1.PodPhase, count int) {
	t.Helper()
	begun := time.Now()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		pods, err := cp.Client().CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: selector})
		require.NoError(c, err)
		phases := make([]string, 0, len(pods.Items))
		for _, pod := range pods.Items {
			phases = append(phases, string(pod.Status.Phase))
		}
		assert.Equal(c, strings.TrimSpace(strings.Repeat(string(phase)+" ", count)), strings.Join(phases, " "))
	}, waitTimeout, pollInterval)
	t.Logf("%d pods %s of %s after %s", count, phase, selector, time.Since(begun))
}
