package placementpolicy

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	framework "github.com/placement-policy/scheduler-plugin/internal/fwktest"
	st "github.com/placement-policy/scheduler-plugin/internal/fwktest"
)

func TestPreFilterSkipsPodsThatNeedNoFilter(t *testing.T) {
	tests := []struct {
		name string
		spec string
		pod  *st.PodWrapper
		want fwk.Code
	}{
		{"no policy governs the pod", strict40, webPod("p").Label("app", "db"), fwk.Skip},
		{"a policy of another namespace selects the pod", strict40, webPod("p").Namespace("elsewhere"), fwk.Skip},
		{"BestEffort", bestEffort40, webPod("p"), fwk.Skip},
		{"the policy is invalid", invalid, webPod("p"), fwk.Skip},
		{"the pod has a node already, and a resize to fit in there", strict40, webPod("p").Node("m1"), fwk.Skip},
		{"Strict, also where a group is full: T(1) = 0", strict40, webPod("p"), fwk.Success},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.setPolicy("web-on-spot", tt.spec)
			state, status := w.preFilter(tt.pod.Obj())
			assert.Equal(t, tt.want, status.Code(), status)
			_, err := state.Read(preFilterStateKey)
			assert.Equal(t, tt.want == fwk.Success, err == nil, "state is written if Filter is to read it")
			assert.False(t, w.waiting.Waits(webOnSpot), "a pod that was kept out of nowhere yet does not wait")
		})
	}
}

