package integration

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
)

const (
	onA = "nodeSelector: {matchLabels: {pool: a}}"
	onB = "nodeSelector: {matchLabels: {pool: b}}"

	threePools = "[{name: a, " + onA + ", share: 50%}, {name: b, " + onB + ", share: 30%}, {name: rest}]"
)

// groupsSpec is a policy for application web that has groups.
func groupsSpec(mode, groups string) string {
	return fmt.Sprintf("{enforcementMode: %s, podSelector: {matchLabels: {app: web}}, groups: %s}", mode, groups)
}

// inPool labels nodes.
func inPool(pool string) nodeEdit { return func(node *v1.Node) { node.Labels["pool"] = pool } }

// threeKindsOfNodes adds nodes a1 and a2 in pool a, b1 and b2 in pool b, and o1 and o2 in none.
func (w *world) threeKindsOfNodes(edits ...nodeEdit) {
	w.t.Helper()
	w.addNodes("a1 a2", append(edits, inPool("a"))...)
	w.addNodes("b1 b2", append(edits, inPool("b"))...)
	w.addNodes("o1 o2", edits...)
}

// requireInGroups waits until so many pods are on nodes a, b and o, and none is anywhere else.
func (w *world) requireInGroups(a, b, o int) {
	w.t.Helper()
	w.eventually(func(c *assert.CollectT) {
		var got [4]int
		for i, prefix := range []string{"a", "b", "o", ""} {
			pods, err := w.listPodsOn(prefix)
			require.NoError(c, err)
			got[i] = len(pods)
		}
		require.Equal(c, [4]int{a, b, o, 0}, got, "pods on a, b and o, and pending ones")
	})
	w.requireAgreement()
}

func forBothModes(t *testing.T, test func(t *testing.T, mode string)) {
	for _, mode := range []string{"Strict", "BestEffort"} {
		t.Run(mode, func(t *testing.T) { test(t, mode) })
	}
}

func TestGroupsWithABaseAndAShare(t *testing.T) {
	t.Parallel()
	forBothModes(t, func(t *testing.T, mode string) {
		w := newWorld(t)
		w.threeKindsOfNodes()
		w.setPolicy("web", groupsSpec(mode, "[{name: a, "+onA+", share: 70%}, {name: b, "+onB+", base: 2}]"))
		w.deploy("web", 0)
		for _, step := range [][3]int{{1, 0, 1}, {2, 0, 2}, {3, 0, 3}, {5, 2, 3}, {12, 7, 5}, {40, 26, 14}} {
			w.scale("web", step[0])
			w.requireInGroups(step[1], step[2], 0)
		}
	})
}

// The sizes of three pools at 50, 30 and 20 %: of n pods, floor(0.8 n) are shared out between the first two, in turns.
func TestThreeGroupsAtEverySize(t *testing.T) {
	t.Parallel()
	first := []string{"o", "a", "b", "a", "a", "o", "b", "a", "a", "b"} // of each ten
	forBothModes(t, func(t *testing.T, mode string) {
		one, burst := newWorld(t), newWorld(t)
		for _, w := range []*world{one, burst} {
			w.threeKindsOfNodes()
			w.setPolicy("web", groupsSpec(mode, threePools))
			w.deploy("web", 0)
		}
		on := map[string]int{}
		for n := 1; n <= 30; n++ {
			on[first[(n-1)%10]]++
			one.scale("web", n)
			one.requireInGroups(on["a"], on["b"], on["o"])
			if n%7 == 0 || n == 30 {
				burst.scale("web", n)
				burst.requireInGroups(on["a"], on["b"], on["o"])
			}
		}
		assert.Equal(t, map[string]int{"a": 15, "b": 9, "o": 6}, on)
	})
}

func TestAGroupWithAMax(t *testing.T) {
	t.Parallel()
	forBothModes(t, func(t *testing.T, mode string) {
		w := newWorld(t)
		w.threeKindsOfNodes()
		w.setPolicy("web", groupsSpec(mode,
			"[{name: a, "+onA+", share: 50%, max: 3}, {name: b, "+onB+", base: 1}, {name: rest}]"))
		w.deploy("web", 5)
		w.requireInGroups(2, 1, 2)
		w.scale("web", 25)
		w.requireInGroups(3, 1, 21)
	})
}

