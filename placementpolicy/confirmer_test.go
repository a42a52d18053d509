package placementpolicy

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// Binding the pod web-0 to m1 has failed, as the scheduler saw it.
func TestAPodKeepsItsPlaceUntilItIsCertainThatItIsNotBound(t *testing.T) {
	notFound := apierrors.NewNotFound(v1.Resource("pods"), "web-0")
	for name, tc := range map[string]struct {
		pod  *v1.Pod
		err  error
		kept bool
	}{
		"it is not bound":              {pod: webPod("web-0").Obj()},
		"it is bound":                  {pod: webPod("web-0").Node("m1").Obj(), kept: true},
		"it is bound elsewhere":        {pod: webPod("web-0").Node("o1").Obj(), kept: true}, // until its event comes
		"it is gone":                   {err: notFound},
		"another has its name":         {pod: webPod("web-0").UID("another").Node("m1").Obj()},
		"the API server does not tell": {err: assert.AnError, kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.setPolicy("web-on-spot", strict40)
				pods := w.addPods(3)
				w.reserve(pods[0], "m1")
				w.answer = func() (*v1.Pod, error) { return tc.pod, tc.err }
				w.unreserve(pods[0])
				assert.Equal(t, !tc.kept, w.filter(pods[1], "m1")[0].IsSuccess())
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
		assert.Empty(t, w.activatedWithin(9*confirmationRetry))
		assert.Equal(t, map[string]int{pods[1].Name: 1}, w.activatedWithin(2*confirmationRetry))
		assert.Empty(t, w.activatedWithin(time.Minute))
		assert.Equal(t, 11, asked)
		assert.Empty(t, w.confirmer.pending)
	})
}

func TestAnAnswerDoesNotEndAReservationThatWasMadeAfterTheQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.setPolicy("web-on-spot", strict40)
		pod := w.addPods(3)[0]
		w.reserve(pod, "m1")
		answer := make(chan *v1.Pod)
		w.answer = func() (*v1.Pod, error) { return <-answer, nil }
		w.unreserve(pod)
		w.reserve(pod, "m1")
		answer <- pod
		synctest.Wait()
		managed, _, _ := w.counts()
		assert.Equal(t, 1, managed)

		w.unreserve(pod)
		w.reserve(pod, "m1")
		w.Unreserve(w.ctx, framework.NewCycleState(), pod, "m1")
		answer <- pod // to the question before
		synctest.Wait()
		managed, _, _ = w.counts()
		require.Equal(t, 1, managed)
		answer <- pod
		synctest.Wait()
		managed, _, _ = w.counts()
		assert.Zero(t, managed)
	})
}

// Nothing is bound, and members that wait for each other must not wait for an answer.
func TestTheTrialOfAPodGroupEndsAtOnce(t *testing.T) {
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
