package policystore

import (
	"math"
	"slices"
)

// slotBySlot hands out the slots of a plan one after another, in no other way than the rule for them is told.
type slotBySlot struct {
	groups    []groupSize
	has       []int // slots of each group, from the first on
	bases     []int // slots that each group still gets before all shares
	sharedOut []int // slots that each group was due by its share, whether or not it could have them
	n, shared int   // slots beyond the bases, and how many of them went by the shares
}

func newSlotBySlot(groups []groupSize) *slotBySlot {
	s := &slotBySlot{groups: groups, has: make([]int, len(groups)), sharedOut: make([]int, len(groups))}
	for _, g := range groups {
		s.bases = append(s.bases, g.base)
	}
	return s
}

// next returns the index of the group that the next slot belongs to.
func (s *slotBySlot) next() int {
	g := s.due()
	if s.has[g] == s.groups[g].max {
		g = len(s.groups) - 1
	}
	s.has[g]++
	return g
}

func (s *slotBySlot) due() int {
	if i := slices.IndexFunc(s.bases, func(left int) bool { return left > 0 }); i >= 0 {
		s.bases[i]--
		return i
	}
	sum := 0
	for _, g := range s.groups {
		sum += g.share
	}
	s.n++
	if s.shared == s.n*sum/100 {
		return len(s.groups) - 1
	}
	s.shared++
	best, bestDue := -1, 0
	for i, g := range s.groups {
		pod := s.sharedOut[i] + 1
		if g.share == 0 || (pod-1)*sum >= s.shared*g.share {
			continue // not released
		}
		due := int(math.Ceil(float64(pod*sum) / float64(g.share)))
		if best < 0 || due < bestDue {
			best, bestDue = i, due
		}
	}
	s.sharedOut[best]++
	return best
}
