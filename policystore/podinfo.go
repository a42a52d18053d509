package policystore

import (
	"iter"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PodInfo is what the store knows of a pod at one moment.
type PodInfo struct {
	// UID is what the store knows the pod by: of a pod without UID its namespace and name.
	UID types.UID
	// Policy is the policy that governs the pod. It is zero if none does; NotGoverned then says why in words.
	Policy      types.NamespacedName
	NotGoverned string
	// Cohort is the cohort in which the pod counts. It is zero if the pod does not count: since no policy governs it,
	// or since it is not active, which NotActive then says in words.
	Cohort    CohortID
	NotActive string
	// Group is the group in which the pod is placed, and GroupName what the policy calls it: NoGroup if the pod does
	// not count, is pending, or is on a node that is not known or that no group has.
	Group     Group
	GroupName string
	// Node is the node that the pod is bound to or, if Reserved, that AssumePod has reserved for it; empty if it is
	// pending.
	Node     string
	Reserved bool
}

// Pod returns what the store knows of a pod, and whether it tracks it. One that is not tracked is judged by the given
// object: which policy would govern it, or why none would.
func (s *Store) Pod(pod *v1.Pod) (info PodInfo, tracked bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if p := s.state.pods[uidOf(pod)]; p != nil {
		info = p.info()
		tracked = true
	} else {
		info = PodInfo{UID: uidOf(pod), NotActive: notActive(ended(pod), gated(pod))}
		if d, governed := s.state.decide(pod); governed {
			info.Policy = d.Policy
		}
	}
	info.NotGoverned = s.state.whyNotGoverned(pod)
	return info, tracked
}

// PodsOf returns the pods that count in a policy's cohorts, in no particular order: each as it is at one moment, but
// not all at the same.
func (s *Store) PodsOf(policy types.NamespacedName) []PodInfo {
	var infos []PodInfo
	for _, set := range s.setsOf(policy) {
		for some := range slices.Chunk(slices.Collect(set.All()), cohortsAtOnce) {
			infos = slices.Grow(infos, len(some)) // not under the lock
			s.mu.RLock()
			for _, uid := range some {
				if p := s.state.pods[uid]; p != nil && p.cohort != nil && p.cohort.policy.key == policy {
					infos = append(infos, p.info())
				}
			}
			s.mu.RUnlock()
		}
	}
	return infos
}

// setsOf returns the qualifying pods of each of the policy's cohorts.
func (s *Store) setsOf(policy types.NamespacedName) (sets []*Set[types.UID]) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if pol := s.state.policies[policy]; pol != nil {
		for _, c := range pol.cohorts {
			sets = append(sets, &c.qualifying)
		}
	}
	return sets
}

func (p *pod) info() PodInfo {
	info := PodInfo{UID: p.uid, NotActive: notActive(p.ended, p.gated), Group: p.group, Node: nameOf(p.placed), Reserved: p.reserved != nil}
	if pol := p.labelSet.governing(); pol != nil {
		info.Policy = pol.key
		info.GroupName = pol.spec.groups().name(p.group)
	}
	if c := p.cohort; c != nil {
		info.Cohort = CohortID{c.policy.key, c.labels}
	}
	return info
}

// notActive says why a pod is not active; empty if it is.
func notActive(ended, gated bool) string {
	switch {
	case ended:
		return "it is finished or being deleted"
	case gated:
		return "scheduling gates hold it back"
	default:
		return ""
	}
}

// podSet is a live set of pods of a cohort, whether or not any of them is there yet or still.
type podSet struct {
	store   *Store
	id      CohortID
	managed bool // those, not all qualifying ones
}

// now returns the set of this moment, which reads after that are of, without the store's lock.
func (s podSet) now() *Set[types.UID] {
	s.store.mu.RLock()
	defer s.store.mu.RUnlock()
	switch c := s.store.state.cohort(s.id); {
	case c == nil:
		return &Set[types.UID]{}
	case s.managed:
		return &c.managed
	default:
		return &c.qualifying
	}
}

func (s podSet) Has(uid types.UID) bool { return s.now().Has(uid) }

func (s podSet) Len() int { return s.now().Len() }

func (s podSet) All() iter.Seq[types.UID] {
	return func(yield func(types.UID) bool) { s.now().All()(yield) }
}
