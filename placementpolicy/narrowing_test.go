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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	framework "github.com/placement-policy/scheduler-plugin/internal/fwktest"
	st "github.com/placement-policy/scheduler-plugin/internal/fwktest"
)

// resources of a node, or requests of a pod.
func resources(cpu string) map[v1.ResourceName]string {
	return map[v1.ResourceName]string{v1.ResourceCPU: cpu, v1.ResourcePods: "10", "example.com/gpu": "1"}
}

// newLargeWorld returns a world with the policy, the nodes m1 and m2 in the target group, as edited, and the nodes o1
// to o150.
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
		{
			name: "it fits",
			pod:  webPod("p").Req(map[v1.ResourceName]string{v1.ResourceCPU: "4", "example.com/gpu": "1"}),
			want: m,
		},
		{name: "it requests too much", pod: webPod("p").Req(map[v1.ResourceName]string{v1.ResourceCPU: "4001m"})},
		{
			name: "it requests too much of an extended resource",
			pod:  webPod("p").Req(map[v1.ResourceName]string{"example.com/gpu": "2"}),
		},
		{name: "the nodes lack memory", pod: webPod("p").Req(map[v1.ResourceName]string{v1.ResourceMemory: "1Mi"})},
		{
			name: "the nodes lack ephemeral storage",
			pod:  webPod("p").Req(map[v1.ResourceName]string{v1.ResourceEphemeralStorage: "1Mi"}),
		},
		{
			name: "other pods have taken the CPU",
			pod:  webPod("p").Req(map[v1.ResourceName]string{v1.ResourceCPU: "2"}),
			before: func(w *world) {
				for _, name := range []string{"m1", "m2"} {
					w.pods.set(
						webPod("on-" + name).Node(name).Req(map[v1.ResourceName]string{v1.ResourceCPU: "3"}).Obj(),
					)
				}
			},
		},
		{
			name: "one node has room",
			pod:  webPod("p").Req(map[v1.ResourceName]string{v1.ResourceCPU: "2"}),
			before: func(w *world) {
				w.pods.set(webPod("on-m1").Node("m1").Req(map[v1.ResourceName]string{v1.ResourceCPU: "3"}).Obj())
			},
			want: m,
		},
		{name: "the nodes have as many pods as they may", before: func(w *world) {
			w.addPodsOn("m1", 10)
			w.addPodsOn("m2", 10)
		}},
		{name: "the nodes are cordoned", nodes: func(m *st.NodeWrapper) { m.Unschedulable(true) }},
		{name: "it does not tolerate the nodes' taint", nodes: tainted(v1.TaintEffectNoSchedule)},
		{
			name:  "it tolerates the nodes' taint",
			nodes: tainted(v1.TaintEffectNoSchedule),
			pod:   webPod("p").Toleration("spot"),
			want:  m,
		},
		{name: "the nodes would rather not have it", nodes: tainted(v1.TaintEffectPreferNoSchedule), want: m},
		{
			name: "its node selector leaves no node of the group",
			pod:  webPod("p").NodeSelector(map[string]string{"spot": "false"}),
		},
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
		{name: "it is nominated for a node of the group", pod: webPod("p").NominatedNodeName("m1")},
		{
			name: "it is nominated for a node of the other group",
			pod:  webPod("p").NominatedNodeName("o1"),
			want: sets.New("m1", "m2", "o1"),
		},
		{name: "it is nominated for a node that is gone", pod: webPod("p").NominatedNodeName("o0")},
		{
			name:   "Strict, and it is nominated",
			policy: `{enforcementMode: Strict, ` + selectors + `}`,
			pod:    webPod("p").NominatedNodeName("o1"),
		},
		{
			name: "it has waited for a node",
			pod:  webPod("p").Condition(v1.PodScheduled, v1.ConditionFalse, v1.PodReasonUnschedulable),
			want: m,
		},
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
	state.InPodGroup(framework.NewCycleState())
	assert.Nil(t, w.narrow(state, webPod("p").Obj()))
}

func TestNodesOfThePreferredGroupNeedNoScore(t *testing.T) {
	w := newLargeWorld(t, bestEffort40)
	state, pod := framework.NewCycleState(), w.addPods(1)[0]
	require.NotNil(t, w.narrow(state, pod))
	assert.True(t, w.Filter(w.ctx, state, pod, w.nodeInfo("o1")).IsSuccess())
	assert.False(t, w.Filter(w.ctx, state, pod, w.nodeInfo("m1")).IsSuccess(), "the scheduler may try it all the same")
	assert.True(t, w.PreScore(w.ctx, state, pod, nil).IsSkip())
}

