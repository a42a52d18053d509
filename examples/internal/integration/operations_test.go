package integration

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestI1TargetGroupWithoutRoom has free slots in the other group only. An autoscaler that does not know the policy
// takes them to be free for the waiting pods too, and adds no node. Placeholders that fit in the target group alone
// make it add one: they hold room there, which pods of the policy take over by preemption, and ask for more when they
// have lost it.
func TestI1TargetGroupWithoutRoom(t *testing.T) {
	t.Parallel()
	newWorldOf := func(t *testing.T) *world {
		w := newWorld(t)
		require.NoError(t, w.Apply(w.ctx, []byte(priorityClasses)))
		w.addNodes("o1", room(16))
		w.addNodes("m1", room(4))
		w.setPolicy("web", strict40)
		return w
	}
	t.Run("WaitingPodsAreExplained", func(t *testing.T) {
		w := newWorldOf(t)
		w.deploy("ballast", 4, onlyOn("m"))
		w.requireOn("m1", 4)
		w.deploy("web", 10)
		w.requireCounts("web", 10, 0, 6)
		message := w.requirePending("web", 4)
		assert.Contains(t, message, "1 Too many pods")
		assert.Regexp(
			t,
			"1 placement policy "+w.namespace+`/web: group other full \(6 of 6 pods; (\d of 10 wanted|10) qualify\)`,
			message,
		)

		// A placeholder waits for the target group, and only for that: the autoscaler has a reason to add a node there.
		w.deploy("placeholder", 1, onlyOn("m"), priority("lowest"))
		assert.NotContains(t, w.requirePending("placeholder", 1), "placement policy")
		w.addNodes("m2", room(4))
		w.requireSplit("web", 4, 6)
		w.requirePending("placeholder", 1)
	})
	t.Run("PlaceholdersHoldRoom", func(t *testing.T) {
		w := newWorldOf(t)
		w.deploy("placeholder", 4, onlyOn("m"), priority("lowest"))
		w.requireOn("m1", 4)
		w.deploy("web", 10)
		w.requireSplit("web", 4, 6)
		assert.NotContains(t, w.requirePending("placeholder", 4), "placement policy")
	})
}

func TestI2TargetGroupWithoutNodes(t *testing.T) {
	t.Parallel()
	t.Run("Strict", func(t *testing.T) {
		w := newWorld(t)
		w.addNodes("o1")
		w.setPolicy("web", strict40)
		w.deploy("web", 10)
		w.requireCounts("web", 10, 0, 6)
		assert.Regexp(
			t,
			"1 placement policy "+w.namespace+`/web: group other full \(6 of 6 pods; (\d of 10 wanted|10) qualify\)`,
			w.requirePending("web", 4),
		)
		w.addNodes("m1")
		w.requireSplit("web", 4, 6)
	})
	t.Run("BestEffort", func(t *testing.T) {
		w := newWorld(t)
		w.addNodes("o1")
		w.setPolicy("web", bestEffort40)
		w.deploy("web", 10)
		w.requireSplit("web", 0, 10)
		w.addNodes("m1")
		w.scale("web", 20)
		w.requireSplit("web", 8, 12)
	})
}

// TestM1EventSaysWhy looks where kubectl describe pod does, at the event. A pod of high priority does not evict others
// of its cohort from a group that no pod is meant for.
func TestM1EventSaysWhy(t *testing.T) {
	t.Parallel()
	w := newPreemptionWorld(t, "0")
	w.createPod("high", "web", onlyOn("m"), priority("high"))
	w.requirePending("web", 1)
	w.eventually(func(c *assert.CollectT) {
		events, err := w.failedScheduling("high")
		require.NoError(c, err)
		require.NotEmpty(c, events) // the nodes of other tests may have it tried again
		for _, event := range events {
			assert.Contains(
				c,
				event.Message,
				"1 placement policy "+w.namespace+"/web: group target full (2 of 0 pods; 3 qualify)",
			)
			assert.Contains(c, event.Message, "Preemption is not helpful for scheduling")
		}
	})
	w.requireCounts("web", 3, 2, 0)
}
