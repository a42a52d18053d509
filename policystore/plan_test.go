package policystore

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// planOf returns a plan of groups that have a share and no more; the last one takes the rest.
func planOf(shares ...int) plan {
	groups := make([]groupSize, 0, len(shares)+1)
	for _, share := range shares {
		groups = append(groups, groupSize{share: share, max: noMax})
	}
	return newPlan(append(groups, groupSize{max: noMax}))
}

func TestPlan(t *testing.T) {
	for name, tc := range map[string]struct {
		plan plan
		want map[int][]int // how many of so many pods belong to each group
	}{
		"70 % on spot, and a base of two for the rest": {
			newPlan([]groupSize{{share: 70, max: noMax}, {base: 2, max: noMax}}),
			map[int][]int{0: {0, 0}, 1: {0, 1}, 2: {0, 2}, 3: {0, 3}, 4: {1, 3}, 5: {2, 3}, 12: {7, 5}, 40: {26, 14}},
		},
		"50 % and 30 % and the rest": {
			planOf(50, 30),
			map[int][]int{0: {0, 0, 0}, 1: {0, 0, 1}, 2: {1, 0, 1}, 3: {1, 1, 1}, 10: {5, 3, 2}, 20: {10, 6, 4}},
		},
		"half of them, at most 3": {
			newPlan([]groupSize{{share: 50, max: 3}, {max: noMax}}),
			map[int][]int{5: {2, 3}, 6: {3, 3}, 7: {3, 4}, 10: {3, 7}},
		},
		"a number": {
			newPlan([]groupSize{{base: 4, max: noMax}, {max: noMax}}),
			map[int][]int{0: {0, 0}, 3: {3, 0}, 4: {4, 0}, 10: {4, 6}},
		},
		"bases come in the order of the groups, before any share": {
			newPlan([]groupSize{{base: 2, share: 50, max: noMax}, {base: 1, max: noMax}, {base: 3, max: noMax}}),
			map[int][]int{1: {1, 0, 0}, 2: {2, 0, 0}, 3: {2, 1, 0}, 4: {2, 1, 1}, 6: {2, 1, 3}, 7: {2, 1, 4}, 8: {3, 1, 4}},
		},
		"what is over the max belongs to the last group, of a base too": {
			newPlan([]groupSize{{base: 5, share: 50, max: 3}, {share: 50, max: 1}, {max: noMax}}),
			map[int][]int{3: {3, 0, 0}, 5: {3, 0, 2}, 7: {3, 1, 3}, 20: {3, 1, 16}},
		},
		"one group": {
			newPlan([]groupSize{{base: 7, max: noMax}}),
			map[int][]int{0: {0}, 1: {1}, 1000: {1000}},
		},
		"as many pods as there can be": {
			newPlan([]groupSize{{base: math.MaxInt32, share: 99, max: math.MaxInt32}, {base: math.MaxInt32, max: noMax}}),
			map[int][]int{math.MaxInt32: {math.MaxInt32, 0}},
		},
		"most of as many pods as there can be": {
			planOf(99),
			map[int][]int{math.MaxInt32: {math.MaxInt32/100*99 + 46, math.MaxInt32/100 + 1}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for n, want := range tc.want {
				counts := tc.plan.counts(n)
				assert.Equal(t, want, counts.list(Group(len(want))), "%d pods", n)
				assert.Equal(t, n, counts.sum(), "%d pods", n)
			}
		})
	}
}

// The first slots of a plan, a letter each.
func TestPlanSlots(t *testing.T) {
	for want, plan := range map[string]plan{
		"bbababbaba": planOf(40),
		"cabaacbaab": planOf(50, 30),
		"bbbaabaaba": newPlan([]groupSize{{share: 70, max: noMax}, {base: 2, max: noMax}}),
	} {
		got := ""
		for n := 1; n <= len(want); n++ {
			got += string(rune('a' - 1 + plan.groupOf(n)))
		}
		assert.Equal(t, want, got)
	}
}

