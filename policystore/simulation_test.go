package policystore_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

// That the counts are right in a simulation is for the oracle to check.
func TestEvictedPodsCannotBeEvictedAgain(t *testing.T) {
	w := newCluster(t, must(policystore.Strict, "1"))
	low := w.pods[w.create(1, onNode("m1"), priority(1))[0]]
	w.create(1, onNode("m1"), priority(10))
	pod := w.pods[w.create(1, priority(10))[0]]
	d, _ := w.Decide(pod)
	assert.False(t, w.CouldEvict(d, target), "the other pod stays")

	d = w.WithoutPod(d, low)
	assert.False(t, d.Allows(target))
	assert.False(t, w.CouldEvict(d, target), "the other pod still stays")
	assert.Equal(t, map[types.UID]string{low.UID: "m1"}, w.LowerPriority(d), "the store has not evicted it")

	w.set(must(policystore.Strict, "2"))
	d, _ = w.Decide(pod)
	assert.True(t, w.CouldEvict(d, target))
	d = w.WithoutPod(d, low)
	assert.True(t, w.CouldEvict(d, target), "it is open")
}

// A decision is of a cohort, whatever becomes of that in between.
func TestSimulationFollowsTheCohort(t *testing.T) {
	for name, change := range map[string]func(*world, *v1.Pod){
		"nothing":                   func(*world, *v1.Pod) {},
		"the only pod is nominated": func(w *world, low *v1.Pod) { w.update(nominatedFor("m1"), low.Name) },
		"the only pod is replaced":  func(w *world, low *v1.Pod) { w.RemovePod(low.UID); w.AddPod(low) },
		"the policy is replaced":    func(w *world, _ *v1.Pod) { w.RemovePolicy(web); w.set(must(policystore.Strict, "1")) },
	} {
		w := newCluster(t, must(policystore.Strict, "1"))
		low := w.pods[w.create(1, onNode("m1"), priority(1))[0]]
		d, _ := w.Decide(newPod("pod", priority(10)))
		change(w, low)
		assert.True(t, w.CouldEvict(d, target), name)
		assert.Equal(t, map[types.UID]string{low.UID: "m1"}, w.LowerPriority(d), name)
		without := w.WithoutPod(d, low)
		assert.Equal(t, []int{1, 0}, []int{d.Placed(target), without.Placed(target)}, name)
		assert.Equal(t, d.Placed(target), w.WithPod(without, low, spot).Placed(target), name)
	}
}

func TestAPodCanBeMovedInASimulation(t *testing.T) {
	w := newCluster(t, must(policystore.Strict, "50%"))
	pods := w.create(2, onNode("m1"))
	w.create(1, onNode("o1"))
	pod := w.pods[w.create(1)[0]]
	counts := func(d policystore.Decision) []int { return []int{d.Placed(target), d.Placed(other)} }
	d, _ := w.Decide(pod)
	require.Equal(t, []int{2, 1}, counts(d))
	require.False(t, d.Allows(target))

	moved := d
	for _, step := range []struct {
		labels map[string]string
		want   []int
	}{{nil, []int{1, 2}}, {spot, []int{2, 1}}, {nil, []int{1, 2}}} {
		moved = w.WithoutPod(moved, w.pods[pods[0]])
		moved = w.WithPod(moved, w.pods[pods[0]], step.labels)
		assert.Equal(t, step.want, counts(moved))
	}
	assert.True(t, moved.Allows(target))
	assert.Equal(t, []int{2, 1}, counts(d), "the decision that it started from")
}

func TestTheDecisionsOwnPodIsNotCountedInASimulation(t *testing.T) {
	w := newCluster(t, must(policystore.Strict, "50%"))
	placed := w.create(2, onNode("m1"))
	pending, nominated := w.create(1)[0], w.create(1, nominatedFor("m1"))[0]
	for _, name := range []string{placed[0], pending, nominated, "untracked"} {
		pod := newPod(name)
		d, _ := w.Decide(pod)
		assert.Equal(t, d, w.WithPod(d, pod, spot), name)
		assert.Equal(t, d, w.WithoutPod(d, pod), name)
	}
}

// The scheduler knows of a nomination before its event has arrived.
func TestANominationThatIsOnItsWayHoldsAPlaceInASimulation(t *testing.T) {
	w := newCluster(t, must(policystore.Strict, "1"))
	pods := w.create(2)
	d, _ := w.Decide(w.pods[pods[0]])
	require.True(t, d.Allows(target))
	d = w.WithPod(d, newPod(pods[1], nominatedFor("m1")), spot)
	assert.False(t, d.Allows(target))

	w.update(nominatedFor("m1"), pods[1])
	d, _ = w.Decide(w.pods[pods[0]])
	again := w.WithPod(d, w.pods[pods[1]], spot)
	assert.Equal(t, 1, again.Placed(target), "it is counted once")
}

func TestSimulationLeavesOtherPodsOut(t *testing.T) {
	w := newCluster(t, must(policystore.Strict, "50%"))
	pods := w.create(2)
	stranger, ofAnother := newPod("stranger", onNode("m1")), w.create(1, onNode("m1"), labelled("pod-template-hash", "1"))[0]
	d, _ := w.Decide(w.pods[pods[0]])
	w.update(onNode("m1"), pods[1])
	for name, pod := range map[string]*v1.Pod{
		"a pod that the store does not know":       stranger,
		"a pod of another cohort":                  w.pods[ofAnother],
		"a pod that was placed after the decision": w.pods[pods[1]],
	} {
		assert.Equal(t, d, w.WithPod(d, pod, spot), name)
		assert.Equal(t, d, w.WithoutPod(d, pod), name)
	}
}