// Pods are kept out with the numbers that explain it, and so that preemption is tried where it can help.
func TestFilter(t *testing.T) {
	const (
		allowed      = fwk.Success
		preempt      = fwk.Unschedulable
		unresolvable = fwk.UnschedulableAndUnresolvable
	)
	tests := []struct {
		name     string
		spec     string
		onM, onO int // pods of the cohort that run on m1, which nodeSelector matches, and on o1
		pending  int // others that wait
		more     func(*world)
		pod      *st.PodWrapper // default: one more of the cohort
		node     string
		want     fwk.Code
		reason   string
	}{
		{
			name: "the target group has places left",
			spec: strict40, onM: 3, onO: 5, pending: 1, node: "m1", want: allowed,
		},
		{
			name: "the other group has places left",
			spec: strict40, onM: 3, onO: 5, pending: 1, node: "o1", want: allowed,
		},
		{
			name: "the target group is full",
			spec: strict40, onM: 4, onO: 5, node: "m1", want: unresolvable,
			reason: "placement policy default/web-on-spot: group target full (4 of 4 pods; 10 qualify)",
		},
		{
			name: "the other group is full",
			spec: strict40, onM: 3, onO: 6, node: "o1", want: unresolvable,
			reason: "placement policy default/web-on-spot: group other full (6 of 6 pods; 10 qualify)",
		},
		{
			name: "MustNot: the target group is the nodes that the selector does not match",
			spec: strictNot60, onM: 3, onO: 6, node: "o1", want: unresolvable,
			reason: "placement policy default/web-on-spot: group target full (6 of 6 pods; 10 qualify)",
		},
		{
			name: "nothing belongs in the target group, and no eviction changes that",
			spec: strict0, node: "m1", want: unresolvable,
			more:   func(w *world) { w.pods.set(webPod("low").Priority(-1).Node("m1").Obj()) },
			reason: "placement policy default/web-on-spot: group target full (1 of 0 pods; 2 qualify)",
		},
		{
			name: "one of three groups is full",
			spec: strictThree, onM: 5, onO: 3, node: "m1", want: unresolvable,
			reason: "placement policy default/web-on-spot: group spot full (5 of 5 pods; 9 qualify)",
		},
		{
			name:   "no group has the node",
			spec:   strictThree,
			onM:    1,
			onO:    1,
			more:   func(w *world) { w.nodes.set(st.MakeNode().Name("bare").Obj()) },
			node:   "bare",
			want:   unresolvable,
			reason: "placement policy default/web-on-spot: node in none of its groups (spot, gone, on-demand)",
		},
		{
			name: "no group has the node, and a pod of lower priority is there",
			spec: strictThree, onM: 1, onO: 1, node: "bare", want: unresolvable,
			more: func(w *world) {
				w.nodes.set(st.MakeNode().Name("bare").Obj())
				w.pods.set(webPod("low").Priority(-1).Node("bare").Obj())
			},
			reason: "placement policy default/web-on-spot: node in none of its groups (spot, gone, on-demand)",
		},
		{
			name: "the workload wants more pods than there are",
			spec: strict40, node: "m1", want: unresolvable,
			pod: ownedBy(webPod("p"), "rs"),
			more: func(w *world) {
				w.replicaSets.set(replicaSet("rs", 10))
				for i := range 4 {
					w.pods.set(ownedBy(webPod(fmt.Sprint(i)), "rs").Node("m1").Obj())
				}
			},
			reason: "placement policy default/web-on-spot: group target full (4 of 4 pods; 5 of 10 wanted qualify)",
		},
		{
			name: "a pod of lower priority of the same cohort could be evicted",
			spec: strict40, onM: 3, onO: 5, node: "m1", want: preempt,
			more:   func(w *world) { w.pods.set(webPod("low").Priority(-1).Node("m2").Obj()) },
			reason: "placement policy default/web-on-spot: group target full (4 of 4 pods; 10 qualify)",
		},
		{
			name: "the only pod of lower priority is in the other group",
			spec: strict40, onM: 4, onO: 4, node: "m1", want: unresolvable,
			more:   func(w *world) { w.pods.set(webPod("low").Priority(-1).Node("o1").Obj()) },
			reason: "placement policy default/web-on-spot: group target full (4 of 4 pods; 10 qualify)",
		},
		{
			name: "the only pod of lower priority is of another cohort",
			spec: strict40, onM: 4, onO: 5, node: "m1", want: unresolvable,
			more: func(w *world) {
				w.pods.set(webPod("low").Label("pod-template-hash", "old").Priority(-1).Node("m1").Obj())
			},
			reason: "placement policy default/web-on-spot: group target full (4 of 4 pods; 10 qualify)",
		},
		{
			name: "the only pod of lower priority waits, too",
			spec: strict40, onM: 4, onO: 4, node: "m1", want: unresolvable,
			more:   func(w *world) { w.pods.set(webPod("low").Priority(-1).Obj()) },
			reason: "placement policy default/web-on-spot: group target full (4 of 4 pods; 10 qualify)",
		},
		{
			name: "the group has so many pods too many that evicting those of lower priority is not enough",
			spec: strict80, onM: 7, onO: 1, node: "m1", want: unresolvable,
			more: func(w *world) {
				w.pods.set(webPod("low").Priority(-1).Node("m1").Obj())
				w.setPolicy("web-on-spot", strict40)
			},
			reason: "placement policy default/web-on-spot: group target full (8 of 4 pods; 10 qualify)",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.setPolicy("web-on-spot", tt.spec)
			w.addPodsOn("m1", tt.onM)
			w.addPodsOn("o1", tt.onO)
			w.addPods(tt.pending)
			if tt.more != nil {
				tt.more(w)
			}
			pod := webPod("p")
			if tt.pod != nil {
				pod = tt.pod
			}
			status := w.filter(pod.Obj(), tt.node)[0]
			assert.Equal(t, tt.want, status.Code(), status)
			assert.Equal(t, tt.reason, status.Message())
		})
	}
}

// All nodes of a cycle are judged by the decision that PreFilter took; Reserve checks it against what happened since.
func TestFilterKeepsToTheDecisionOfItsCycle(t *testing.T) {
	w := newWorld(t)
	w.setPolicy("web-on-spot", strict40)
	pods := w.addPods(5)
	state, _ := w.preFilter(pods[0])
	w.reserve(pods[1], "m1")
	w.reserve(pods[2], "m1")

	assert.True(t, w.Filter(w.ctx, state, pods[0], w.nodeInfo("m1")).IsSuccess())
	assert.Equal(t, fwk.Unschedulable, w.Reserve(w.ctx, state, pods[0], "m1").Code())
}

func TestAProfileThatEnablesFilterWithoutPreFilterIsReported(t *testing.T) {
	tests := []struct {
		name, spec string
		pod        *v1.Pod
		want       int
	}{
		{"no policy governs the pod", strict40, webPod("p").Label("app", "db").Obj(), 0},
		{"BestEffort", bestEffort40, webPod("p").Obj(), 0},
		{"Strict", strict40, webPod("p").Obj(), 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.setPolicy("web-on-spot", tt.spec)
			for _, node := range []string{"m1", "m2"} {
				assert.True(t, w.Filter(w.ctx, framework.NewCycleState(), tt.pod, w.nodeInfo(node)).IsSuccess())
			}
			assert.Len(t, w.handle.recorder.recorded(), tt.want)
		})
	}
}

