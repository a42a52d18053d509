package placementpolicy

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"

	framework "github.com/placement-policy/scheduler-plugin/internal/fwktest"
	st "github.com/placement-policy/scheduler-plugin/internal/fwktest"
)

const (
	strictTwo = `{enforcementMode: Strict, ` + selectors + `, policy: {targetSize: 2}}`
	heavier   = `{enforcementMode: Strict, ` + selectors + `, weight: 3}`
)

// activated returns how often the pods were activated after what has happened so far. The clock is a fake one.
func (w *world) activated() map[string]int {
	return w.activatedWithin(100 * time.Millisecond)
}

// activatedWithin returns how often each pod is activated in this time.
func (w *world) activatedWithin(duration time.Duration) map[string]int {
	time.Sleep(duration)
	synctest.Wait()
	return w.handle.activated()
}

// keepOut passes the pod through a cycle that ends because the target group is full.
func (w *world) keepOut(pod *v1.Pod) {
	require.False(w.t, w.filter(pod, "m1")[0].IsSuccess())
}

// Four of a cohort's five pods are placed: web-0 and web-1 in the target group, where web-1 is not bound yet, web-2 and
// web-3 in the other one. The fifth waits: the target group is full, and the nodes of the other group have no room.
// What happens then wakes it, or does not.
func TestWhatWakesAWaitingPod(t *testing.T) {
	onM := func(w *world) *v1.Pod { return w.get("web-0") }
	onO := func(w *world) *v1.Pod { return w.get("web-2") }
	waiting := func(w *world) *v1.Pod { return w.get("web-4") }
	edit := func(w *world, pod *v1.Pod, change func(*v1.Pod)) {
		pod = pod.DeepCopy()
		change(pod)
		w.pods.set(pod)
	}
	tests := []struct {
		name  string
		spec  string // default: strict40
		event func(*world)
		wakes bool
	}{
		{name: "a pod of the target group is deleted", spec: strictTwo, wakes: true, event: func(w *world) { w.pods.remove(onM(w)) }},
		{name: "a pod of the target group is found deleted by a relist", spec: strictTwo, wakes: true, event: func(w *world) { w.pods.lose(onM(w)) }},
		{name: "a pod of the target group terminates", spec: strictTwo, wakes: true, event: func(w *world) {
			w.pods.set(terminating(onM(w)))
		}},
		{name: "a pod of the target group succeeds", spec: strictTwo, wakes: true, event: func(w *world) {
			edit(w, onM(w), func(pod *v1.Pod) { pod.Status.Phase = v1.PodSucceeded })
		}},
		{name: "a pod of the target group is relabelled", spec: strictTwo, wakes: true, event: func(w *world) {
			edit(w, onM(w), func(pod *v1.Pod) { pod.Labels = nil })
		}},
		{name: "a pod of the other group is deleted: fewer belong in the target group", event: func(w *world) { w.pods.remove(onO(w)) }},

		{name: "so many pods are added that more belong in the target group", wakes: true, event: func(w *world) { w.addPods(3) }},
		{name: "not as many pods are added", event: func(w *world) { w.addPods(2) }},
		{name: "pods of another cohort are added", event: func(w *world) {
			for i := range 10 {
				w.pods.set(webPod(fmt.Sprint("new-", i)).Label("pod-template-hash", "new").Obj())
			}
		}},
		{name: "unrelated pods come and go", event: func(w *world) {
			pod := st.MakePod().Namespace("default").Name("db").UID("db").Label("app", "db").Obj()
			w.pods.set(pod)
			w.reserve(pod, "m1")
			w.bind(pod, "m1")
			w.pods.remove(pod)
		}},
		{name: "a pod reports its status", event: func(w *world) {
			edit(w, onM(w), func(pod *v1.Pod) { pod.Status.Phase = v1.PodRunning; pod.ResourceVersion = "2" })
		}},

		{name: "another pod is placed, and the group stays full", event: func(w *world) { w.reserve(w.addPods(1)[0], "o1") }},
		{name: "the placement of a pod in the target group is undone", wakes: true, event: func(w *world) {
			w.unreserve(w.get("web-1"))
		}},
		{name: "a pod is bound to a node of the other group, not to the one that was reserved", wakes: true, event: func(w *world) {
			w.bind(w.get("web-1"), "o1")
		}},

		{name: "the workload grows", wakes: true, event: func(w *world) { w.replicaSets.set(replicaSet("rs", 8)) }},
		{name: "the workload grows too little", event: func(w *world) { w.replicaSets.set(replicaSet("rs", 7)) }},

		{name: "the policy wants more pods in the target group", wakes: true, event: func(w *world) { w.setPolicy("web-on-spot", strict80) }},
		{name: "the policy wants fewer pods in the target group", event: func(w *world) { w.setPolicy("web-on-spot", strict0) }},
		{name: "the policy becomes BestEffort", wakes: true, event: func(w *world) { w.setPolicy("web-on-spot", bestEffort40) }},
		{name: "the policy becomes invalid", wakes: true, event: func(w *world) { w.setPolicy("web-on-spot", invalid) }},
		{name: "the policy is removed", wakes: true, event: func(w *world) { w.removePolicy("web-on-spot") }},
		{name: "a heavier policy comes to govern the pod", wakes: true, event: func(w *world) { w.setPolicy("heavier", heavier) }},
		{name: "the policy gets an annotation", event: func(w *world) {
			policy := policyObject(w.t, "web-on-spot", strict40)
			policy.SetAnnotations(map[string]string{"a": "b"})
			w.policies.set(policy)
		}},

		{name: "a node with pods leaves the target group", wakes: true, event: func(w *world) { w.nodes.set(onDemandNode("m1")) }},
		{name: "a node with pods is deleted", wakes: true, event: func(w *world) { w.nodes.remove(spotNode("m1")) }},
		{name: "a node with pods joins the target group", event: func(w *world) { w.nodes.set(spotNode("o1")) }},
		{name: "a node reports its status", event: func(w *world) {
			node := spotNode("m1")
			node.Status.Phase = v1.NodeRunning
			w.nodes.set(node)
		}},

		{name: "its labels change: no policy governs it", wakes: true, event: func(w *world) {
			edit(w, waiting(w), func(pod *v1.Pod) { pod.Labels = nil })
		}},
		{name: "its labels change: it is of a cohort where the target group is open", wakes: true, event: func(w *world) {
			for i := range 4 {
				w.pods.set(webPod(fmt.Sprint("new-", i)).Label("pod-template-hash", "new").Obj())
			}
			edit(w, waiting(w), func(pod *v1.Pod) { pod.Labels["pod-template-hash"] = "new" })
		}},
		{name: "its labels change: it is of a cohort where the target group is full", event: func(w *world) {
			edit(w, waiting(w), func(pod *v1.Pod) { pod.Labels["pod-template-hash"] = "new" })
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				spec := strict40
				if tt.spec != "" {
					spec = tt.spec
				}
				w.setPolicy("web-on-spot", spec)
				pods := w.addPods(5)
				w.bind(pods[0], "m1")
				w.reserve(pods[1], "m1")
				w.bind(pods[2], "o1")
				w.bind(pods[3], "o1")
				w.keepOut(pods[4])
				require.Empty(t, w.activated())

				tt.event(w)
				want := map[string]int{}
				if tt.wakes {
					want["web-4"] = 1
				}
				assert.Equal(t, want, w.activated())
			})
		})
	}
}

