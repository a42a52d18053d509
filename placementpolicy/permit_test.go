package placementpolicy

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	framework "github.com/placement-policy/scheduler-plugin/internal/fwktest"
)

// permit passes the pod through the scheduling cycle onto the node. If plugins are named it then waits for them, as a
// pod of a gang does.
func (w *world) permit(pod *v1.Pod, node string, plugins ...string) fwk.CycleState {
	state := w.reserve(pod, node)
	status, _ := w.Permit(w.ctx, state, pod, node)
	require.True(w.t, status.IsSuccess())
	if len(plugins) > 0 {
		w.handle.waiting[pod.UID] = &waitingInPermit{plugins: plugins}
	}
	return state
}

// endWait plays the end of the wait for Permit plugins, which have allowed the pod or not.
func (w *world) endWait(pod *v1.Pod, allowed bool) {
	if allowed {
		w.handle.waiting[pod.UID].plugins = nil
	}
	delete(w.handle.waiting, pod.UID)
}

func TestTheServerIsAskedOnlyAboutPodsThatMayBeBound(t *testing.T) {
	for name, tc := range map[string]struct {
		policy string
		// fail passes the pod through a cycle that fails, and returns its state.
		fail  func(*world, *v1.Pod) fwk.CycleState
		asked bool
	}{
		"it came to bind": {strict40, func(w *world, pod *v1.Pod) fwk.CycleState { return w.permit(pod, "m1") }, true},
		"it waited for another plugin, which let it pass": {strict40, func(w *world, pod *v1.Pod) fwk.CycleState {
			state := w.permit(pod, "m1", "gang")
			w.preFilter(w.get("web-1"))
			w.endWait(pod, true)
			return state
		}, true},
		"it waited for two, and one of them rejected it": {strict40, func(w *world, pod *v1.Pod) fwk.CycleState {
			state := w.permit(pod, "m1", "gang", "quota")
			w.preFilter(w.get("web-1"))
			w.endWait(pod, false)
			return state
		}, false},
		"it was rejected before it came to the plugin's Permit": {strict40, func(w *world, pod *v1.Pod) fwk.CycleState {
			return w.reserve(pod, "m1")
		}, false},
		"BestEffort":       {bestEffort40, func(w *world, pod *v1.Pod) fwk.CycleState { return w.permit(pod, "m1") }, false},
		"no policy at all": {invalid, func(w *world, pod *v1.Pod) fwk.CycleState { return w.permit(pod, "m1") }, false},
		"the trial of a pod group": {strict40, func(w *world, pod *v1.Pod) fwk.CycleState {
			w.reserve(pod, "m1")
			state := framework.NewCycleState()
			state.InPodGroup(framework.NewCycleState())
			return state
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.setPolicy("web-on-spot", tc.policy)
				pods := w.addPods(5)
				w.permit(pods[4], "m1") // shows that the profile enables Permit
				answer, asked := make(chan *v1.Pod), false
				w.answer = func() (*v1.Pod, error) { asked = true; return <-answer, nil }

				state := tc.fail(w, pods[0])
				w.Unreserve(w.ctx, state, pods[0], "m1")
				synctest.Wait()
				assert.Equal(t, tc.asked, asked)
				assert.Equal(t, tc.asked, w.store.IsAssumed(pods[0]))
				_, status := w.preFilter(pods[0])
				if tc.asked {
					assert.Equal(t, fwk.UnschedulableAndUnresolvable, status.Code())
					assert.Equal(t, mayBeBoundMessage, status.Message())
					answer <- pods[0]
					assert.Equal(t, 1, w.activated()["web-0"], "when it is certain that it is not bound")
					_, status = w.preFilter(pods[0])
				}
				assert.Contains(t, []fwk.Code{fwk.Success, fwk.Skip}, status.Code())
			})
		})
	}
}

// Nothing tells then what became of a pod after Reserve.
func TestTheServerIsAskedWhereTheProfileLacksThePermitPoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.setPolicy("web-on-spot", strict40)
		pod := w.addPods(3)[0]
		state := w.reserve(pod, "m1")
		w.answer = func() (*v1.Pod, error) { return nil, assert.AnError }
		w.Unreserve(w.ctx, state, pod, "m1")
		synctest.Wait()
		assert.True(t, w.store.IsAssumed(pod))
	})
}

func TestAGangThatIsRejectedFreesItsPlacesAtOnce(t *testing.T) {
	w := newWorld(t)
	w.setPolicy("web-on-spot", `{enforcementMode: Strict, `+selectors+`}`)
	const size = 1000
	var states []fwk.CycleState
	gang := w.addPods(size)
	for _, pod := range gang {
		states = append(states, w.permit(pod, "m1", "gang"))
	}
	w.preFilter(w.addPods(1)[0]) // another pod's cycle
	w.answer = func() (*v1.Pod, error) { panic("the API server is asked") }
	for i, pod := range gang {
		w.endWait(pod, false)
		w.Unreserve(w.ctx, states[i], pod, "m1")
	}
	managed, _, _ := w.counts()
	assert.Zero(t, managed)
	for _, pod := range gang {
		require.False(t, w.confirmer.Holds(pod))
	}
}

// The scheduler writes a nominated node for pods that wait.
func TestPermitHasNoPodWait(t *testing.T) {
	w := newWorld(t)
	w.setPolicy("web-on-spot", strict40)
	for _, pod := range []*v1.Pod{w.addPods(3)[0], webPod("db").Label("app", "db").Obj()} {
		status, timeout := w.Permit(w.ctx, framework.NewCycleState(), pod, "m1")
		assert.Equal(t, fwk.Success, status.Code())
		assert.Zero(t, timeout)
	}
}

func BenchmarkPermitAndUnreserve(b *testing.B) {
	for name, pod := range map[string]*v1.Pod{
		"ungoverned": webPod("db").Label("app", "db").Obj(),
		"governed":   webPod("web").Obj(),
	} {
		b.Run(name, func(b *testing.B) {
			w := newWorld(b)
			w.setPolicy("web-on-spot", bestEffort40)
			state := framework.NewCycleState()
			b.ReportAllocs()
			for b.Loop() {
				_ = w.store.AssumePod(pod, spotNode("m1"))
				w.Permit(w.ctx, state, pod, "m1")
				w.Unreserve(w.ctx, state, pod, "m1")
			}
		})
	}
}