// The cohort has 10 pods and 4 places in the target group, 3 of which are taken: by "victim" and two others.
func TestSimulation(t *testing.T) {
	var (
		victim    = webPod("victim").Priority(-1).Node("m1").Obj()
		nominated = webPod("nominated").Priority(1).Obj()
		stub      = st.MakePod().Namespace(
			"default",
		).Name(
			"nominated",
		).UID(
			"nominated",
		).Obj() // all that the nominator has of a pod in flight
		old     = webPod("old").Label("pod-template-hash", "old").Node("m1").Obj()
		unknown = webPod("unknown").Obj()
		leaving = webPod("leaving").Terminating().Node("m1").Obj()
	)
	type step struct {
		what string // "+" for AddPod or "-" for RemovePod
		pod  *v1.Pod
		node string
	}
	tests := []struct {
		name  string
		full  bool // one more pod runs in the target group, which is full then
		known bool // the store has seen the nomination to m1
		steps []step
		open  bool // the target group, after the steps
	}{
		{name: "nothing changes", open: true},
		{name: "nothing changes in a full group", full: true},
		{name: "a victim frees its place", full: true, steps: []step{{"-", victim, "m1"}}, open: true},
		{
			name:  "a victim frees one place only",
			full:  true,
			steps: []step{{"-", victim, "m1"}, {"-", victim, "m1"}, {"+", nominated, "m1"}},
		},
		{
			name:  "a victim that is spared takes its place back",
			full:  true,
			steps: []step{{"-", victim, "m1"}, {"+", victim, "m1"}},
		},
		{
			name:  "a pod that terminates frees nothing: its place is free already",
			full:  true,
			steps: []step{{"-", leaving, "m1"}},
		},
		{name: "a pod of another cohort frees nothing", full: true, steps: []step{{"-", old, "m1"}}},
		{name: "a pod of another cohort takes nothing", steps: []step{{"+", old, "m1"}}, open: true},
		{name: "a pod that no event has shown takes nothing", steps: []step{{"+", unknown, "m1"}}, open: true},
		{name: "a nominated pod takes a place", steps: []step{{"+", nominated, "m1"}}},
		{
			name:  "a nominated pod takes a place in the group of its node",
			steps: []step{{"+", nominated, "o1"}},
			open:  true,
		},
		{name: "a nominated pod is known by its UID alone", steps: []step{{"+", stub, "m1"}}},
		{
			name:  "a nominated pod that the decision counts takes no second place",
			known: true,
			steps: []step{{"-", victim, "m1"}, {"+", stub, "m1"}},
			open:  true,
		},
		{
			name:  "a nominated pod that is taken away again leaves its place",
			steps: []step{{"+", nominated, "m1"}, {"-", nominated, "m1"}},
			open:  true,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.setPolicy("web-on-spot", strict40)
			w.pods.set(victim)
			w.pods.set(old)
			w.pods.set(leaving)
			w.addPodsOn("m1", 2)
			w.addPodsOn("o1", 4)
			if tt.full {
				w.addPodsOn("m1", 1)
			} else {
				w.addPods(1)
			}
			seen := nominated.DeepCopy()
			if tt.known {
				seen.Status.NominatedNodeName = "m1"
			}
			w.pods.set(seen)
			pod := webPod("p").Priority(1).Obj()

			state, status := w.preFilter(pod)
			require.True(t, status.IsSuccess())
			before := w.Filter(w.ctx, state, pod, w.nodeInfo("m1")).Code()
			simulated := state.Clone()
			for _, s := range tt.steps {
				if s.what == "+" {
					require.True(
						t,
						w.PreFilterExtensions().AddPod(
							w.ctx,
							simulated,
							pod,
							podInfo(t, s.pod),
							w.nodeInfo(s.node),
						).IsSuccess(),
					)
				} else {
					require.True(
						t,
						w.PreFilterExtensions().RemovePod(
							w.ctx,
							simulated,
							pod,
							podInfo(t, s.pod),
							w.nodeInfo(s.node),
						).IsSuccess(),
					)
				}
			}
			assert.Equal(t, tt.open, w.Filter(w.ctx, simulated, pod, w.nodeInfo("m1")).IsSuccess())
			assert.Equal(
				t,
				before,
				w.Filter(w.ctx, state, pod, w.nodeInfo("m1")).Code(),
				"the state that was cloned has not changed",
			)
		})
	}
}