// The share of a group without nodes waits, and the others get theirs, until there is a node.
func TestAGroupWithoutNodesWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addNodes("a1", inPool("a"))
	w.addNodes("o1")
	w.setPolicy("web", groupsSpec("Strict", threePools))
	w.deploy("web", 10)
	w.requireCounts("web", 10, 5, 2)
	assert.Regexp(
		t,
		`1 placement policy .*/web: group a full \(5 of 5 pods; (\d of 10 wanted|10) qualify\)`,
		w.requirePending("web", 3),
	)
	w.eventually(func(c *assert.CollectT) {
		status, err := w.policyStatus("web")
		require.NoError(c, err)
		assert.Equal(c, []v1alpha1.GroupStatus{
			{Name: "a", Pods: 5, TargetPods: 5}, {Name: "b", TargetPods: 3}, {Name: "rest", Pods: 2, TargetPods: 2},
		}, status.Groups)
	})
	w.addNodes("b1", inPool("b"))
	w.requireInGroups(5, 3, 2)
}

// Running pods stay when a policy loses a group and gets it back. The next ones repair what is off.
func TestGroupsComeAndGoUnderRunningPods(t *testing.T) {
	t.Parallel()
	forBothModes(t, func(t *testing.T, mode string) {
		w := newWorld(t)
		w.threeKindsOfNodes()
		w.setPolicy("web", groupsSpec(mode, threePools))
		w.deploy("web", 10)
		w.requireInGroups(5, 3, 2)
		w.setPolicy("web", groupsSpec(mode, "[{name: a, "+onA+", share: 50%}, {name: rest}]"))
		w.requireCounts("web", 10, 5, 5)
		w.setPolicy("web", groupsSpec(mode, "[{name: b, "+onB+", share: 50%}, {name: a, "+onA+"}]"))
		w.requireCounts("web", 10, 3, 5) // two are in no group
		w.scale("web", 12)
		w.requireCounts("web", 12, 5, 5)
		w.setPolicy("web", groupsSpec(mode, threePools))
		w.requireCounts("web", 12, 10, 2)
		w.scale("web", 20)
		w.requireInGroups(10, 6, 4)
	})
}

// Where all groups have a nodeSelector, a node that has no label yet gets no pods: it would be in the wrong group.
func TestALabelThatComesLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addNodes("a1", inPool("a"))
	w.addNodes("b1") // to be in pool b
	w.setPolicy("web", groupsSpec("Strict", "[{name: a, "+onA+", share: 50%}, {name: b, "+onB+"}]"))
	w.deploy("web", 10)
	w.requireCounts("web", 10, 5, 0)
	message := w.requirePending("web", 5)
	assert.Regexp(t, `1 placement policy .*/web: node in none of its groups \(a, b\)`, message)
	w.patchNode("b1", "metadata: {labels: {pool: b}}")
	w.requireInGroups(5, 5, 0)
}

func TestThreeGroupsAndAKilledScheduler(t *testing.T) {
	t.Parallel()
	const burst = 60
	w := newWorld(t)
	w.startScheduler(slowly(w))
	w.threeKindsOfNodes(room(4 * burst))
	w.setPolicy("web", groupsSpec("Strict", threePools))
	w.deploy("web", 0)
	for size := burst; size <= 3*burst; size += burst {
		w.scale("web", size)
		w.waitForPlacements(size - burst*3/4)
		w.scheduler.Kill()
		w.startScheduler(slowly(w))
		w.requireInGroups(size*5/10, size*3/10, size*2/10)
	}
}

func TestRolloutsOfThreeGroups(t *testing.T) {
	t.Parallel()
	forBothModes(t, func(t *testing.T, mode string) {
		w := newWorld(t)
		w.threeKindsOfNodes()
		w.setPolicy("web", groupsSpec(mode,
			"[{name: a, "+onA+", base: 1, share: 50%}, {name: b, "+onB+", share: 30%}, {name: rest}]"))
		w.deploy("web", 11)
		w.requireInGroups(6, 3, 2)
		for range 3 {
			w.rollOut("web")
			w.requireInGroups(6, 3, 2)
		}
	})
}
