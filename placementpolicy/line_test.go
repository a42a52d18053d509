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

func TestEachCohortHasItsOwnPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLine(t, 3)
		var next []*v1.Pod
		for i := range 5 {
			pod := webPod(fmt.Sprint("next-", i)).Label("pod-template-hash", "next").Obj()
			w.pods.set(pod)
			if i < 2 {
				next = append(next, w.bind(pod, "m1"))
			} else {
				w.keepOut(pod)
			}
		}
		w.pods.remove(next[0])
		w.pods.remove(w.get("web-0"))
		assert.Equal(t, map[string]int{"web-2": 1, "next-2": 1}, w.activated())
	})
}

// For reasons that the plugin does not know, no pod can use the place but the last in the line.
func TestPodsThatCannotUseAPlaceGiveWayToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLine(t, 1000)
		w.pods.remove(w.get("web-0"))
		var woken []int
		for start := time.Now(); time.Since(start) < 2*time.Second; {
			pods := w.activatedWithin(turnTime)
			if len(pods) > 0 {
				woken = append(woken, len(pods))
			}
			for name := range pods {
				w.preFilter(w.get(name))
			}
		}
		assert.Equal(t, []int{1, 2, 4, 8, 16, 32, 64, 128, 256, 489}, woken)
		assert.Empty(t, w.wakeup.lines)
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