// The scheduler tries a nominated node alone, before it scores any.
func TestANominatedNodeOutsideThePreferredGroupIsRefusedOnce(t *testing.T) {
	tests := []struct {
		name   string
		policy string
		node   string
		small  bool
		full   bool // there is no room in the preferred group
		want   fwk.Code
	}{
		{name: "few nodes", policy: bestEffort40, node: "m1", small: true, want: fwk.Unschedulable},
		{name: "many nodes", policy: bestEffort40, node: "m1", want: fwk.Unschedulable},
		{name: "in the preferred group", policy: bestEffort40, node: "o1"},
		{
			name:   "the preferred group is full, as it is after an eviction elsewhere",
			policy: bestEffort40,
			node:   "m1",
			full:   true,
		},
		{name: "Strict", policy: strict80, node: "m1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newLargeWorld(t, tt.policy)
			pod := w.addPods(2)[0] // prefers the other group
			pod.Status.NominatedNodeName = tt.node
			for i := range 150 {
				switch {
				case tt.small && i > 0:
					w.nodes.remove(onDemandNode(fmt.Sprint("o", i+1)))
				case tt.full:
					w.nodes.set(
						st.MakeNode().Name(fmt.Sprint("o", i+1)).Label("spot", "false").Unschedulable(true).Obj(),
					)
				}
			}
			w.takeSnapshot()
			state := framework.NewCycleState()
			w.narrow(state, pod)
			if w.skips(state) {
				assert.Equal(t, fwk.Success, tt.want)
				return
			}
			filter := func(state fwk.CycleState, node string) fwk.Code {
				return w.Filter(w.ctx, state, pod, w.nodeInfo(node)).Code()
			}
			assert.Equal(t, tt.want, filter(state.Clone(), tt.node), "alone, perhaps with other nominated pods")
			for _, node := range []string{"o1", tt.node} {
				assert.Equal(t, fwk.Success, filter(state, node), "with all others")
			}
			assert.False(t, w.PreScore(w.ctx, state, pod, nil).IsSkip(), "nodes of both groups are scored")
		})
	}
}

// skips reports whether PreFilter had nothing to note for the cycle.
func (w *world) skips(state fwk.CycleState) bool {
	_, err := state.Read(preFilterStateKey)
	return err != nil
}

// A pod that was signed before a policy governed it may be given a node by an earlier pod's scores.
func TestAPodThatIsOlderThanAPolicyIsKeptToThePreferredGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		node := st.MakeNode().Name("o1").Label("spot", "false").Capacity(resources("4")).Obj()
		w.nodes.set(node)
		old := webPod("old").CreationTimestamp(metav1.Now()).Obj()
		w.pods.set(old)
		time.Sleep(time.Hour)
		w.setPolicy("web-on-spot", bestEffort40)
		w.takeSnapshot()
		time.Sleep(time.Hour)
		recent := webPod("recent").CreationTimestamp(metav1.Now()).Obj()
		w.pods.set(recent)
		assert.Nil(t, w.narrow(framework.NewCycleState(), old), "no pod was ever signed")
		_, status := w.SignPod(w.ctx, webPod("ungoverned").Label("app", "db").Obj())
		require.True(t, status.IsSuccess())
		assert.Equal(t, sets.New("o1", "o2"), w.narrow(framework.NewCycleState(), old))
		assert.Nil(t, w.narrow(framework.NewCycleState(), recent))

		w.setPolicy("web-on-spot", strict40)
		assert.NotNil(t, w.narrow(framework.NewCycleState(), recent), "the policy was edited")
	})
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
func (w *world) narrowed(pod *v1.Pod) bool { return w.narrow(framework.NewCycleState(), pod) != nil }

// fail passes a pod through a cycle in which the filters let it onto none of the nodes that it is kept to.
func (w *world) fail(pod *v1.Pod) *fwk.Status {
	state := framework.NewCycleState()
	require.NotNil(w.t, w.narrow(state, pod))
	result, status := w.PostFilter(w.ctx, state, pod, nil)
	assert.Nil(w.t, result)
	assert.Equal(w.t, fwk.Unschedulable, status.Code())
	return status
}

func TestAPodThatFindsNoRoomWhereItWasKeptToIsTriedOnAllNodes(t *testing.T) {
	w := newLargeWorld(t, bestEffort40)
	pods := w.addPods(3)
	status := w.fail(pods[0])
	assert.Equal(t, "placement policy default/web-on-spot: group other open (0 of 2 pods; 3 qualify), "+
		"but none of 150 nodes there has room for the pod: all nodes are tried next", status.Message())
	assert.Equal(t, map[string]int{pods[0].Name: 1}, w.handle.activated(), "while it is on its way back to the queue")
	assert.False(t, w.narrowed(pods[0]))
	assert.Empty(t, w.handle.activated())
}

func TestAPodThatWasKeptToNodesInVainIsTriedAgainInTheNextCycle(t *testing.T) {
	w := newLargeWorld(t, bestEffort40)
	pods := w.addPods(2)
	w.fail(pods[0])
	w.handle.activated()
	w.narrowed(pods[1])
	assert.Equal(t, map[string]int{pods[0].Name: 1}, w.handle.activated(), "it need not wait for its back-off")
	w.narrowed(pods[1])
	assert.Empty(t, w.handle.activated())
}