// The scheduler adds a nominated pod only where it tries the pod's own node. The nomination may be unknown to the store
// yet.
func TestNoPodIsEvictedWhereANominatedPodHasTakenTheLastPlace(t *testing.T) {
	w := newWorld(t)
	w.setPolicy("web-on-spot", strictTwo)
	w.addPodsOn("m1", 1)
	pods := w.addPods(2)
	low := webPod("low").Label("app", "db").Priority(-1).Node("m2").Obj()
	state, _ := w.preFilter(pods[1])
	nominated := state.Clone()
	require.True(t, w.AddPod(w.ctx, nominated, pods[1], podInfo(t, pods[0]), w.nodeInfo("m1")).IsSuccess())
	require.False(t, w.Filter(w.ctx, nominated, pods[1], w.nodeInfo("m1")).IsSuccess())
	require.True(t, w.Filter(w.ctx, state, pods[1], w.nodeInfo("m2")).IsSuccess())

	dryRun := state.Clone()
	require.True(t, w.RemovePod(w.ctx, dryRun, pods[1], podInfo(t, low), w.nodeInfo("m2")).IsSuccess())
	assert.False(t, w.Filter(w.ctx, dryRun, pods[1], w.nodeInfo("m2")).IsSuccess())
	spared := dryRun.Clone()
	require.True(t, w.AddPod(w.ctx, spared, pods[1], podInfo(t, low), w.nodeInfo("m2")).IsSuccess())
	assert.Len(t, stateOf(t, state).cycle.nominated, 1, "only nominated pods")
}

func stateOf(t testing.TB, state fwk.CycleState) *preFilterState {
	s, err := readPreFilterState(state)
	require.NoError(t, err)
	return s
}

func TestDryRunsOfPreemptionLeaveTheLineAlone(t *testing.T) {
	w := newWorld(t)
	w.setPolicy("web-on-spot", strict40)
	w.addPodsOn("m1", 1)
	pod, low := w.addPods(1)[0], podInfo(t, webPod("low").Label("app", "db").Priority(-1).Node("m1").Obj())
	state, _ := w.preFilter(pod)
	for range 2 {
		require.False(t, w.Filter(w.ctx, state, pod, w.nodeInfo("m1")).IsSuccess())
	}
	for range 10 {
		dryRun := state.Clone()
		require.True(t, w.RemovePod(w.ctx, dryRun, pod, low, w.nodeInfo("m1")).IsSuccess())
		require.False(t, w.Filter(w.ctx, dryRun, pod, w.nodeInfo("m1")).IsSuccess())
	}
	assert.True(t, w.waiting.Waits(webOnSpot))
}

func TestTheReasonFollowsTheSimulation(t *testing.T) {
	w := newWorld(t)
	w.setPolicy("web-on-spot", strictTwo)
	victim, pod := w.addPodsOn("m1", 3)[0], w.addPods(1)[0]
	state, _ := w.preFilter(pod)
	assert.Contains(t, w.Filter(w.ctx, state, pod, w.nodeInfo("m1")).Message(), "3 of 2 pods")
	require.True(t, w.RemovePod(w.ctx, state, pod, podInfo(t, victim), w.nodeInfo("m1")).IsSuccess())
	assert.Contains(t, w.Filter(w.ctx, state, pod, w.nodeInfo("m1")).Message(), "2 of 2 pods")
}

// As the scheduler does where nodes have nominated pods: one state, cloned for each of the nodes at once.
func TestNodesAreFilteredConcurrently(t *testing.T) {
	w := newWorld(t)
	w.setPolicy("web-on-spot", strict40)
	w.addPodsOn("m1", 3)
	w.addPodsOn("o1", 5)
	nominated := w.addPods(1)[0]
	pod := webPod("p").Obj()
	state, _ := w.preFilter(pod)
	m1, info := w.nodeInfo("m1"), podInfo(t, nominated)

	var nodes sync.WaitGroup
	for range 100 {
		nodes.Go(func() {
			assert.True(t, w.Filter(w.ctx, state, pod, m1).IsSuccess())
			clone := state.Clone()
			assert.True(t, w.AddPod(w.ctx, clone, pod, info, m1).IsSuccess())
			assert.False(t, w.Filter(w.ctx, clone, pod, m1).IsSuccess())
		})
	}
	nodes.Wait()
}
