package waiting

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

// Six of ten pods are on o, which holds all that belong there; m has no room for the others.
func TestWaitingPodsFollowThePolicyThatGovernsThem(t *testing.T) {
	type test struct {
		name string
		// replace has another policy govern the waiting pods, which still keeps them out.
		replace func(w *world, pods []*v1.Pod)
		// open has it let two of them in.
		open func(w *world)
	}
	lessOf := func(name string) func(*world) { return func(w *world) { w.set(strict(name, 10, "20%")) } }
	for _, tt := range []test{
		{"a heavier one comes", func(w *world, _ []*v1.Pod) { w.set(strict("b", 10, "40%")) }, lessOf("b")},
		{"a heavier one comes, and the old one is removed", func(w *world, _ []*v1.Pod) {
			w.set(strict("b", 10, "40%"))
			w.store.RemovePolicy(policyKey("a"))
		}, lessOf("b")},
		{"it gets another name", func(w *world, _ []*v1.Pod) {
			w.store.RemovePolicy(policyKey("a"))
			w.set(strict("b", 0, "40%"))
		}, lessOf("b")},
		{"it becomes lighter than another one", func(w *world, _ []*v1.Pod) {
			w.set(strict("a", 5, "40%"))
			w.set(strict("b", 2, "40%"))
			w.set(strict("a", 1, "40%"))
		}, lessOf("b")},
		{"it becomes invalid", func(w *world, _ []*v1.Pod) {
			w.set(strict("b", 0, "40%"))
			w.store.RejectPolicy(policyKey("a"), assert.AnError)
		}, lessOf("b")},
		{"the second one in a row comes", func(w *world, _ []*v1.Pod) {
			w.set(strict("b", 10, "40%"))
			time.Sleep(soon)
			w.set(strict("c", 20, "40%"))
		}, func(w *world) { w.set(strict("c", 20, "20%")) }},
		{"the old one governs again", func(w *world, _ []*v1.Pod) {
			w.set(strict("b", 10, "40%"))
			time.Sleep(soon)
			w.store.RemovePolicy(policyKey("b"))
		}, func(w *world) { w.set(strict("a", 0, "20%")) }},
		{"the pods are relabelled", func(w *world, pods []*v1.Pod) {
			b := strict("b", 0, "40%")
			b.PodSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "new"}}
			w.set(b)
			for _, pod := range pods {
				w.change(pod, func(pod *v1.Pod) { pod.Labels = map[string]string{"app": "new"} })
			}
		}, func(w *world) {
			b := strict("b", 0, "20%")
			b.PodSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "new"}}
			w.set(b)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.set(strict("a", 0, "40%"))
				running := w.addPodsOn("o", 6)
				pods := w.addPods(4)
				w.keepOut(pods...)
				tt.replace(w, append(running, pods...))
				w.keepOutNamed(w.triedWithin(soon)) // those that were let in for a moment
				require.Empty(t, w.triedWithin(time.Hour))
				tt.open(w)
				assert.Equal(t, map[string]int{"web-6": 1, "web-7": 1}, w.triedWithin(soon))
			})
		})
	}
}

// What comes between the decision and Add tells nobody of that pod.
func TestAPodThatIsAddedLateIsNotForgotten(t *testing.T) {
	for name, between := range map[string]func(*world){
		"its group has opened":      func(w *world) { w.set(strict("a", 0, "20%")) },
		"another policy governs it": func(w *world) { w.set(strict("b", 10, "20%")) },
		"no policy governs it":      func(w *world) { w.store.RemovePolicy(policyKey("a")) },
		"another one governs it, which opens when the line has been looked through": func(w *world) {
			w.set(strict("b", 10, "40%"))
			time.AfterFunc(10*soon, func() { w.set(strict("b", 10, "20%")) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.set(strict("a", 0, "40%"))
				w.addPodsOn("o", 6)
				pod := w.addPods(4)[0]
				decision, _ := w.store.Decide(pod)
				between(w)
				w.Add(Pod{Pod: pod, Decision: decision})
				assert.Equal(t, map[string]int{"web-6": 1}, w.triedWithin(20*soon))
			})
		})
	}
}