func TestAfterEachFailureInARowMorePodsOfTheWorkloadAreTriedOnAllNodes(t *testing.T) {
	w := newLargeWorld(t, bestEffort40)
	pod := w.addPods(1)[0]
	skipped := func() (n int) {
		for !w.narrowed(pod) {
			n++
		}
		return n
	}
	for _, want := range []int{1, 2, 4, 8} {
		w.fail(pod)
		assert.True(t, w.narrowed(webPod("next").Label("pod-template-hash", "next").Obj()), "a pod of another cohort")
		assert.Equal(t, want, skipped())
	}
	state := framework.NewCycleState()
	require.NotNil(t, w.narrow(state, pod))
	require.True(t, w.Reserve(w.ctx, state, pod, "o1").IsSuccess())
	w.fail(pod)
	assert.Equal(t, 1, skipped(), "a pod has found a node meanwhile")
}

func TestPodsThatWereNotKeptToNodesAreLeftToOtherPlugins(t *testing.T) {
	w := newLargeWorld(t, strict40)
	for _, pod := range []*v1.Pod{
		webPod("full").Req(map[v1.ResourceName]string{v1.ResourceCPU: "40"}).Obj(),
		webPod("ungoverned").Label("app", "db").Obj(),
	} {
		state := framework.NewCycleState()
		require.Nil(t, w.narrow(state, pod))
		_, status := w.PostFilter(w.ctx, state, pod, nil)
		assert.Equal(t, fwk.Unschedulable, status.Code())
		assert.Empty(t, status.Message())
		assert.Empty(t, w.handle.activated())
	}
}

// One of 4,000 nodes of the group has room, or none has.
func TestTheOnlyRoomInALargeGroupIsFound(t *testing.T) {
	const prefersM = `{enforcementMode: BestEffort, ` + selectors + `, policy: {targetSize: 100%}}`
	full := func(name string) *v1.Node {
		return st.MakeNode().Name(name).Label("spot", "true").Capacity(resources("500m")).Obj()
	}
	free := func(name string) *v1.Node {
		return st.MakeNode().Name(name).Label("spot", "true").Capacity(resources("4")).Obj()
	}
	tests := []struct {
		name   string
		change func(*world)
		want   bool
	}{
		{"nothing changes", func(*world) {}, false},
		{"a node comes", func(w *world) { w.nodes.set(free("new")) }, true},
		{"a node grows", func(w *world) { w.nodes.set(free("t1234")) }, true},
		{"a node of the other group comes", func(w *world) { w.nodes.set(onDemandNode("new")) }, false},
		{"a pod goes", func(w *world) { w.pods.remove(w.get("on-free")) }, true},
		{"more nodes change than are remembered", func(w *world) {
			w.nodes.set(free("t1234"))
			for i := range 1000 {
				w.nodes.set(full(fmt.Sprint("t", 2000+i)))
			}
			w.takeSnapshot()
		}, true},
		{"the policy's groups change", func(w *world) {
			w.setPolicy(
				"web-on-spot",
				`{podSelector: {matchLabels: {app: web}}, nodeSelector: {matchLabels: {spot: "false"}}}`,
			)
		}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.setPolicy("web-on-spot", prefersM)
			for i := range 4000 {
				w.nodes.set(full(fmt.Sprint("t", i)))
			}
			for i := range 100 {
				w.nodes.set(
					st.MakeNode().Name(fmt.Sprint("x", i)).Label("spot", "false").Capacity(resources("4")).Obj(),
				)
			}
			w.nodes.set(free("free"))
			w.pods.set(webPod("on-free").Node("free").Req(map[v1.ResourceName]string{v1.ResourceCPU: "4"}).Obj())
			w.takeSnapshot()
			pod := ownedBy(webPod("p"), "rs").Req(map[v1.ResourceName]string{v1.ResourceCPU: "1"}).Obj()
			require.False(t, w.narrowed(pod))

			tt.change(w)
			w.narrowed(pod) // the scheduler's snapshot may be behind
			w.takeSnapshot()
			for i := range 20 {
				sibling := pod.DeepCopy()
				sibling.Name, sibling.UID = fmt.Sprint("p", i), types.UID(fmt.Sprint("p", i))
				assert.Equal(t, tt.want, w.narrowed(sibling))
			}
		})
	}
}

func TestWhatWasFoundIsRememberedForAsManyWorkloadsAsAreAllowed(t *testing.T) {
	w := newLargeWorld(t, bestEffort40)
	for i := range maxFindings + 1 {
		w.narrowed(webPod("p").UID(fmt.Sprint(i)).Obj())
	}
	assert.Len(t, w.narrowing.findings, 1)
}

func TestProfilesThatScoreAllNodesNeedNoNarrowing(t *testing.T) {
	for percentage, want := range map[int32]bool{0: false, 50: false, 100: true} {
		handle := profileHandle{percentage: &percentage}
		assert.Equal(t, want, newPlugin(nil, handle).scoresAllNodes, "%d %%", percentage)
	}
	assert.False(t, newPlugin(nil, profileHandle{}).scoresAllNodes, "the profile does not say")

	w := newLargeWorld(t, bestEffort40)
	w.scoresAllNodes = true
	assert.False(t, w.narrowed(w.addPods(1)[0]))
}

// profileHandle is what a framework's handle says of its profile.
type profileHandle struct {
	fwk.Handle
	percentage *int32
}

func (h profileHandle) PercentageOfNodesToScore() *int32 { return h.percentage }
