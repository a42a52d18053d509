package inprocess

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
)

// 20 of 500 nodes are in the target group, and the scheduler looks at 230.
func TestL2SmallGroupInALargeCluster(t *testing.T) {
	nodes := manyNodes(480, 20)
	c := startCluster(t, bestEffort40, nodes...)
	c.createPods(10)
	c.eventuallyInGroups(4, 6)
}

// The nodes of the target group look as if there was room, but a port is taken on each.
func TestBestEffortGoesElsewhereWhenTheFiltersFindNoRoom(t *testing.T) {
	objects := manyNodes(198, 2)
	for i := range 2 {
		objects = append(
			objects,
			st.MakePod().Namespace("default").Name(fmt.Sprint("low-", i)).UID(fmt.Sprint("low-", i)).
				Priority(-1).HostPort(80).Node(fmt.Sprint("m", i)).Obj(),
		)
	}
	c := startCluster(t, `{enforcementMode: BestEffort, `+selectors+`}`, objects...)
	c.createPod(webPod("web-0").HostPort(80))
	c.eventuallyInGroups(0, 1)
	pods, err := c.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Len(t, pods.Items, 3, "none is evicted")
	assert.Equal(t, []string{"0/200 nodes are available: 198 node(s) didn't satisfy plugin(s) [placementpolicy], " +
		"2 node(s) didn't have free ports for the requested pod ports. " +
		"preemption: 0/200 nodes are available: 198 Preemption is not helpful for scheduling, " +
		"2 no pod is evicted before the nodes of all groups were tried., " +
		"placement policy default/web-on-spot: group target open (0 of 1 pods; 1 qualify), " +
		"but none of 2 nodes there has room for the pod: all nodes are tried next"}, c.failures("web-0"))
}

// failures returns what the scheduler has said of the pod each time that it could not place it.
func (c *cluster) failures(pod string) (messages []string) {
	for _, action := range c.client.Actions() {
		patch, ok := action.(clienttesting.PatchAction)
		if !ok || action.GetSubresource() != "status" || patch.GetName() != pod {
			continue
		}
		var patched v1.Pod
		require.NoError(c.t, json.Unmarshal(patch.GetPatch(), &patched))
		for _, condition := range patched.Status.Conditions {
			messages = append(messages, condition.Message)
		}
	}
	return messages
}

// manyNodes returns nodes of both groups, those of the target group last.
func manyNodes(other, target int) (nodes []runtime.Object) {
	capacity := map[v1.ResourceName]string{v1.ResourceCPU: "4", v1.ResourcePods: "10"}
	for i := range other {
		nodes = append(nodes, st.MakeNode().Name(fmt.Sprint("a", i)).Capacity(capacity).Obj())
	}
	for i := range target {
		nodes = append(nodes, st.MakeNode().Name(fmt.Sprint("m", i)).Label("spot", "true").Capacity(capacity).Obj())
	}
	return nodes
}

// eventuallyInGroups waits until so many pods of the application web are on the nodes of manyNodes.
func (c *cluster) eventuallyInGroups(target, other int) {
	c.t.Helper()
	require.EventuallyWithT(c.t, func(collect *assert.CollectT) {
		pods, err := c.client.CoreV1().Pods("default").List(c.t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
		require.NoError(collect, err)
		on := map[string]int{}
		for _, pod := range pods.Items {
			if pod.Spec.NodeName != "" {
				on[pod.Spec.NodeName[:1]]++
			}
		}
		assert.Equal(collect, []int{target, other}, []int{on["m"], on["a"]})
	}, time.Minute, 10*time.Millisecond)
}
