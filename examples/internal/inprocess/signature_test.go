package inprocess

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
)

// signs has the scheduler sign pods: its default spread constraints, which depend on other pods, keep it from that.
func signs(profile *config.KubeSchedulerProfile) {
	for _, c := range profile.PluginConfig {
		if args, ok := c.Args.(*config.PodTopologySpreadArgs); ok {
			args.DefaultingType, args.DefaultConstraints = config.ListDefaulting, nil
		}
	}
}

// Pods that were signed before the policy came share a signature, by which the scheduler takes the second best node of
// one for the next.
func TestN9PodsThatAreOlderThanTheirPolicyKeepTheRatio(t *testing.T) {
	var objects []runtime.Object
	for i := range 3 {
		for _, group := range []string{"m", "a"} {
			objects = append(objects, st.MakeNode().Name(fmt.Sprint(group, i)).Label("spot", fmt.Sprint(group == "m")).
				Capacity(map[v1.ResourceName]string{v1.ResourceCPU: "4", v1.ResourcePods: "100"}).Obj())
		}
	}
	c := newCluster(t, signs, `{podSelector: {matchLabels: {app: none}}, nodeSelector: {}}`, objects...)
	for i := range 10 {
		c.createPod(webPod(fmt.Sprint("web-", i)).CreationTimestamp(metav1.Now()))
	}
	c.eventuallyQueued(10)
	_, err := c.policies.Create(t.Context(), policyObject(t, "web", bestEffort40), metav1.CreateOptions{})
	require.NoError(t, err)
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		assert.Len(collect, c.store.Policies(), 2)
	}, time.Minute, 10*time.Millisecond)
	c.run()
	c.eventuallyInGroups(4, 6)
}

// eventuallyQueued waits until so many pods are in the scheduler's queue.
func (c *cluster) eventuallyQueued(pods int) {
	require.EventuallyWithT(c.t, func(collect *assert.CollectT) {
		queued, _ := c.sched.SchedulingQueue.PendingPods()
		assert.Len(collect, queued, pods)
	}, time.Minute, 10*time.Millisecond)
}