// What changes after the decision was taken and before the pod is noted tells nobody of that pod.
func TestAChangeInTheMiddleOfACycleWakesThePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.setPolicy("web-on-spot", strict40)
		pod := w.addPods(1)[0]
		state, _ := w.preFilter(pod)
		w.addPods(4)
		require.False(t, w.Filter(w.ctx, state, pod, w.nodeInfo("m1")).IsSuccess())
		assert.Equal(t, map[string]int{pod.Name: 1}, w.activated())
	})
}

func TestABurstOfChangesWakesAPodOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.setPolicy("web-on-spot", strict40)
		pod := w.addPods(1)[0]
		w.keepOut(pod)
		w.addPods(1000)
		assert.Equal(t, map[string]int{pod.Name: 1}, w.activated())
	})
}

// A pod that is just evicting several others is held back by the scheduler's queue until the last of them is gone.
func TestAPodThatIsNotTriedIsWokenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.setPolicy("web-on-spot", strict40)
		pod := w.addPods(1)[0]
		w.keepOut(pod)
		w.addPods(4)
		require.Equal(t, map[string]int{pod.Name: 1}, w.activated())
		assert.Equal(t, map[string]int{pod.Name: 1}, w.activatedWithin(time.Second))
	})
}

// The scheduler nominates a pod in memory first. Until the pod's event comes, the store does not count it.
func TestAPodThatYieldsToANominatedPodIsWokenWhenThatOneIsPlaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.setPolicy("web-on-spot", strict40)
		pods := w.addPods(3)
		nominated, pod := pods[0], pods[1]
		state, _ := w.preFilter(pod)
		require.True(t, w.AddPod(w.ctx, state, pod, podInfo(t, nominated), w.nodeInfo("m1")).IsSuccess())
		require.False(t, w.Filter(w.ctx, state, pod, w.nodeInfo("m1")).IsSuccess())
		require.Empty(t, w.activated(), "as long as nothing changes")

		w.reserve(nominated, "o1")
		assert.Equal(t, map[string]int{pod.Name: 1}, w.activated())
	})
}

