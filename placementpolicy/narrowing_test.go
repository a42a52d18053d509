package placementpolicy

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	framework "github.com/placement-policy/scheduler-plugin/internal/fwktest"
	st "github.com/placement-policy/scheduler-plugin/internal/fwktest"
)

// resources of a node, or requests of a pod.
func resources(cpu string) map[v1.ResourceName]string {
	return map[v1.ResourceName]string{v1.ResourceCPU: cpu, v1.ResourcePods: "10", "example.com/gpu": "1"}
}

// newLargeWorld returns a world with the policy, the nodes m1 and m2 in the target group, as edited, and the nodes o1 to o150.
func newLargeWorld(t testing.TB, policy string, edits ...func(m *st.NodeWrapper)) *world {
	w := newWorld(t)
	w.setPolicy("web-on-spot", policy)
	for _, name := range []string{"m1", "m2"} {
		node := st.MakeNode().Name(name).Label("spot", "true").Capacity(resources("4"))
		for _, edit := range edits {
			edit(node)
		}
		w.nodes.set(node.Obj())
	}
	for i := range 150 {
		w.nodes.set(st.MakeNode().Name(fmt.Sprint("o", i+1)).Label("spot", "false").Capacity(resources("4")).Obj())
	}
	w.takeSnapshot()
	return w
}

// takeSnapshot is what the scheduler does before each cycle.
func (w *world) takeSnapshot() {
	var pods []*v1.Pod
	for _, pod := range w.pods.GetIndexer().List() {
		pods = append(pods, pod.(*v1.Pod))
	}
	var nodes []*v1.Node
	for _, node := range w.nodes.GetIndexer().List() {
		nodes = append(nodes, node.(*v1.Node))
	}
	w.handle.snapshot = framework.NewSnapshot(pods, nodes)
}

// narrow begins a scheduling cycle for the pod, and returns the nodes that it is kept to.
func (w *world) narrow(state fwk.CycleState, pod *v1.Pod) sets.Set[string] {
	nodes, err := w.handle.snapshot.NodeInfos().List()
	require.NoError(w.t, err)
	result, _ := w.PreFilter(w.ctx, state, pod, nodes)
	if result == nil {
		return nil
	}
	return result.NodeNames
}

