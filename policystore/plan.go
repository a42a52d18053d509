package policystore

import "math"

// MaxGroups is how many groups a policy has at most.
const MaxGroups = 8

// perGroup is a number of pods for each group of a policy, at the group's number; that of NoGroup is 0.
type perGroup [MaxGroups + 1]int32

// of returns the number of the group; 0 if there is no such group.
func (q *perGroup) of(g Group) int {
	if int(g) >= len(q) {
		return 0
	}
	return int(q[g])
}

// list returns the numbers of the groups from 1 to last.
func (q *perGroup) list(last Group) []int {
	list := make([]int, last)
	for i, n := range q[1 : last+1] {
		list[i] = int(n)
	}
	return list
}

// sum is for all groups together.
func (q *perGroup) sum() int {
	sum := 0
	for _, n := range q[1:] {
		sum += int(n)
	}
	return sum
}

// plan is the endless sequence of slots 1, 2, 3, ... that a policy has for the pods of a cohort. Each slot belongs to
// one group, and the n-th pod that is placed takes slot n. It is immutable.
//
// The first slots are the bases, in the order of the groups. Of the first n slots beyond them, n times the sum of all
// shares, rounded down, belong to the groups that have a share, which take turns: see newTurns. The others belong to
// the last group, and so does a slot that a group would have beyond its max.
//
// So with two groups the first one has its share, rounded down, and the second one the rest.
type plan struct {
	groups []groupSize // from group 1 on; the last has neither share nor max
	turns  []turn
}

// groupSize says which slots belong to a group.
type groupSize struct {
	base  int
	share int // a percentage; at most 100 for all groups together
	max   int
}

const noMax = math.MaxInt

// turn tells how many of the first k slots that are shared out belong to each group, in the k-th entry of the plan's
// turns.
type turn [MaxGroups]uint8

func newPlan(groups []groupSize) plan { return plan{groups: groups, turns: newTurns(groups)} }

// newTurns shares out as many slots as the shares add up to, after which it goes on in the same way. It goes by the
// earliest deadline. If slots could be divided at will, the j-th one of a group would begin when (j-1)*sum/share of
// them are shared out, and be complete when j*sum/share are. The first is when it is released, the second when it is
// due: each slot belongs to the group whose next one is released and due first, of equals to the first group.
func newTurns(groups []groupSize) []turn {
	sum := 0
	for _, g := range groups {
		sum += g.share
	}
	turns := make([]turn, sum+1)
	for k := 1; k <= sum; k++ {
		next, earliest := 0, math.MaxInt
		for i, g := range groups {
			had := int(turns[k-1][i])
			if g.share == 0 || had*sum >= k*g.share {
				continue
			}
			if due := ((had+1)*sum + g.share - 1) / g.share; due < earliest {
				next, earliest = i, due
			}
		}
		turns[k] = turns[k-1]
		turns[k][next]++
	}
	return turns
}

// counts returns Q(n): how many of the first n slots belong to each group. They add up to n, and none falls as n grows.
func (p *plan) counts(n int) (q perGroup) {
	if len(p.groups) == 0 {
		return q
	}
	beyond := n
	var bases [MaxGroups]int
	for i, g := range p.groups {
		bases[i] = min(g.base, beyond)
		beyond -= bases[i]
	}
	sum, last := len(p.turns)-1, len(p.groups)-1
	shared := beyond/100*sum + beyond%100*sum/100 // beyond*sum may overflow
	rest := n
	for i, g := range p.groups[:last] {
		count := bases[i]
		if g.share > 0 {
			count += shared/sum*g.share + int(p.turns[shared%sum][i])
		}
		count = min(count, g.max)
		q[i+1] = int32(count)
		rest -= count
	}
	q[last+1] = int32(rest)
	return q
}

// groupOf returns the group that slot n, at least 1, belongs to.
func (p *plan) groupOf(n int) Group {
	before, with := p.counts(n-1), p.counts(n)
	last := Group(len(p.groups))
	for g := Group(1); g < last; g++ {
		if with[g] > before[g] {
			return g
		}
	}
	return last
}

// only returns the group that all slots belong to, for which there can ever be pods; NoGroup if there is none.
func (p *plan) only() Group {
	for g, n := range p.counts(math.MaxInt32) {
		if n == math.MaxInt32 {
			return Group(g)
		}
	}
	return NoGroup
}