// Two groups are nothing but the share, rounded down, and the rest.
func TestPlanOfTwoGroups(t *testing.T) {
	for percent := range 101 {
		plan := planOf(percent)
		for n := range 1001 {
			counts := plan.counts(n)
			require.Equalf(t, []int{n * percent / 100, n - n*percent/100}, counts.list(2), "%d%% of %d", percent, n)
		}
	}
}

func TestPlanOnly(t *testing.T) {
	for name, tc := range map[string]struct {
		groups []groupSize
		want   Group
	}{
		"one group":                    {[]groupSize{{base: 3, max: noMax}}, 1},
		"all of them":                  {[]groupSize{{share: 100, max: noMax}, {max: noMax}}, 1},
		"none of them":                 {[]groupSize{{max: noMax}, {max: noMax}}, 2},
		"at most none":                 {[]groupSize{{base: 2, share: 100, max: 0}, {max: noMax}}, 2},
		"all but one in a hundred":     {[]groupSize{{share: 99, max: noMax}, {max: noMax}}, NoGroup},
		"all up to a number":           {[]groupSize{{base: 100, max: noMax}, {max: noMax}}, NoGroup},
		"all, but there is a max":      {[]groupSize{{share: 100, max: 100}, {max: noMax}}, NoGroup},
		"all but the base of the last": {[]groupSize{{share: 100, max: noMax}, {base: 1, max: noMax}}, NoGroup},
		"all for the second":           {[]groupSize{{max: noMax}, {share: 100, max: noMax}, {max: noMax}}, 2},
	} {
		plan := newPlan(tc.groups)
		assert.Equal(t, tc.want, plan.only(), name)
	}
}

// randomGroups returns the sizes of up to 8 groups; if asked for, with shares only, and neither bases nor maxima.
func randomGroups(r *rand.Rand, sharesOnly bool) []groupSize {
	groups := make([]groupSize, 1+r.IntN(MaxGroups))
	left := 100
	if r.IntN(2) == 0 {
		left = r.IntN(101)
	}
	for _, i := range r.Perm(len(groups) - 1) {
		groups[i].share = r.IntN(left + 1)
		left -= groups[i].share
	}
	for i := range groups {
		groups[i].max = noMax
		if sharesOnly {
			continue
		}
		if r.IntN(3) == 0 {
			groups[i].base = r.IntN(20)
		}
		if r.IntN(3) == 0 && i < len(groups)-1 {
			groups[i].max = r.IntN(100)
		}
	}
	return groups
}

func TestPlanByRandomGroups(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		groups := randomGroups(r, false)
		plan, slots := newPlan(groups), newSlotBySlot(groups)
		var before, want perGroup
		for n := 1; n <= 1000; n++ {
			slot := Group(1 + slots.next())
			want[slot]++
			counts := plan.counts(n)
			for g := range counts {
				if counts[g] < before[g] {
					require.Failf(t, "a group shrinks", "%+v: group %d of %d pods", groups, g, n)
				}
			}
			if counts.sum() != n || counts != want || plan.groupOf(n) != slot {
				require.Failf(t, "not as told", "%+v: %d pods: %v, slot of group %d, want %v, group %d",
					groups, n, counts, plan.groupOf(n), want, slot)
			}
			before = counts
		}
	}
}

// No group is a whole pod away from its exact share, whatever the size.
func TestPlanIsCloseToTheShares(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		groups := randomGroups(r, true)
		plan := newPlan(groups)
		rest := 100
		for _, g := range groups {
			rest -= g.share
		}
		groups[len(groups)-1].share = rest
		for n := range 1001 {
			counts := plan.counts(n)
			for i, g := range groups {
				if off := 100*int(counts[i+1]) - n*g.share; off <= -100 || off >= 100 {
					require.Failf(t, "a pod or more off", "%+v: group %d of %d pods has %d", groups, i+1, n, counts[i+1])
				}
			}
		}
	}
}

func BenchmarkPlan(b *testing.B) {
	for _, groups := range []int{2, MaxGroups} {
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) {
			sizes := make([]groupSize, groups)
			for i := range sizes {
				sizes[i] = groupSize{base: i, share: 10, max: noMax}
			}
			sizes[groups-1].share = 0
			plan := newPlan(sizes)
			for b.Loop() {
				_ = plan.counts(12345)
			}
		})
	}
}
