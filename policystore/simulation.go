package policystore

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// WithoutPod returns the decision as it would be if the other pod, which is placed, were evicted: its place is free. The
// cohort keeps its size, since the evicted pod's workload replaces it. The other pod must be known to the store, and of
// the same cohort; else the decision is returned as it is. Take the decision anew if pods were placed since: it is not
// known which of them it counts.
func (s *Store) WithoutPod(d Decision, other *v1.Pod) Decision {
	s.mu.RLock()
	defer s.mu.RUnlock()
	p := s.state.ofCohort(d, other)
	if p == nil || indexOf(d.removed, p) >= 0 {
		return d
	}
	at := placement{p.uid, p.group}
	if i := indexOf(d.added, p); i >= 0 {
		at = d.added[i]
	}
	if at.group == NoGroup || d.placed(at.group) == 0 {
		return d
	}
	d.removed = append(slices.Clip(d.removed), at)
	d.count(at.group, -1)
	d.conclude()
	return d
}

// WithPod returns the decision as it would be if the other pod were placed on a node with the given labels. A pod that
// the decision has judged already, being placed or nominated, is not counted twice; one that WithoutPod took away comes
// back. The other pod must be known to the store, and of the same cohort; else the decision is returned as it is. Take the
// decision anew if pods were placed since.
func (s *Store) WithPod(d Decision, other *v1.Pod, nodeLabels map[string]string) Decision {
	s.mu.RLock()
	defer s.mu.RUnlock()
	p := s.state.ofCohort(d, other)
	if p == nil {
		return d
	}
	at := placement{p.uid, d.GroupOf(nodeLabels)}
	if i := indexOf(d.removed, p); i >= 0 {
		at = d.removed[i]
		d.removed = slices.Concat(d.removed[:i], d.removed[i+1:])
	} else if p.group != NoGroup || s.state.nominated[p] != "" || indexOf(d.added, p) >= 0 {
		return d
	} else {
		d.added = append(slices.Clip(d.added), at)
	}
	d.count(at.group, +1)
	d.conclude()
	return d
}

// ofCohort returns the pod if it is tracked and of the decision's cohort, else nil.
func (s *state) ofCohort(d Decision, obj *v1.Pod) *pod {
	p := s.pods[uidOf(obj)]
	if p == nil || p.cohort == nil || p.cohort != s.cohort(d.CohortID()) {
		return nil
	}
	return p
}

func indexOf(placements []placement, p *pod) int {
	return slices.IndexFunc(placements, func(at placement) bool { return at.uid == p.uid })
}

// CouldEvict reports whether the group holds so many pods of the same cohort with a lower priority that without them the
// pod would get a place. If not, nothing but a change of the cohort or its policy lets the pod in. Those that WithoutPod
// has taken away cannot be evicted again.
func (s *Store) CouldEvict(d Decision, g Group) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	c := s.state.cohort(d.CohortID())
	if c == nil {
		return false
	}
	lower := 0
	for key, pods := range c.placed {
		if key.group == g && key.priority < d.priority {
			lower += pods
		}
	}
	for _, at := range d.removed {
		if p := s.state.pods[at.uid]; p != nil && p.cohort == c && p.group == g && p.priority < d.priority {
			lower--
		}
	}
	return d.placed(g)-lower < d.Quota(g)
}

// LowerPriority returns the placed pods of the cohort that have a lower priority than the decision's pod, by UID, each
// with the name of its node. They are those that the store knows, also if WithoutPod has taken them out of the decision.
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
	for key := range c.placed {
		if key.priority < priority {
			return true
		}
	}
	return false
}
