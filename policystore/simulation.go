package policystore

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// WithoutPod returns the decision as it would be if the other pod, which is placed, were evicted: if it is of the same
// cohort its place is free. The cohort keeps its size, since the evicted pod's workload replaces it.
func (s *Store) WithoutPod(d Decision, other *v1.Pod) Decision {
	s.mu.RLock()
	defer s.mu.RUnlock()
	p := s.state.pods[uidOf(other)]
	if p == nil || p.cohort == nil || p.cohort != d.cohort {
		return d
	}
	at := placement{p.uid, p.group}
	if i := slices.IndexFunc(d.added, func(a placement) bool { return a.uid == p.uid }); i >= 0 {
		at = d.added[i]
	}
	if at.group == NoGroup || slices.Contains(d.removed, at) {
		return d
	}
	d.removed = append(slices.Clip(d.removed), at)
	d.count(at.group, -1)
	d.conclude()
	return d
}

// WithPod returns the decision as it would be if the other pod were placed on a node with the given labels. A pod that
// the decision has judged already, being placed or nominated, is not counted twice; one that WithoutPod took away comes
// back.
func (s *Store) WithPod(d Decision, other *v1.Pod, nodeLabels map[string]string) Decision {
	s.mu.RLock()
	defer s.mu.RUnlock()
	p := s.state.pods[uidOf(other)]
	if p == nil || p.cohort == nil || p.cohort != d.cohort {
		return d
	}
	sameUID := func(a placement) bool { return a.uid == p.uid }
	at := placement{p.uid, d.GroupOf(nodeLabels)}
	if i := slices.IndexFunc(d.removed, sameUID); i >= 0 {
		at = d.removed[i]
		d.removed = slices.Concat(d.removed[:i], d.removed[i+1:])
	} else if p.group != NoGroup || s.state.nominated[p] != "" || slices.ContainsFunc(d.added, sameUID) {
		return d
	} else {
		d.added = append(slices.Clip(d.added), at)
	}
	d.count(at.group, +1)
	d.conclude()
	return d
}

// CouldEvict reports whether the group holds so many pods of the same cohort with a lower priority that without them the
// pod would get a place. If not, nothing but a change of the cohort or its policy lets the pod in.
func (s *Store) CouldEvict(d Decision, g Group) bool {
	if d.cohort == nil {
		return false
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	lower := 0
	for key, pods := range d.cohort.placed {
		if key.group == g && key.priority < d.priority {
			lower += pods
		}
	}
	return d.placed(g)-lower < d.Quota(g)
}

// LowerPriority returns the placed pods of the cohort that have a lower priority than the decision's pod, by UID, each
// with the name of its node.
func (s *Store) LowerPriority(d Decision) map[types.UID]string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if d.cohort == nil || !d.cohort.hasPlacedBelow(d.priority) {
		return nil
	}
	pods := map[types.UID]string{}
	for uid := range d.cohort.qualifying.All() {
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