func TestAPodThatWasTriedBeforeItsFirstEventIsReconsidered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.set(strict("a", 0, "40%"))
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p", Labels: map[string]string{"app": "web"}}}
		require.NoError(t, w.lister.Add(pod))
		w.keepOut(pod)
		w.set(strict("b", 10, "100%"))
		require.Empty(t, w.triedWithin(time.Second), "nothing ties the pod to the policy yet")
		w.show(pod)
		w.Reconsider(pod)
		assert.Equal(t, map[string]int{"p": 1}, w.triedWithin(soon))
	})
}

func TestNothingIsKeptOfAPodThatIsGone(t *testing.T) {
	for name, end := range map[string]func(*world, *v1.Pod){
		"it is placed":                  func(w *world, pod *v1.Pod) { w.Tried(pod); w.Remove(pod) },
		"it is bound":                   func(w *world, pod *v1.Pod) { w.bind(pod, "m") },
		"it is deleted":                 func(w *world, pod *v1.Pod) { w.remove(pod) },
		"it is deleted after its cycle": func(w *world, pod *v1.Pod) { w.Tried(pod); w.remove(pod) },
		"its delete event has no object": func(w *world, pod *v1.Pod) {
			w.Remove(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}})
		},
		"it was deleted before it was added": func(w *world, pod *v1.Pod) { w.remove(pod); w.keepOut(pod) },
		"it was bound before it was added":   func(w *world, pod *v1.Pod) { w.bind(pod, "m"); w.keepOut(pod) },
		"another one has its name":           func(w *world, pod *v1.Pod) { w.change(pod, func(pod *v1.Pod) { pod.UID = "new" }); w.Remove(pod) },
		"it is deleted when it is to be tried": func(w *world, pod *v1.Pod) {
			w.set(strict("a", 0, "100%"))
			w.triedWithin(10 * time.Second)
			w.remove(pod)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.set(strict("a", 0, "40%"))
				pod := w.addPods(1)[0]
				w.keepOut(pod)
				require.Len(t, w.all, 1)
				end(w, pod)
				assert.Empty(t, w.all)
				assert.Empty(t, w.waits)
				assert.Zero(t, w.backoff.NumRequeues(pod.UID))
				assert.Zero(t, w.untried.NumRequeues(pod.UID))
				assert.Empty(t, w.triedWithin(time.Hour))
			})
		})
	}
}

func TestWhoWaitsForWhomIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.set(strict("a", 0, "40%"))
		w.keepOut(w.addPods(1)...)
		pods := w.addPods(1)
		for range 3 {
			w.keepOut(pods...)
		}
		assert.Equal(t, []string{"a"}, w.begins)
		assert.True(t, w.Waits(policyKey("a")))
		assert.False(t, w.Waits(policyKey("b")))
		w.set(strict("b", 10, "40%"))
		w.triedWithin(soon)
		assert.Equal(t, []string{"a", "b"}, w.begins)
		assert.False(t, w.Waits(policyKey("a")))
		assert.True(t, w.Waits(policyKey("b")))
		w.store.RemovePolicy(policyKey("b"))
		w.store.RemovePolicy(policyKey("a"))
		w.triedWithin(soon)
		assert.Equal(t, []string{"a", "b"}, w.begins[:2])
		assert.NotContains(t, w.begins, "")
	})
}

func TestAPodThatIsRefusedAtTheLastMomentIsTriedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.set(strict("a", 0, "40%"))
		w.addPodsOn("m", 2)
		pod := w.addPods(3)[0]
		w.Tried(pod)
		var refused *policystore.QuotaError
		require.ErrorAs(t, w.store.AssumePod(pod, node("m", "spot")), &refused)
		w.Add(Pod{Pod: pod, Decision: refused.Decision, Refused: true})
		assert.Equal(t, map[string]int{"web-2": 1}, w.triedWithin(soon))
		w.addPodsOn("o", 1)
		assert.Equal(t, map[string]int{"web-2": 1}, w.triedWithin(minUntried), "its cycle had not ended, and the scheduler counts on another call")
		w.keepOut(pod)
		assert.Empty(t, w.triedWithin(time.Hour))
	})
}

