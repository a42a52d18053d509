package report

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

// conditions are status, reason and message by type.
func conditions(status v1alpha1.PlacementPolicyStatus) map[string]string {
	all := map[string]string{}
	for _, c := range status.Conditions {
		all[c.Type] = string(c.Status) + " " + c.Reason + ": " + c.Message
	}
	return all
}

// TestStatusOf has a policy that wants 40 % of the pods in the target group.
func TestStatusOf(t *testing.T) {
	type pods struct{ target, other, pending int }
	for name, tt := range map[string]struct {
		cohorts  []pods
		wanted   int // by the workload of all pods
		waiting  bool
		onTarget string
		off      int
	}{
		"no pods": {onTarget: "True OnTarget: group target has 0 of 0 pods, other has 0 of 0 pods"},
		"exact": {cohorts: []pods{{4, 6, 0}},
			onTarget: "True OnTarget: group target has 4 of 4 pods, other has 6 of 6 pods"},
		"pending": {cohorts: []pods{{3, 5, 2}}, off: 1,
			onTarget: "False PodsPending: group target has 3 of 4 pods, other has 5 of 6 pods; 2 pods are yet to be placed"},
		"the target group is right and the other one is full": {cohorts: []pods{{4, 0, 6}}, waiting: true, off: 1,
			onTarget: "False NoRoom: group target has 4 of 4 pods, other has 0 of 6 pods; 6 pods wait: " +
				"full groups keep them out, and no node of the others takes them"},
		"the target group is right and others are pending": {cohorts: []pods{{4, 0, 6}}, off: 1,
			onTarget: "False PodsPending: group target has 4 of 4 pods, other has 0 of 6 pods; 6 pods are yet to be placed"},
		"drift after a scale-down": {cohorts: []pods{{4, 1, 0}}, waiting: true, off: 1,
			onTarget: "False Drift: group target has 4 of 2 pods, other has 1 of 3 pods; all pods are placed, and the " +
				"next ones will be so as to repair it"},
		"one of two cohorts": {cohorts: []pods{{4, 6, 0}, {4, 1, 0}}, off: 1,
			onTarget: "False Drift: group target has 8 of 6 pods, other has 7 of 9 pods; 1 of 2 cohorts are off " +
				"target; all pods are placed, and the next ones will be so as to repair it"},
		"a workload that wants more pods": {cohorts: []pods{{2, 3, 0}}, wanted: 10,
			onTarget: "True OnTarget: group target has 2 of 2 pods, other has 3 of 3 pods"},
		"a paused rollout": {cohorts: []pods{{2, 3, 0}, {2, 3, 0}}, wanted: 10,
			onTarget: "True OnTarget: group target has 4 of 4 pods, other has 6 of 6 pods"},
		"too many cohorts to list": {cohorts: make([]pods, 12), off: v1alpha1.MaxOffTargetCohorts,
			onTarget: "False PodsPending: group target has 0 of 0 pods, other has 0 of 12 pods; 12 of 12 cohorts are off " +
				"target; 12 pods are yet to be placed"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.setPolicy("web-on-spot", strict40)
			if tt.wanted > 0 {
				w.Store.SetWorkloadSize("rs", tt.wanted)
			}
			for i, cohort := range tt.cohorts {
				if cohort == (pods{}) {
					cohort.pending = 1
				}
				revision := string(rune('a' + i))
				w.addPods(cohort.target, "m", revision)
				w.addPods(cohort.other, "o", revision)
				w.addPods(cohort.pending, "", revision)
			}
			info, _ := w.Store.Policy(webOnSpot)
			status := statusOf(v1alpha1.PlacementPolicyStatus{}, 7, info, tt.waiting)
			assert.Equal(t, map[string]string{
				"Accepted":   "True Valid: the policy is valid",
				"OnTarget":   tt.onTarget,
				"Conflicted": "False NoConflict: the policy governs all pods that it selects",
			}, conditions(status))
			assert.Len(t, status.OffTargetCohorts, tt.off)
			assert.EqualValues(t, len(tt.cohorts), status.Cohorts)
			assert.EqualValues(t, 7, status.ObservedGeneration)
		})
	}

	t.Run("invalid", func(t *testing.T) {
		status := statusOf(
			v1alpha1.PlacementPolicyStatus{},
			1,
			policystore.PolicyInfo{Err: errors.New("bad size")},
			false,
		)
		assert.Equal(t, map[string]string{
			"Accepted":   "False Invalid: bad size",
			"OnTarget":   "Unknown Invalid: an invalid policy governs no pods",
			"Conflicted": "Unknown Invalid: an invalid policy governs no pods",
		}, conditions(status))
	})

	t.Run("overruled by many", func(t *testing.T) {
		by := map[types.NamespacedName]int{}
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			by[types.NamespacedName{Namespace: "default", Name: name}] = 1
		}
		status := statusOf(v1alpha1.PlacementPolicyStatus{}, 1, policystore.PolicyInfo{OverruledBy: by}, false)
		assert.Equal(
			t,
			"True Overruled: other policies, of more weight or with precedence, govern pods that it selects: "+
				"a, b, c and 2 more",
			conditions(status)["Conflicted"],
		)
	})
}

// Both forms have groups in their status, by the names that the policy gives them.
func TestStatusTellsTheGroups(t *testing.T) {
	for name, tt := range map[string]struct {
		spec string
		want []v1alpha1.GroupStatus
		sums [3]int32 // managed, other and target
	}{
		"two": {
			strict40,
			[]v1alpha1.GroupStatus{{Name: "target", Pods: 3, TargetPods: 2}, {Name: "other", Pods: 3, TargetPods: 4}},
			[3]int32{3, 3, 2},
		},
		"three": {
			`{enforcementMode: Strict, podSelector: {matchLabels: {app: web}}, groups: [
				{name: spot, nodeSelector: {matchLabels: {spot: "true"}}, share: 40%},
				{name: gone, nodeSelector: {matchLabels: {spot: gone}}, base: 1},
				{name: rest}]}`,
			[]v1alpha1.GroupStatus{
				{Name: "spot", Pods: 3, TargetPods: 2},
				{Name: "gone", TargetPods: 1},
				{Name: "rest", Pods: 3, TargetPods: 3},
			},
			[3]int32{3, 3, 3},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.setPolicy("web-on-spot", tt.spec)
			w.addPods(3, "m")
			w.addPods(3, "o")
			info, _ := w.Store.Policy(webOnSpot)
			status := statusOf(v1alpha1.PlacementPolicyStatus{}, 1, info, false)
			assert.Equal(t, tt.want, status.Groups)
			assert.Equal(t, tt.sums, [3]int32{status.ManagedPods, status.OtherPods, status.TargetPods})
			assert.Len(t, status.OffTargetCohorts, 1)
			assert.Equal(t, tt.want, status.OffTargetCohorts[0].Groups)
		})
	}
}

func TestTextsAreCutBetweenRunes(t *testing.T) {
	text := strings.Repeat("größe ", 10)
	for n := range len(text) + 2 {
		short := cut(text, n)
		require.True(t, utf8.ValidString(short), "%q", short)
		require.True(t, strings.HasPrefix(text, short))
		require.LessOrEqual(t, len(short), n)
		require.GreaterOrEqual(t, len(short), min(n, len(text))-1, "no more is cut than it takes")
	}
}