// The cycle of a pod group reserves a node for each member in turn. If one finds none, it undoes all: for those who
// wait, nothing has changed then.
func TestAPodGroupIsWokenByMorePlacesThanItHad(t *testing.T) {
	framework.NeedPodGroups(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.setPolicy("web-on-spot", strict40)
		group := framework.NewCycleState()
		var states []fwk.CycleState
		members := w.addPods(5)
		for i, pod := range members {
			state := framework.NewCycleState()
			state.InPodGroup(group)
			_, status := w.PreFilter(w.ctx, state, pod, nil)
			require.True(t, status.IsSuccess())
			if i == 2 { // o1 and o2 have no room for it, and two are on m1
				require.False(t, w.Filter(w.ctx, state, pod, w.nodeInfo("m1")).IsSuccess())
				break
			}
			require.True(t, w.Reserve(w.ctx, state, pod, "m1").IsSuccess())
			states = append(states, state)
		}
		for i, state := range states {
			w.Unreserve(w.ctx, state, members[i], "m1")
		}
		assert.Empty(t, w.activated())

		w.setPolicy("web-on-spot", strict80)
		assert.Equal(t, map[string]int{members[2].Name: 1}, w.activated())
	})
}

// Whether a group could evict pods is tried out with a PreFilter that finds them gone from the snapshot.
func TestAPodGroupThatEvictsIsWokenByThat(t *testing.T) {
	framework.NeedPodGroups(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.setPolicy("web-on-spot", `{enforcementMode: Strict, `+selectors+`, policy: {targetSize: 1}}`)
		low := w.addPodsOn("m1", 1)[0]
		high := webPod("high").Priority(1).Obj()
		w.pods.set(high)
		attempt := func(inSnapshot ...*v1.Pod) *fwk.Status {
			w.handle.snapshot = framework.NewSnapshot(inSnapshot, []*v1.Node{spotNode("m1")})
			state := framework.NewCycleState()
			state.InPodGroup(framework.NewCycleState())
			_, status := w.PreFilter(w.ctx, state, high, nil)
			require.True(t, status.IsSuccess())
			return w.Filter(w.ctx, state, high, w.nodeInfo("m1"))
		}
		require.False(t, attempt(low).IsSuccess())
		require.True(t, attempt().IsSuccess())

		w.pods.remove(low)
		assert.Equal(t, map[string]int{high.Name: 1}, w.activated())
	})
}