// To be added for each of the nodes on which preemption is tried out costs next to nothing and changes nothing.
func TestToBeAddedAgainInTheSameCycleChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.set(strict("a", 0, "40%"))
		w.addPodsOn("o", 6)
		pod := w.addPods(4)[0]
		w.keepOut(pod)
		before := w.all[pod.UID]
		decision, _ := w.store.Decide(pod)
		again := Pod{Pod: pod, Decision: decision}
		assert.Zero(t, testing.AllocsPerRun(100, func() { w.Add(again) }))
		assert.Same(t, before, w.all[pod.UID])
		w.set(strict("a", 0, "20%"))
		require.Len(t, w.triedWithin(soon), 1)
		w.Add(again)
		assert.Empty(t, w.triedWithin(minUntried/2))
	})
}

// It has yielded to a nominated pod that the store does not know to be nominated.
func TestAPodThatYieldsIsTriedAfterAnyChangeButNotWithoutOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.set(strict("a", 0, "40%"))
		pods := w.addPods(3)
		yield := func() {
			w.Tried(pods[0])
			decision, _ := w.store.Decide(pods[0])
			w.Add(Pod{Pod: pods[0], Decision: decision, Yields: true})
		}
		yield()
		require.Empty(t, w.triedWithin(time.Hour))
		w.bind(pods[1], "o")
		require.Equal(t, map[string]int{"web-0": 1}, w.triedWithin(soon))
		yield()
		assert.Empty(t, w.triedWithin(time.Hour))
	})
}

func TestAMemberOfAPodGroupIsTriedWhenThereAreMorePlacesThanThereWere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.set(strict("a", 0, "40%"))
		pods := w.addPods(5)
		first, _ := w.store.Decide(pods[0])
		for _, pod := range pods[2:4] {
			w.Add(Pod{Pod: pod, Decision: first, Member: true})
		}
		require.Empty(t, w.triedWithin(time.Hour))
		w.set(strict("a", 0, "60%"))
		assert.Equal(t, map[string]int{"web-2": 1, "web-3": 1}, w.triedWithin(soon))
	})
}

func TestABurstOfChangesHasAPodTriedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.set(strict("a", 0, "40%"))
		w.addPodsOn("o", 6)
		w.keepOut(w.addPods(4)[0])
		for i := range 100 {
			w.set(strict("a", 0, fmt.Sprintf("%d%%", i%20)))
		}
		assert.Equal(t, map[string]int{"web-6": 1}, w.triedWithin(soon))
	})
}

// What a burst of placements costs while many pods of the policy wait, and none of them is let in.
func BenchmarkLookThrough5000WaitingPods(b *testing.B) {
	w := newWorld(b)
	w.set(strict("a", 0, "0"))
	w.keepOut(w.addPods(5000)...)
	b.ReportAllocs()
	for b.Loop() {
		w.look(b.Context(), policyKey("a"))
	}
	require.Len(b, w.all, 5000)
}

// What a pod costs that is kept out by many nodes of a cycle, as where preemption is tried out.
func BenchmarkAddAgain(b *testing.B) {
	w := newWorld(b)
	w.set(strict("a", 0, "0"))
	pod := w.addPods(1)[0]
	w.keepOut(pod)
	decision, _ := w.store.Decide(pod)
	b.ReportAllocs()
	for b.Loop() {
		w.Add(Pod{Pod: pod, Decision: decision})
	}
}

// What every scheduling cycle costs, of pods that never waited.
func BenchmarkTried(b *testing.B) {
	w := newWorld(b)
	pod := w.addPods(1)[0]
	b.ReportAllocs()
	for b.Loop() {
		w.Tried(pod)
	}
}
