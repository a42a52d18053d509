package confirmer

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

// world is a store with a Strict policy of 40% for all pods, the nodes m of the target group and o of the other one,
// and an API server that the test plays.
type world struct {
	*Confirmer
	t      *testing.T
	store  *policystore.Store
	answer func(name string) (*v1.Pod, error)

	mu    sync.Mutex // guards the two below
	asked []time.Time
	tried []string
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, store: policystore.New()}
	w.Confirmer = New(w.store,
		func(_ context.Context, _, name string) (*v1.Pod, error) {
			w.mu.Lock()
			w.asked = append(w.asked, time.Now())
			w.mu.Unlock()
			return w.answer(name)
		},
		func(_ context.Context, pods ...*v1.Pod) {
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, pod := range pods {
				w.tried = append(w.tried, pod.Name)
			}
		})
	require.NoError(t, w.store.SetPolicy(policystore.Policy{
		NamespacedName:  types.NamespacedName{Namespace: "default", Name: "policy"},
		EnforcementMode: policystore.Strict,
		PodSelector:     &metav1.LabelSelector{},
		NodeSelector:    &metav1.LabelSelector{MatchLabels: map[string]string{"spot": "true"}},
		TargetSize:      ptr.To(intstr.FromString("40%")),
	}))
	w.store.AddNode(node("m"))
	w.store.AddNode(node("o"))
	go w.Run(t.Context())
	return w
}

func node(name string) *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"spot": fmt.Sprint(name == "m")}},
	}
}

func newPod(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
}

func boundTo(pod *v1.Pod, node string) *v1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.NodeName = node
	return pod
}

// reserved adds n pods, of which all are reserved for m as far as the policy lets them, and returns these.
func (w *world) reserved(n int) []*v1.Pod {
	var pods []*v1.Pod
	for i := range n {
		w.store.AddPod(newPod(fmt.Sprint("web-", i)))
	}
	for i := range n * 40 / 100 {
		pods = append(pods, newPod(fmt.Sprint("web-", i)))
		require.NoError(w.t, w.store.AssumePod(pods[i], node("m")))
	}
	return pods
}

// placed returns how many pods the store counts in the target and in the other group.
func (w *world) placed() [2]int {
	d, _ := w.store.Decide(newPod("another"))
	return [2]int{d.Placed(d.GroupOf(node("m").Labels)), d.Placed(d.GroupOf(node("o").Labels))}
}

func (w *world) doubtful() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Confirmer.mu.Lock()
	defer w.Confirmer.mu.Unlock()
	return len(w.doubts)
}

func (w *world) triedPods() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tried
}

func (w *world) questions() int {
	return len(w.askedAt())
}

// askedAt returns when the API server was asked.
func (w *world) askedAt() []time.Time {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked
}

func TestAPodKeepsItsPlaceUntilItIsCertainThatItIsNotBound(t *testing.T) {
	for name, tc := range map[string]struct {
		pod    *v1.Pod
		err    error
		placed [2]int
		tried  bool
	}{
		"it is not bound":                     {pod: newPod("web-0"), tried: true},
		"it is bound":                         {pod: boundTo(newPod("web-0"), "m"), placed: [2]int{1, 0}},
		"another scheduler has bound it":      {pod: boundTo(newPod("web-0"), "o"), placed: [2]int{0, 1}},
		"it is gone":                          {err: apierrors.NewNotFound(v1.Resource("pods"), "web-0"), tried: true},
		"the API server does not tell":        {err: assert.AnError, placed: [2]int{1, 0}},
		"the API server forbids the question": {err: apierrors.NewForbidden(v1.Resource("pods"), "web-0", assert.AnError), placed: [2]int{1, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				answers := make(chan struct{})
				w.answer = func(string) (*v1.Pod, error) {
					<-answers
					return tc.pod, tc.err
				}
				pod := w.reserved(3)[0]
				w.Add(pod)
				assert.True(t, w.Holds(pod), "before the answer")
				close(answers)
				synctest.Wait()
				assert.Equal(t, tc.placed, w.placed())
				assert.Equal(t, tc.tried, len(w.triedPods()) == 1)
				assert.Equal(t, !tc.tried, w.Holds(pod))
			})
		})
	}
}

func TestThePodOfAnotherUIDTellsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		again := boundTo(newPod("web-0"), "m")
		again.UID = "again"
		w.answer = func(string) (*v1.Pod, error) { return again, nil }
		w.Add(w.reserved(3)[0])
		assert.False(t, w.Holds(again))
		synctest.Wait()
		assert.Zero(t, w.placed())
	})
}

func TestAPodThatWasNotHeldBackIsNotTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.answer = func(name string) (*v1.Pod, error) { return newPod(name), nil }
		w.Add(w.reserved(3)[0])
		synctest.Wait()
		assert.Zero(t, w.placed())
		assert.Empty(t, w.triedPods())
	})
}

