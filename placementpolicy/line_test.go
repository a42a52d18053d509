package placementpolicy

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
)

// newLine returns a world in which the pods web-0 and web-1 have taken the two places in the target group, and so many
// others wait for one: web-2 and so on.
func newLine(t *testing.T, waiting int) *world {
	w := newWorld(t)
	w.setPolicy("web-on-spot", strictTwo)
	w.addPodsOn("m1", 2)
	for _, pod := range w.addPods(waiting) {
		w.keepOut(pod)
	}
	return w
}

func TestNoMorePodsAreWokenThanThereArePlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLine(t, 6)
		important := webPod("important").Priority(1).Obj()
		w.pods.set(important)
		w.keepOut(important)

		w.pods.remove(w.get("web-0"))
		assert.Equal(t, map[string]int{"important": 1}, w.activated())
		w.reserve(important, "m1")
		assert.Empty(t, w.activatedWithin(time.Minute))

		w.setPolicy("web-on-spot", `{enforcementMode: Strict, `+selectors+`, policy: {targetSize: 5}}`)
		assert.Equal(t, map[string]int{"web-2": 1, "web-3": 1, "web-4": 1}, w.activated())
	})
}

// addNext adds pods of another cohort, of which the first two take the places in the target group and the others wait.
func (w *world) addNext(n int) []*v1.Pod {
	pods := make([]*v1.Pod, n)
	for i := range pods {
		pods[i] = webPod(fmt.Sprint("next-", i)).Label("pod-template-hash", "next").Obj()
		w.pods.set(pods[i])
		if i < 2 {
			pods[i] = w.bind(pods[i], "m1")
		} else {
			w.keepOut(pods[i])
		}
	}
	return pods
}

func TestEachCohortHasItsOwnPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLine(t, 3)
		next := w.addNext(5)
		w.pods.remove(next[0])
		w.pods.remove(w.get("web-0"))
		assert.Equal(t, map[string]int{"web-2": 1, "next-2": 1}, w.activated())
	})
}

// For reasons that the plugin does not know, no pod can use the place.
func TestPodsThatCannotUseAPlaceGiveWayToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLine(t, 1000)
		w.pods.remove(w.get("web-0"))
		var tried []int
		try := func() {
			pods := w.activatedWithin(turnTime)
			for name := range pods {
				w.preFilter(w.get(name))
			}
			tried = append(tried, len(pods))
		}
		for range 5 {
			try()
		}
		w.pods.remove(w.addNext(100)[0])
		try() // also one of the other cohort, which has a place
		w.reserve(w.get("next-10"), "m1")
		for range 4 {
			try()
		}
		assert.Equal(t, []int{1, 2, 4, 8, 16, 1 + 32, 64, 128, 256, 489}, tried)
	})
}

func TestATurnEndsWhenThePlaceIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLine(t, 100)
		w.pods.remove(w.get("web-0"))
		w.activatedWithin(10 * time.Second) // in which the scheduler is busy with other pods
		w.bind(w.addPods(1)[0], "m1")
		assert.Empty(t, w.activatedWithin(time.Minute))
		w.pods.remove(w.get("web-1"))
		assert.Len(t, w.activated(), 1)
	})
}

// The scheduler may be busy with other pods, or hold one back for long.
func TestPodsThatAreNotTriedGiveWayLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLine(t, 3)
		w.pods.remove(w.get("web-0"))
		assert.Equal(t, []string{"web-2"}, slices.Collect(maps.Keys(w.activatedWithin(maxTurnTime))))
		assert.Contains(t, w.activatedWithin(2*turnTime), "web-3")
	})
}

// Another plugin may reject the pod before this one is asked. To be activated it is then no more than a burden.
func TestAPodThatIsNotTriedIsActivatedEverMoreSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLine(t, 1)
		w.pods.remove(w.get("web-0"))
		activated := 0
		for i := range 1000 {
			w.pods.set(webPod(fmt.Sprint("next-", i)).Label("pod-template-hash", "next").Obj())
			activated += w.activated()["web-2"]
		}
		assert.Equal(t, 11, activated)
	})
}
