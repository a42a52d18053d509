package inprocess

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// gang is a Permit plugin that has pods with the label gang wait until it is complete.
type gang struct {
	handle   fwk.Handle
	complete atomic.Bool
}

const gangName = "gang"

func (g *gang) Name() string { return gangName }

func (g *gang) Permit(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) (*fwk.Status, time.Duration) {
	if pod.Labels["gang"] == "" || g.complete.Load() {
		return nil, 0
	}
	return fwk.NewStatus(fwk.Wait), time.Hour
}

func (g *gang) waiting() (pods []fwk.WaitingPod) {
	g.handle.IterateOverWaitingPods(func(pod fwk.WaitingPod) { pods = append(pods, pod) })
	return pods
}

// Nothing was bound, as Permit shows: so nobody has to be asked, and the places are free at once.
func TestAGangThatAnotherPluginRejectsFreesItsPlaces(t *testing.T) {
	var g gang
	plugins := frameworkruntime.Registry{
		gangName: func(_ context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			g.handle = handle
			return &g, nil
		},
	}
	c := newClusterWith(t, plugins, func(profile *config.KubeSchedulerProfile) {
		profile.Plugins.Permit.Enabled = append(profile.Plugins.Permit.Enabled, config.Plugin{Name: gangName})
	}, strict40, spotNode("m1"), onDemandNode("o1"))
	c.run()
	const size = 10
	podName := func(i int) string { return fmt.Sprint("member-", i) }
	for i := range size {
		c.createPod(webPod(podName(i)).Label("gang", "whole"))
	}
	require.Eventually(t, func() bool { return len(g.waiting()) == size }, time.Minute, 10*time.Millisecond)
	c.createPod(webPod("db").Label("app", "db")) // whose cycle comes after the gang's
	require.Eventually(
		t,
		func() bool { return len(c.pods("m1"))+len(c.pods("o1")) == 1 },
		time.Minute,
		10*time.Millisecond,
	)

	g.complete.Store(true)
	for _, pod := range g.waiting() {
		pod.Reject(gangName, "the gang is not complete")
	}
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		assert.Empty(collect, c.pods(""))
	}, time.Minute, 10*time.Millisecond)
	info, ok := c.store.Policy(types.NamespacedName{Namespace: "default", Name: "web-on-spot"})
	require.True(t, ok)
	require.Len(t, info.Cohorts, 1)
	assert.Equal(t, []int{4, 6}, info.Cohorts[0].Placed)
	for i := range size {
		assert.Equal(t, []string{"0/1 nodes are available: 1 the gang is not complete."}, c.failures(podName(i)))
	}
	for _, action := range c.client.Actions() {
		assert.False(t, action.Matches("get", "pods"), "the API server was asked about a pod")
	}
}