// Of a pod that is gone a late answer makes no record, which nobody would remove.
func TestNothingIsLeftOfAPodThatIsDeletedWhileTheServerIsAsked(t *testing.T) {
	nameAlone := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-0"}}
	for name, deleted := range map[string]func(w *world, pod *v1.Pod){
		"the confirmer is told first":                  func(w *world, pod *v1.Pod) { w.Remove(pod); w.store.RemovePod(pod.UID) },
		"the event comes without the object":           func(w *world, pod *v1.Pod) { w.Remove(nameAlone); w.store.RemovePod(pod.UID) },
		"the doubt comes up between the two":           func(w *world, pod *v1.Pod) { w.Remove(pod); w.Add(pod); w.store.RemovePod(pod.UID) },
		"the store is told, and the confirmer not yet": func(w *world, pod *v1.Pod) { w.store.RemovePod(pod.UID) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				answer := make(chan struct{})
				w.answer = func(name string) (*v1.Pod, error) { <-answer; return boundTo(newPod(name), "m"), nil }
				pod := w.reserved(3)[0]
				w.Add(pod)
				synctest.Wait()
				deleted(w, pod)
				close(answer)
				synctest.Wait()
				assert.Zero(t, w.placed())
				assert.Zero(t, w.doubtful())
			})
		})
	}
}

func TestAPodThatIsShownAsBoundWhileTheServerIsAskedStaysCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		answer := make(chan struct{})
		w.answer = func(name string) (*v1.Pod, error) { <-answer; return newPod(name), nil } // before the bind was stored
		pod := w.reserved(3)[0]
		w.Add(pod)
		synctest.Wait()
		w.store.UpdatePod(pod, boundTo(pod, "o"))
		w.Remove(pod)
		close(answer)
		synctest.Wait()
		assert.Equal(t, [2]int{0, 1}, w.placed())
		assert.Zero(t, w.doubtful())
	})
}

func TestAPodThatIsBoundIsHeldUntilItsEventComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.answer = func(name string) (*v1.Pod, error) { return boundTo(newPod(name), "m"), nil }
		pod := w.reserved(3)[0]
		w.Add(pod)
		time.Sleep(time.Hour)
		assert.True(t, w.Holds(pod))
		assert.Equal(t, 1, w.questions())
		w.store.UpdatePod(pod, boundTo(pod, "m"))
		w.Remove(pod)
		assert.False(t, w.Holds(pod))
		assert.Equal(t, [2]int{1, 0}, w.placed())
	})
}

func TestAnAnswerDoesNotEndAReservationThatWasMadeAfterTheQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		answer := make(chan struct{})
		w.answer = func(name string) (*v1.Pod, error) { <-answer; return newPod(name), nil }
		pod := w.reserved(3)[0]
		again := func() {
			w.Remove(pod)
			require.NoError(t, w.store.AssumePod(pod, node("m")))
		}
		w.Add(pod)
		synctest.Wait()
		again()
		w.Add(pod) // a doubt about the new one
		answer <- struct{}{}
		synctest.Wait()
		assert.Equal(t, [2]int{1, 0}, w.placed(), "after the answer to the first question")
		answer <- struct{}{}
		synctest.Wait()
		assert.Zero(t, w.placed())
	})
}

func TestSeveralQuestionsAreAskedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.answer = func(name string) (*v1.Pod, error) {
			time.Sleep(time.Second)
			return newPod(name), nil
		}
		for _, pod := range w.reserved(10 * askers) {
			w.Add(pod)
		}
		time.Sleep(4500 * time.Millisecond)
		assert.Zero(t, w.placed())
	})
}

func TestAServerThatFailsIsAskedEverMoreSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		up := time.Now().Add(10 * time.Minute)
		w.answer = func(name string) (*v1.Pod, error) {
			if time.Now().Before(up) {
				return nil, apierrors.NewInternalError(assert.AnError)
			}
			return newPod(name), nil
		}
		pod := w.reserved(3)[0]
		w.Add(pod)
		w.Holds(pod)
		time.Sleep(time.Hour)
		var gaps []time.Duration
		asked := w.askedAt()
		for i := range asked[1:7] {
			gaps = append(gaps, asked[i+1].Sub(asked[i]))
		}
		assert.Equal(t, []time.Duration{1e9, 2e9, 4e9, 8e9, 16e9, 32e9}, gaps)
		assert.Less(t, asked[len(asked)-1].Sub(up), maxRetry)
		assert.Equal(t, []string{"web-0"}, w.triedPods())

		up = time.Now().Add(time.Hour)
		require.NoError(t, w.store.AssumePod(pod, node("m")))
		w.Add(pod)
		time.Sleep(1500 * time.Millisecond)
		assert.Equal(t, len(asked)+2, w.questions(), "a new doubt begins anew")
	})
}

func TestManyDoubtsAreNoBurdenForAServerThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.answer = func(string) (*v1.Pod, error) { return nil, apierrors.NewInternalError(assert.AnError) }
		const pods = 1000
		for _, pod := range w.reserved(pods * 100 / 40) {
			w.Add(pod)
		}
		time.Sleep(10 * time.Second)
		assert.LessOrEqual(t, w.questions(), pods+retryBurst+11*retryQPS)
		time.Sleep(time.Hour)
		before := w.questions()
		time.Sleep(time.Minute)
		assert.LessOrEqual(t, w.questions()-before, 61*retryQPS)
		assert.Equal(t, pods, w.doubtful())
	})
}

func TestAPodIsTakenForNotBoundIfTheSchedulerMayNotAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.answer = func(string) (*v1.Pod, error) {
			return nil, apierrors.NewForbidden(v1.Resource("pods"), "web-0", assert.AnError)
		}
		pod := w.reserved(3)[0]
		w.Add(pod)
		w.Holds(pod)
		time.Sleep(time.Minute)
		assert.Equal(t, maxRefusals, w.questions())
		assert.Zero(t, w.placed())
		assert.Equal(t, []string{"web-0"}, w.triedPods())
		assert.Zero(t, w.doubtful())
	})
}
