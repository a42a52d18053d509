package placementpolicy

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	fwk "k8s.io/kube-scheduler/framework"

	framework "github.com/placement-policy/scheduler-plugin/internal/fwktest"
)

// Two profiles may both see the last place of a group free.
func TestOnlyOneOfTwoPodsGetsTheLastPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.setPolicy("web-on-spot", strict40)
		pods := w.addPods(5)
		w.reserve(pods[0], "m1")
		first := w.filteredFor(pods[1], "m1")
		second := w.filteredFor(pods[2], "m2")

		assert.True(t, w.Reserve(w.ctx, first, pods[1], "m1").IsSuccess())
		status := w.Reserve(w.ctx, second, pods[2], "m2")
		assert.Equal(t, fwk.Unschedulable, status.Code())
		assert.Equal(
			t,
			"placement policy default/web-on-spot: group target full (2 of 2 pods; 5 qualify)",
			status.Message(),
		)
		w.Unreserve(w.ctx, second, pods[2], "m2") // as the framework does
		assert.Empty(
			t,
			w.handle.activated(),
			"as long as its cycle has not ended, after which it would wait for the back-off",
		)
		assert.Equal(t, map[string]int{pods[2].Name: 1}, w.activated(), "the other group is open")
		managed, _, _ := w.counts()
		assert.Equal(t, 2, managed)
		assert.True(t, w.filter(pods[2], "o1")[0].IsSuccess())
		assert.Empty(t, w.activatedWithin(time.Hour))
	})
}

// Or the pod would be given the same node again and again, since nothing but Filter keeps it away from there.
func TestReserveRejectsNothingWhereTheProfileDoesNotFilter(t *testing.T) {
	for name, begin := range map[string]func(*world, *v1.Pod) fwk.CycleState{
		"neither PreFilter nor Filter": func(*world, *v1.Pod) fwk.CycleState { return framework.NewCycleState() },
		"PreFilter alone": func(w *world, pod *v1.Pod) fwk.CycleState {
			state, _ := w.preFilter(pod)
			return state
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.setPolicy("web-on-spot", strict40)
			w.addPodsOn("m1", 2)
			pod := w.addPods(3)[0]
			assert.True(t, w.Reserve(w.ctx, begin(w, pod), pod, "m1").IsSuccess())
			assert.Empty(t, w.handle.activated())

			w.bind(pod, "m1")
			managed, _, _ := w.counts()
			assert.Equal(t, 3, managed)
		})
	}
}

func TestReserveRejectsAPodWhosePolicyHasBecomeStrictInTheMiddleOfTheCycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.setPolicy("web-on-spot", bestEffort40)
		pod := w.addPods(1)[0]
		state, _ := w.preFilter(pod)
		w.setPolicy("web-on-spot", strict40)
		assert.Equal(t, fwk.Unschedulable, w.Reserve(w.ctx, state, pod, "m1").Code())
		assert.Equal(t, map[string]int{pod.Name: 1}, w.activated())
	})
}

// The group is that of the node in the argument: the pod object may still have no node, or another one.
func TestReserveCountsThePodOnTheGivenNode(t *testing.T) {
	w := newWorld(t)
	w.setPolicy("web-on-spot", strict40)
	pods := w.addPods(10)
	for _, node := range []string{"m1", "o1"} {
		state, _ := w.preFilter(pods[0])
		pod := pods[0].DeepCopy()
		pod.Spec.NodeName = "o1"
		require.True(t, w.Reserve(w.ctx, state, pod, node).IsSuccess())
		managed, other, _ := w.counts()
		assert.Equal(t, node == "m1", managed == 1)
		assert.Equal(t, node == "o1", other == 1)
	}
}

func TestReserveComesBeforeThePodsFirstEvent(t *testing.T) {
	w := newWorld(t)
	w.setPolicy("web-on-spot", strict40)
	w.addPods(4)
	pod := webPod("p").Obj()
	w.reserve(pod, "m1")
	managed, _, qualifying := w.counts()
	assert.Equal(t, []int{1, 5}, []int{managed, qualifying})

	w.pods.set(pod)
	managed, _, qualifying = w.counts()
	assert.Equal(t, []int{1, 5}, []int{managed, qualifying}, "after the event")
}

// unreserve undoes the reservation, and waits until the API server has answered whether the pod is bound.
func (w *world) unreserve(pod *v1.Pod) {
	w.Unreserve(w.ctx, framework.NewCycleState(), pod, "")
	synctest.Wait()
}

func TestUnreserve(t *testing.T) {
	tests := []struct {
		name string
		// before happens before Unreserve, which is then called twice.
		before                     func(*world)
		managed, other, qualifying int
	}{
		{"undoes Reserve", func(w *world) {
			w.reserve(w.addPods(5)[0], "m1")
		}, 0, 0, 5},
		{"does nothing without Reserve", func(w *world) {
			w.addPods(5)
		}, 0, 0, 5},
		{"leaves a pod that turned out to be bound", func(w *world) {
			pod := w.addPods(5)[0]
			w.reserve(pod, "m1")
			w.bind(pod, "m1")
		}, 1, 0, 5},
		{"leaves a pod that turned out to be bound elsewhere", func(w *world) {
			pod := w.addPods(5)[0]
			w.reserve(pod, "m1")
			w.bind(pod, "o1")
		}, 0, 1, 5},
		{"brings no deleted pod back", func(w *world) {
			pod := w.addPods(5)[0]
			w.reserve(pod, "m1")
			w.pods.remove(pod)
		}, 0, 0, 4},
		{"leaves nothing of a pod that was deleted before Reserve", func(w *world) {
			pod := w.addPods(5)[0]
			w.pods.remove(pod)
			w.reserve(pod, "m1")
		}, 0, 0, 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.setPolicy("web-on-spot", strict40)
				tt.before(w)
				for range 2 {
					w.unreserve(webPod("web-0").Obj())
					managed, other, qualifying := w.counts()
					assert.Equal(t, []int{tt.managed, tt.other, tt.qualifying}, []int{managed, other, qualifying})
				}
			})
		})
	}
}

func TestReservationsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		value := func(counter metrics.CounterMetric) float64 {
			v, err := testutil.GetCounterMetricValue(counter)
			require.NoError(t, err)
			return v
		}
		counted := func() map[string]float64 {
			all := map[string]float64{}
			for outcome, counter := range counters {
				all[outcome] = value(counter)
			}
			return all
		}
		before := counted()

		w.setPolicy("web-on-spot", `{enforcementMode: Strict, `+selectors+`, policy: {targetSize: 1}}`)
		pods := w.addPods(2)
		first := w.filteredFor(pods[0], "m1")
		second := w.filteredFor(pods[1], "m1")
		require.True(t, w.Reserve(w.ctx, first, pods[0], "m1").IsSuccess())
		require.False(t, w.Reserve(w.ctx, second, pods[1], "m1").IsSuccess())
		w.reserve(pods[1], "o1")

		after := counted()
		for outcome := range after {
			after[outcome] -= before[outcome]
		}
		assert.Equal(t, map[string]float64{"reserved": 2, "rejected": 1}, after)
	})
}