// The scheduler may try a pod before its first event has reached the plugin. Nothing then ties the pod to the policy
// that governs it meanwhile.
func TestAPodThatIsTriedBeforeItsFirstEventIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.setPolicy("web-on-spot", strict40)
		pod := webPod("p").Obj()
		require.NoError(t, w.pods.GetIndexer().Add(pod))
		w.keepOut(pod)
		w.setPolicy("heavier", heavier)
		w.pods.handler.OnAdd(pod, false)
		assert.Equal(t, map[string]int{pod.Name: 1}, w.activated())
	})
}

// terminating is a pod whose deletion waits, for a finalizer say.
func terminating(pod *v1.Pod) *v1.Pod {
	pod = pod.DeepCopy()
	pod.DeletionTimestamp = ptr.To(pod.CreationTimestamp)
	return pod
}

func TestNothingIsKeptOfAPodThatWaitsNoMore(t *testing.T) {
	tests := []struct {
		name string
		end  func(w *world, pod *v1.Pod)
	}{
		{"it is placed", func(w *world, pod *v1.Pod) {
			state, _ := w.preFilter(pod)
			w.Filter(w.ctx, state, pod, w.nodeInfo("m1"))
			w.Reserve(w.ctx, state, pod, "o1")
		}},
		{"another scheduler binds it", func(w *world, pod *v1.Pod) { w.bind(pod, "m1") }},
		{"it is deleted", func(w *world, pod *v1.Pod) { w.pods.remove(pod) }},
		{"it is being deleted", func(w *world, pod *v1.Pod) { w.pods.set(terminating(pod)) }},
		{"it is found deleted by a relist", func(w *world, pod *v1.Pod) { w.pods.lose(pod) }},
		{"it is lost", func(w *world, pod *v1.Pod) { w.pods.loseAll(pod) }},
		{"it is replaced by another one of its name", func(w *world, pod *v1.Pod) { w.pods.set(webPod(pod.Name).UID("another").Obj()) }},
		{"it is deleted in the middle of its cycle", func(w *world, pod *v1.Pod) {
			state, _ := w.preFilter(pod)
			w.pods.remove(pod)
			w.Filter(w.ctx, state, pod, w.nodeInfo("m1"))
		}},
		{"its deletion begins in the middle of its cycle", func(w *world, pod *v1.Pod) {
			state, _ := w.preFilter(pod)
			w.pods.set(terminating(pod))
			w.Filter(w.ctx, state, pod, w.nodeInfo("m1"))
		}},
		{"another scheduler binds it in the middle of its cycle", func(w *world, pod *v1.Pod) {
			state, _ := w.preFilter(pod)
			w.bind(pod, "m1")
			w.Filter(w.ctx, state, pod, w.nodeInfo("m1"))
		}},
		{"it is let in and tried again", func(w *world, pod *v1.Pod) {
			w.setPolicy("web-on-spot", bestEffort40)
			w.activated()
			w.preFilter(pod)
		}},
		{"it is tried again, and kept out of nowhere", func(w *world, pod *v1.Pod) { w.filter(pod, "o1") }},
		{"it is kept out by another policy, which is removed", func(w *world, pod *v1.Pod) {
			w.setPolicy("heavier", `{enforcementMode: Strict, `+selectors+`, weight: 3, policy: {targetSize: 0}}`)
			w.Filter(w.ctx, framework.NewCycleState(), pod, w.nodeInfo("m1"))
			w.removePolicy("heavier")
			w.activated()
			w.preFilter(pod)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.setPolicy("web-on-spot", strict40)
				pod := w.addPods(1)[0]
				w.keepOut(pod)
				require.True(t, w.waiting.Waits(webOnSpot))
				tt.end(w, pod)
				for _, policy := range []string{"web-on-spot", "heavier"} {
					assert.False(t, w.waiting.Waits(types.NamespacedName{Namespace: "default", Name: policy}), policy)
				}
				assert.Empty(t, w.activatedWithin(time.Hour))
			})
		})
	}
}