func TestPodsAreKeptToThePreferredGroupWhileItHasRoom(t *testing.T) {
	const prefersM = `{enforcementMode: BestEffort, ` + selectors + `, policy: {targetSize: 100%}}`
	m := sets.New("m1", "m2")
	tests := []struct {
		name   string
		policy string // default: prefersM
		nodes  func(m *st.NodeWrapper)
		pod    *st.PodWrapper
		before func(*world)
		want   sets.Set[string]
	}{
		{name: "BestEffort", want: m},
		{name: "Strict", policy: `{enforcementMode: Strict, ` + selectors + `}`, want: m},
		{name: "no policy governs the pod", pod: webPod("p").Label("app", "db")},
		{name: "it fits", pod: webPod("p").Req(map[v1.ResourceName]string{v1.ResourceCPU: "4", "example.com/gpu": "1"}), want: m},
		{name: "it requests too much", pod: webPod("p").Req(map[v1.ResourceName]string{v1.ResourceCPU: "4001m"})},
		{name: "it requests too much of an extended resource", pod: webPod("p").Req(map[v1.ResourceName]string{"example.com/gpu": "2"})},
		{name: "the nodes lack memory", pod: webPod("p").Req(map[v1.ResourceName]string{v1.ResourceMemory: "1Mi"})},
		{name: "the nodes lack ephemeral storage", pod: webPod("p").Req(map[v1.ResourceName]string{v1.ResourceEphemeralStorage: "1Mi"})},
		{name: "other pods have taken the CPU", pod: webPod("p").Req(map[v1.ResourceName]string{v1.ResourceCPU: "2"}), before: func(w *world) {
			for _, name := range []string{"m1", "m2"} {
				w.pods.set(webPod("on-" + name).Node(name).Req(map[v1.ResourceName]string{v1.ResourceCPU: "3"}).Obj())
			}
		}},
		{name: "one node has room", pod: webPod("p").Req(map[v1.ResourceName]string{v1.ResourceCPU: "2"}), before: func(w *world) {
			w.pods.set(webPod("on-m1").Node("m1").Req(map[v1.ResourceName]string{v1.ResourceCPU: "3"}).Obj())
		}, want: m},
		{name: "the nodes have as many pods as they may", before: func(w *world) {
			w.addPodsOn("m1", 10)
			w.addPodsOn("m2", 10)
		}},
		{name: "the nodes are cordoned", nodes: func(m *st.NodeWrapper) { m.Unschedulable(true) }},
		{name: "it does not tolerate the nodes' taint", nodes: tainted(v1.TaintEffectNoSchedule)},
		{name: "it tolerates the nodes' taint", nodes: tainted(v1.TaintEffectNoSchedule), pod: webPod("p").Toleration("spot"), want: m},
		{name: "the nodes would rather not have it", nodes: tainted(v1.TaintEffectPreferNoSchedule), want: m},
		{name: "its node selector leaves no node of the group", pod: webPod("p").NodeSelector(map[string]string{"spot": "false"})},
		{name: "the scheduler does not know the nodes yet", before: func(w *world) {
			for _, name := range []string{"m1", "m2"} {
				_ = w.nodes.GetIndexer().Delete(spotNode(name)) // the plugin does
			}
		}},
		{name: "the scheduler looks at all nodes", before: func(w *world) {
			for i := 99; i <= 150; i++ {
				w.nodes.remove(onDemandNode(fmt.Sprint("o", i)))
			}
		}},
		{name: "it is nominated for a node", pod: webPod("p").NominatedNodeName("o1")},
		{name: "it has waited for a node", pod: webPod("p").Condition(v1.PodScheduled, v1.ConditionFalse, v1.PodReasonUnschedulable), want: m},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			policy, pod := prefersM, webPod("p")
			if tt.policy != "" {
				policy = tt.policy
			}
			if tt.pod != nil {
				pod = tt.pod
			}
			var edits []func(*st.NodeWrapper)
			if tt.nodes != nil {
				edits = append(edits, tt.nodes)
			}
			w := newLargeWorld(t, policy, edits...)
			if tt.before != nil {
				tt.before(w)
				w.takeSnapshot()
			}
			assert.Equal(t, tt.want, w.narrow(framework.NewCycleState(), pod.Obj()))
		})
	}
}

func tainted(effect v1.TaintEffect) func(*st.NodeWrapper) {
	return func(m *st.NodeWrapper) { m.Taints([]v1.Taint{{Key: "spot", Effect: effect}}) }
}

func TestPodGroupsAreNotNarrowed(t *testing.T) {
	framework.NeedPodGroups(t)
	w := newLargeWorld(t, bestEffort40)
	state := framework.NewCycleState()
	state.SetPodGroupSchedulingCycle(framework.NewCycleState())
	assert.Nil(t, w.narrow(state, webPod("p").Obj()))
}

func TestNodesOfThePreferredGroupNeedNoScore(t *testing.T) {
	w := newLargeWorld(t, bestEffort40)
	state, pod := framework.NewCycleState(), w.addPods(1)[0]
	require.NotNil(t, w.narrow(state, pod))
	assert.True(t, w.Filter(w.ctx, state, pod, w.nodeInfo("o1")).IsSuccess())
	assert.True(t, w.PreScore(w.ctx, state, pod, nil).IsSkip())
}

// Otherwise a pod might evict others on the nodes that it is kept to, while there is room on the rest.
func TestNoPodIsEvictedForOneThatIsNarrowed(t *testing.T) {
	for name, policy := range map[string]string{"BestEffort": bestEffort40, "Strict": strict40} {
		t.Run(name, func(t *testing.T) {
			w := newLargeWorld(t, policy)
			pod := w.addPods(5)[0]
			low := webPod("low").Label("app", "db").Priority(-1).Node("o1").Obj()
			state, node := framework.NewCycleState(), w.nodeInfo("o1")
			require.NotNil(t, w.narrow(state, pod))

			simulation := state.Clone()
			require.True(t, w.RemovePod(w.ctx, simulation, pod, podInfo(t, low), node).IsSuccess())
			assert.Equal(t, fwk.UnschedulableAndUnresolvable, w.Filter(w.ctx, simulation, pod, node).Code())
			assert.True(t, w.Filter(w.ctx, state, pod, node).IsSuccess())
		})
	}
}

