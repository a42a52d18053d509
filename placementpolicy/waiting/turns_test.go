package waiting

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// newLine returns a world in which the pods web-0 and web-1 have the two places in the target group, and so many others
// wait for one: web-2 and so on.
func newLine(t *testing.T, waiting int) (w *world, placed []*v1.Pod) {
	w = newWorld(t)
	w.set(strict("a", 0, "2"))
	placed = w.addPodsOn("m", 2)
	w.keepOut(w.addPods(waiting)...)
	return w, placed
}

func names(tries map[string]int) []string { return slices.Sorted(maps.Keys(tries)) }

func TestNoMorePodsAreTriedThanThereArePlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, placed := newLine(t, 6)
		important := w.change(w.addPods(1)[0], func(pod *v1.Pod) { pod.Spec.Priority = ptr.To(int32(1)) })
		w.keepOut(important)

		w.remove(placed[0])
		assert.Equal(t, map[string]int{important.Name: 1}, w.triedWithin(soon))
		w.Tried(important)
		w.bind(important, "m")
		assert.Empty(t, w.triedWithin(time.Hour))

		w.set(strict("a", 0, "5"))
		assert.Equal(t, map[string]int{"web-2": 1, "web-3": 1, "web-4": 1}, w.triedWithin(soon))
	})
}

func TestEachCohortHasItsOwnPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, placed := newLine(t, 3)
		pods := w.addPods(5)
		for i, pod := range pods {
			pods[i] = w.change(pod, func(pod *v1.Pod) { pod.Labels["pod-template-hash"] = "next" })
		}
		next := w.bind(pods[0], "m")
		w.bind(pods[1], "m")
		w.keepOut(pods[2:]...)
		w.remove(next)
		w.remove(placed[0])
		assert.Equal(t, []string{"web-2", pods[2].Name}, names(w.triedWithin(soon)))
	})
}

// For reasons that the line does not know, no pod can use the place.
func TestPodsThatCannotUseAPlaceGiveWayToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, placed := newLine(t, 100)
		w.remove(placed[0])
		var tried []int
		for range 8 {
			pods := w.triedWithin(soon)
			for name := range pods {
				pod, _, _ := w.lister.GetByKey("default/" + name)
				w.Tried(pod.(*v1.Pod)) // and rejected elsewhere
			}
			tried = append(tried, len(pods))
		}
		assert.Equal(t, []int{1, 2, 4, 8, 16, 32, 37, 0}, tried)
	})
}

func TestATurnEndsWhenThePlaceIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, placed := newLine(t, 10)
		w.remove(placed[0])
		w.triedWithin(time.Minute) // in which the scheduler is busy with other pods
		w.addPodsOn("m", 1)
		w.triedWithin(soon)
		assert.Empty(t, w.triedWithin(time.Hour))
		w.remove(placed[1])
		assert.Len(t, w.triedWithin(2*soon), 1)
	})
}

// The scheduler may be busy with other pods, or hold one back that evicts others.
func TestAPodThatIsNotTriedGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, placed := newLine(t, 3)
		w.remove(placed[0])
		assert.Equal(t, map[string]int{"web-2": 1}, w.triedWithin(minUntried))
		assert.Contains(t, w.triedWithin(2*soon), "web-3")
	})
}

// Another plugin may reject the pod before the line is told. To be tried it is then no more than a burden.
func TestAPodThatIsNotTriedIsToBeTriedEverMoreSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, placed := newLine(t, 1)
		w.remove(placed[0])
		assert.Equal(t, map[string]int{"web-2": 1 + 6}, w.triedWithin(63*time.Second+2*soon), "after 1, 2, 4, 8, 16, 32 seconds")
		assert.Equal(t, map[string]int{"web-2": 60}, w.triedWithin(time.Hour))
	})
}

// Others are always faster: each time that a place opens it is taken before the pod is tried.
func TestAPodThatIsTriedInVainBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, placed := newLine(t, 1)
		waiting, _, _ := w.lister.GetByKey("default/web-2")
		pod, running := waiting.(*v1.Pod), placed[0]
		var waits []time.Duration
		for range 13 {
			w.remove(running)
			began := time.Now()
			for len(w.triedWithin(time.Millisecond)) == 0 {
			}
			waits = append(waits, time.Since(began)-gatherDelay)
			running = w.addPodsOn("m", 1)[0]
			w.keepOut(pod)
			w.triedWithin(gatherDelay)
		}
		assert.Less(t, waits[0], 2*minBackoff)
		assert.Greater(t, waits[5], 10*minBackoff)
		assert.InDelta(t, maxBackoff, waits[12], float64(soon))
	})
}
