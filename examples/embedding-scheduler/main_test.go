package main

import (
	_ "embed"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/placement-policy/scheduler-plugin/examples"
	"github.com/placement-policy/scheduler-plugin/examples/internal/controlplane"
	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
)

//go:embed config.yaml
var config []byte

func TestMain(m *testing.M) {
	controlplane.Main(newCommand)
	os.Exit(m.Run())
}

// TestTwoProfilesWithPluginsOfTheirOwn runs the scheduler, with its configuration, on a real control plane.
func TestTwoProfilesWithPluginsOfTheirOwn(t *testing.T) {
	ctx := t.Context()
	cp, err := controlplane.Start(ctx, controlplane.Options{})
	require.NoError(t, err)
	defer func() { assert.NoError(t, cp.Stop()) }()
	rbac, err := examples.Files.ReadFile("deploy/rbac.yaml")
	require.NoError(t, err)
	require.NoError(t, cp.Apply(ctx, []byte(v1alpha1.CRDManifest()), rbac, []byte(`
apiVersion: placement-policy.scheduling.x-k8s.io/v1alpha1
kind: PlacementPolicy
metadata: {name: web-on-spot, namespace: default}
spec:
  enforcementMode: Strict
  podSelector: {matchLabels: {app: web}}
  nodeSelector: {matchLabels: {pool: spot}}
  policy: {targetSize: 40%}
`)))
	require.NoError(t, cp.CreateNodes(ctx,
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "spot-1", Labels: map[string]string{"pool": "spot"}}},
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "od-1"}},
	))
	kubeconfig, err := cp.ServiceAccountKubeconfig(ctx, "kube-system", "placement-policy-scheduler")
	require.NoError(t, err)
	scheduler, err := cp.StartScheduler(ctx, controlplane.SchedulerOptions{
		Config: config, Kubeconfig: kubeconfig, ExtraArgs: []string{"--leader-elect=false"},
	})
	require.NoError(t, err)

	for i := range 10 {
		for _, profile := range []string{"default-scheduler", "batch-scheduler"} {
			for _, app := range []string{"web", "other"} {
				_, err := cp.Client().CoreV1().Pods("default").Create(ctx, &v1.Pod{
					ObjectMeta: metav1.ObjectMeta{
						Name:   fmt.Sprint(profile, "-", app, "-", i),
						Labels: map[string]string{"app": app, "profile": profile},
					},
					Spec: v1.PodSpec{
						SchedulerName: profile,
						Containers:    []v1.Container{{Name: "main", Image: "registry.k8s.io/pause:3.10"}},
					},
				}, metav1.CreateOptions{})
				require.NoError(t, err)
			}
		}
	}
	on := map[string]int{} // by node and labels
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		require.NoError(c, scheduler.Err())
		pods, err := cp.Client().CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		require.NoError(c, err)
		clear(on)
		for _, pod := range pods.Items {
			on[pod.Spec.NodeName+" "+pod.Labels["app"]]++
			on[pod.Spec.NodeName+" "+pod.Labels["app"]+" "+pod.Labels["profile"]]++
		}
		assert.Equal(c, 20, on["spot-1 web"]+on["od-1 web"], "all are placed")
		assert.Equal(c, 20, on["spot-1 other"]+on["od-1 other"], "all are placed")
	}, 90*time.Second, 50*time.Millisecond)
	assert.Equal(t, 8, on["spot-1 web"], "the profiles count together")
	assert.Equal(
		t,
		10,
		on["od-1 other batch-scheduler"],
		"makeway has pods without a policy leave the target group alone",
	)

	assert.EventuallyWithT(t, func(c *assert.CollectT) { // PostBind comes after the bind
		log, err := os.ReadFile(scheduler.LogFile())
		require.NoError(c, err)
		lines := strings.Count(string(log), `"Placed a pod under its placement policy"`)
		assert.Equal(
			c,
			on["spot-1 web default-scheduler"]+on["od-1 web default-scheduler"],
			lines,
			"placementlog is in one of the profiles",
		)
		assert.Contains(c, string(log), `placementPolicy="default/web-on-spot" group="`)
	}, 90*time.Second, 50*time.Millisecond)
}