// narrowed reports whether a pod that finds a node would be kept to some.
func (w *world) narrowed(pod *v1.Pod) bool {
	names := w.narrow(framework.NewCycleState(), pod)
	w.narrowing.reserved(pod)
	return names != nil
}

func TestAPodThatFindsNoRoomWhereItWasKeptToIsTriedOnAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLargeWorld(t, bestEffort40)
		pods := w.addPods(3)
		require.NotNil(t, w.narrow(framework.NewCycleState(), pods[0]))
		assert.Equal(t, map[string]int{pods[0].Name: 1}, w.activatedWithin(2*narrowingTimeout))

		assert.False(t, w.narrowed(pods[0]))
		assert.False(t, w.narrowed(pods[1]), "another pod of the cohort, whose chances are as bad")
		assert.True(t, w.narrowed(webPod("next").Label("pod-template-hash", "next").Obj()), "a pod of another cohort")

		time.Sleep(narrowingPause)
		assert.True(t, w.narrowed(pods[1]))
		assert.Empty(t, w.activatedWithin(2*narrowingTimeout))
		assert.Nil(t, w.narrowing.tried.Pod)
		assert.Empty(t, w.narrowing.paused)
	})
}

// Cycles come one after another, so a pod that has not come to Reserve by the next one has failed.
func TestOfManyPodsOneFindsOutThatThereIsNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLargeWorld(t, bestEffort40)
		pods := w.addPods(10)
		require.NotNil(t, w.narrow(framework.NewCycleState(), pods[0]))
		for _, pod := range pods[1:] {
			assert.False(t, w.narrowed(pod))
		}
		assert.Equal(t, map[string]int{pods[0].Name: 1}, w.handle.activated(), "at once")
	})
}

func TestAPodThatIsTriedAgainBeforeItIsActivatedIsTriedOnAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLargeWorld(t, bestEffort40)
		pod := w.addPods(1)[0]
		require.NotNil(t, w.narrow(framework.NewCycleState(), pod))
		assert.Nil(t, w.narrow(framework.NewCycleState(), pod))
		assert.Empty(t, w.activatedWithin(2*narrowingTimeout))
	})
}

func TestAReservedPodHasNotFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLargeWorld(t, bestEffort40)
		pods := w.addPods(2)
		state := framework.NewCycleState()
		require.NotNil(t, w.narrow(state, pods[0]))
		require.True(t, w.Reserve(w.ctx, state, pods[0], "o1").IsSuccess())
		assert.Empty(t, w.activatedWithin(2*narrowingTimeout))
		assert.NotNil(t, w.narrow(framework.NewCycleState(), pods[1]))
	})
}

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
		objects = append(objects, st.MakePod().Namespace("default").Name(fmt.Sprint("low-", i)).UID(fmt.Sprint("low-", i)).
			Priority(-1).HostPort(80).Node(fmt.Sprint("m", i)).Obj())
	}
	c := startCluster(t, `{enforcementMode: BestEffort, `+selectors+`}`, objects...)
	c.createPod(webPod("web-0").HostPort(80))
	c.eventuallyInGroups(0, 1)
	pods, err := c.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Len(t, pods.Items, 3, "none is evicted")
}

// manyNodes returns nodes of both groups, those of the target group last.
func manyNodes(other, target int) (nodes []runtime.Object) {
	for i := range other {
		nodes = append(nodes, st.MakeNode().Name(fmt.Sprint("a", i)).Capacity(resources("4")).Obj())
	}
	for i := range target {
		nodes = append(nodes, st.MakeNode().Name(fmt.Sprint("m", i)).Label("spot", "true").Capacity(resources("4")).Obj())
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
