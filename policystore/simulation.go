package policystore

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// WithoutPod returns the decision as it would be if the other pod, which is placed, were evicted: its place is free.
// The cohort keeps its size, since the evicted pod's workload replaces it. The other pod must be known to the store,
// and of the same cohort, and not the decision's own; else the decision is returned as it is. Take the decision anew if
// pods were placed since: it is not known which of them it counts.
func (s *Store) WithoutPod(d Decision, other *v1.Pod) Decision {
	s.mu.RLock()
	defer s.mu.RUnlock()
	p := s.state.ofCohort(d, other)
	if p == nil {
		return d
	}
	if g := s.state.groupIn(d, p); g != NoGroup && d.Placed(g) > 0 {
		return d.move(p, g, NoGroup)
	}
	return d
}

// WithPod returns the decision as it would be if the other pod were placed on a node with the given labels. A pod that
// the decision has judged already, being placed or nominated, stays as it was judged, unless WithoutPod has taken it
// away. The other pod must be known to the store, and of the same cohort, and not the decision's own; else the decision
// is returned as it is. Take the decision anew if pods were placed since.
func (s *Store) WithPod(d Decision, other *v1.Pod, nodeLabels map[string]string) Decision {
	s.mu.RLock()
	defer s.mu.RUnlock()
	p := s.state.ofCohort(d, other)
	if p == nil {
		return d
	}
	evicted := slices.Contains(d.moved, placement{p.uid, NoGroup})
	judged := s.state.groupIn(d, p) != NoGroup || s.state.nominated[p] != nil
	if judged && !evicted {
		return d
	}
	return d.move(p, NoGroup, d.GroupOf(nodeLabels))
}

// ofCohort returns the pod if it is tracked and another pod of the decision's cohort, else nil.
func (s *state) ofCohort(d Decision, obj *v1.Pod) *pod {
	p := s.pods[uidOf(obj)]
	if p == nil || p.uid == d.pod || p.cohort == nil || p.cohort != s.cohort(d.CohortID()) {
		return nil
	}
	return p
}

// groupIn returns the group in which the decision counts the other pod, NoGroup if in none.
func (s *state) groupIn(d Decision, p *pod) Group {
	if i := d.indexOfMoved(p); i >= 0 {
		return d.moved[i].group
	}
	if p.group == NoGroup && s.holdsAgainst(p, d) {
		return p.held
	}
	return p.group
}

// move counts the other pod in another group; either may be NoGroup.
func (d Decision) move(p *pod, from, to Group) Decision {
	d.moved = slices.Clone(d.moved)
	if i := d.indexOfMoved(p); i >= 0 {
		d.moved[i].group = to
	} else {
		d.moved = append(d.moved, placement{p.uid, to})
	}
	d.count(from, -1)
	d.count(to, +1)
	d.conclude()
	return d
}

func (d Decision) indexOfMoved(p *pod) int {
	return slices.IndexFunc(d.moved, func(at placement) bool { return at.uid == p.uid })
}

// CouldEvict reports whether the group holds so many pods of the same cohort with a lower priority that without them
// the pod would get a place. If not, nothing but a change of the cohort or its policy lets the pod in. Those that
// WithoutPod has taken away cannot be evicted again.
func (s *Store) CouldEvict(d Decision, g Group) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	c := s.state.cohort(d.CohortID())
	if c == nil {
		return false
	}
	lower := 0
	for key, pods := range c.placed.all {
		if key.group == g && key.priority < d.priority {
			lower += pods
		}
	}
	for _, at := range d.moved {
		p := s.state.pods[at.uid]
		if p == nil || p.cohort != c || p.priority >= d.priority {
			continue
		}
		if p.group == g {
			lower--
		}
		if at.group == g {
			lower++
		}
	}
	return d.Placed(g)-lower < d.Quota(g)
}

// LowerPriority returns the placed pods of the cohort that have a lower priority than the decision's pod, by UID, each
// with the name of its node. They are those that the store knows, also if WithoutPod has taken them out of the
// decision.
func (s *Store) LowerPriority(d Decision) map[types.UID]string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	c := s.state.cohort(d.CohortID())
	if c == nil || !c.hasPlacedBelow(d.priority) {
		return nil
	}
	pods := map[types.UID]string{}
	for uid := range c.qualifying.All() {
		if p := s.state.pods[uid]; p.group != NoGroup && p.priority < d.priority {
			pods[uid] = p.placed.name
		}
	}
	return pods
}

func (c *cohort) hasPlacedBelow(priority int32) bool {
	for key := range c.placed.all {
		if key.priority < priority {
			return true
		}
	}
	return false
}
