package placementpolicy

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	fwk "k8s.io/kube-scheduler/framework"

	framework "github.com/placement-policy/scheduler-plugin/internal/fwktest"
)

// Binding the pod web-0 to m1 has failed, as the scheduler saw it. After that the scheduler tries the pod again.
func TestAPodKeepsItsPlaceUntilItIsCertainThatItIsNotBound(t *testing.T) {
	for name, tc := range map[string]struct {
		pod            *v1.Pod
		err            error
		managed, other int
		tried          bool
	}{
		"it is not bound":              {pod: webPod("web-0").Obj(), tried: true},
		"it is bound":                  {pod: webPod("web-0").Node("m1").Obj(), managed: 1},
		"it is bound elsewhere":        {pod: webPod("web-0").Node("o1").Obj(), other: 1},
		"it is gone":                   {err: apierrors.NewNotFound(v1.Resource("pods"), "web-0"), tried: true},
		"another has its name":         {pod: webPod("web-0").UID("another").Node("m1").Obj(), tried: true},
		"the API server does not tell": {err: assert.AnError, managed: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.setPolicy("web-on-spot", strict40)
				pod := w.addPods(3)[0]
				w.reserve(pod, "m1")
				w.answer = func() (*v1.Pod, error) { return tc.pod, tc.err }
				w.unreserve(pod)
				managed, other, _ := w.counts()
				assert.Equal(t, []int{tc.managed, tc.other}, []int{managed, other})
				_, status := w.preFilter(pod)
				assert.Equal(t, tc.tried, status.IsSuccess(), status.Message())
			})
		})
	}
}

func TestTheAPIServerIsAskedUntilItAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.setPolicy("web-on-spot", strict40)
		pods := w.addPods(3)
		w.reserve(pods[0], "m1")
		w.keepOut(pods[1])
		asked := 0
		w.answer = func() (*v1.Pod, error) {
			if asked++; asked <= 10 {
				return nil, assert.AnError
			}
			return pods[0], nil
		}
		w.unreserve(pods[0])
		_, status := w.preFilter(pods[0])
		assert.Equal(t, fwk.UnschedulableAndUnresolvable, status.Code())
		assert.Equal(t, "binding the pod has failed, but the API server has yet to say that it is not bound", status.Message())

		assert.Empty(t, w.activatedWithin(9*confirmationRetry))
		woken := map[string]int{"web-0": 1, "web-1": 1} // to be tried again, and to take the place
		assert.Equal(t, woken, w.activatedWithin(confirmationRetry+2*wakeupDelay))
		assert.Equal(t, 11, asked)
		assert.Empty(t, w.confirmer.pending)
	})
}

func TestAPodIsTakenForNotBoundIfTheSchedulerMayNotAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.setPolicy("web-on-spot", strict40)
		pod := w.addPods(3)[0]
		w.reserve(pod, "m1")
		w.answer = func() (*v1.Pod, error) {
			return nil, apierrors.NewForbidden(v1.Resource("pods"), pod.Name, assert.AnError)
		}
		w.unreserve(pod)
		w.preFilter(pod)
		assert.Empty(t, w.activatedWithin((maxConfirmationRefusals-2)*confirmationRetry))
		assert.Equal(t, map[string]int{pod.Name: 1}, w.activatedWithin(2*confirmationRetry))
	})
}

func TestAPodThatIsBoundAfterAllIsNotTriedUntilItsEventComes(t *testing.T) {
	for name, event := range map[string]func(*world, *v1.Pod){
		"it is bound":                       func(w *world, pod *v1.Pod) { w.bind(pod, "m1") },
		"it is deleted":                     func(w *world, pod *v1.Pod) { w.pods.remove(pod) },
		"it is replaced by one of its name": func(w *world, pod *v1.Pod) { w.pods.set(webPod(pod.Name).UID("another").Obj()) },
		"it is bound, and that was known":   nil,
		"it is found deleted by a relist":   func(w *world, pod *v1.Pod) { w.pods.lose(pod) },
		"it is lost":                        func(w *world, pod *v1.Pod) { w.pods.loseAll(pod) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.setPolicy("web-on-spot", strict40)
				pod := w.addPods(3)[0]
				w.reserve(pod, "m1")
				bound := pod.DeepCopy()
				bound.Spec.NodeName = "m1"
				w.answer = func() (*v1.Pod, error) { return bound, nil }
				if event == nil {
					w.pods.set(bound)
				}
				w.unreserve(pod)
				if event != nil {
					require.Len(t, w.confirmer.pending, 1)
					_, status := w.preFilter(pod)
					require.Equal(t, fwk.UnschedulableAndUnresolvable, status.Code())
					event(w, pod)
				}
				assert.Empty(t, w.confirmer.pending)
				assert.Empty(t, w.activatedWithin(time.Minute))
			})
		})
	}
}

// A profile without PreFilter tries the pod all the same.
func TestAnAnswerDoesNotEndAReservationThatWasMadeAfterTheQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.setPolicy("web-on-spot", strict40)
		pod := w.addPods(3)[0]
		reserve := func() { require.True(t, w.Reserve(w.ctx, framework.NewCycleState(), pod, "m1").IsSuccess()) }
		answer := make(chan *v1.Pod)
		w.answer = func() (*v1.Pod, error) { return <-answer, nil }
		managedAfterAnswer := func() int {
			answer <- pod
			synctest.Wait()
			managed, _, _ := w.counts()
			return managed
		}
		reserve()
		w.unreserve(pod)
		reserve()
		assert.Equal(t, 1, managedAfterAnswer())

		w.unreserve(pod)
		reserve()
		w.Unreserve(w.ctx, framework.NewCycleState(), pod, "m1")
		assert.Equal(t, 1, managedAfterAnswer(), "to the question before")
		assert.Zero(t, managedAfterAnswer())
	})
}

// Nothing is bound, and members that wait for each other must not wait for an answer.
func TestTheTrialOfAPodGroupEndsAtOnce(t *testing.T) {
	framework.NeedPodGroups(t)
	w := newWorld(t)
	w.setPolicy("web-on-spot", strict40)
	pod := w.addPods(3)[0]
	w.reserve(pod, "m1")
	state := framework.NewCycleState()
	state.SetPodGroupSchedulingCycle(framework.NewCycleState())
	w.Unreserve(w.ctx, state, pod, "m1")
	managed, _, _ := w.counts()
	assert.Zero(t, managed)
}
