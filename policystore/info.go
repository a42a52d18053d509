package policystore

import (
	"iter"
	"maps"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// PolicyInfo is what the store knows of a policy at one moment. It is the caller's, who may change it.
type PolicyInfo struct {
	// Policy is the policy with its defaults applied; if Err is set, only its name.
	Policy Policy
	// Err says why the policy is invalid and therefore governs nothing. Nil if it is valid.
	Err error
	// Cohorts are the cohorts with at least one qualifying pod, in the order of their labels.
	Cohorts []Cohort
	// OverruledBy has how many pods the policy selects, but another one governs, active or not, by that other policy.
	// Of more than eight policies that select a pod, the first eight count it, in the order in which they would govern
	// it.
	OverruledBy map[types.NamespacedName]int

	spec *compiledPolicy
}

// Groups yields the groups of the policy, in order; none if the policy is invalid.
func (i PolicyInfo) Groups() iter.Seq[Group] { return i.spec.groups().all() }

// GroupName returns what the policy calls the group; empty for NoGroup.
func (i PolicyInfo) GroupName(g Group) string { return i.spec.groups().name(g) }

// GroupOf returns the group that a node with these labels is in: NoGroup if it is in none, or if the policy is invalid.
func (i PolicyInfo) GroupOf(nodeLabels map[string]string) Group {
	return i.spec.groups().groupOf(labels.Set(nodeLabels))
}

// Quota returns how many of n pods belong in the group, which is how many of the first n slots of the policy's plan do:
// 0 for NoGroup, and if the policy is invalid.
func (i PolicyInfo) Quota(g Group, n int) int {
	counts := i.spec.groups().plan.counts(min(max(0, n), math.MaxInt32))
	return counts.of(g)
}

// GroupOfSlot returns the group that slot n of the policy's plan belongs to: the one for the n-th pod. It is NoGroup if
// n is less than 1, and if the policy is invalid.
func (i PolicyInfo) GroupOfSlot(n int) Group {
	if n < 1 {
		return NoGroup
	}
	return i.spec.groups().plan.groupOf(min(n, math.MaxInt32))
}

// Cohort is the pods that a policy governs and that agree on its MatchLabelKeys.
type Cohort struct {
	// ID identifies the cohort.
	ID CohortID
	// Labels are the labels that the pods agree on: those of the MatchLabelKeys that they have.
	Labels map[string]string
	// Qualifying is how many pods count: the active ones, pending or placed.
	Qualifying int
	// Size is how many pods the cohort is to have: Qualifying, or what its workload wants if that is more.
	Size int
	// Placed are how many pods are placed in each group, and Quota how many of all Size pods belong there, both from
	// the first group on. Pods that are in no group are pending, or on a node that is not known or that no group has.
	Placed, Quota []int
	// Managed and Target are what Placed and Quota say of all groups but the last together; Other is what Placed says
	// of the last.
	Managed, Target, Other int
	// QualifyingPods and ManagedPods are the UIDs of the Qualifying and Managed pods. Unlike the numbers they are live:
	// they go on with the store, also when no pod of the cohort is left, or the policy is replaced by one of the same
	// name.
	QualifyingPods, ManagedPods SetReader[types.UID]
}

// cohortsAtOnce is how many cohorts are read under the lock at once, and how many pods.
const cohortsAtOnce = 250

// Policy returns what the store knows of a policy, and whether it is there. It lets others in after each thousand
// cohorts: what it tells of more of them is of several moments.
func (s *Store) Policy(key types.NamespacedName) (info PolicyInfo, ok bool) {
	cohorts := make([]*cohort, 0, s.cohortCount(key)) // an allocation under the lock may have to help the garbage collector
	pol, spec, cohorts := s.beginPolicy(key, &info, cohorts)
	if pol == nil {
		return PolicyInfo{}, false
	}
	read := make([]cohortNumbers, 0, len(cohorts))
	for some := range slices.Chunk(cohorts, cohortsAtOnce) {
		s.mu.RLock()
		if s.state.policies[key] != pol || pol.spec != spec {
			s.mu.RUnlock()
			return s.Policy(key)
		}
		for _, c := range some {
			if pol.cohorts[c.labels] == c {
				read = append(read, c.numbers())
			}
		}
		s.mu.RUnlock()
	}
	s.conclude(&info, read)
	return info, true
}

// cohortCount returns how many cohorts a policy has.
func (s *Store) cohortCount(key types.NamespacedName) int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if pol := s.state.policies[key]; pol != nil {
		return len(pol.cohorts)
	}
	return 0
}

// beginPolicy reads all of the policy but its cohorts, which it appends to the list.
func (s *Store) beginPolicy(key types.NamespacedName, info *PolicyInfo, list []*cohort) (*policy, *compiledPolicy, []*cohort) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	pol := s.state.policies[key]
	if pol == nil {
		return nil, nil, nil
	}
	pol.read(info)
	return pol, pol.spec, slices.AppendSeq(list, maps.Values(pol.cohorts))
}

// Snapshot returns what the store knows of all policies at one moment, in the order of namespaces and then of names. It
// keeps out whoever changes the store meanwhile: a few milliseconds for 10,000 cohorts. Where that is too long, take
// [Store.Policies] and then [Store.Policy] of each.
func (s *Store) Snapshot() []PolicyInfo {
	s.mu.RLock()
	infos := make([]PolicyInfo, 0, len(s.state.policies))
	read := make([][]cohortNumbers, 0, len(s.state.policies))
	for _, pol := range s.state.policies {
		var info PolicyInfo
		pol.read(&info)
		numbers := make([]cohortNumbers, 0, len(pol.cohorts))
		for _, c := range pol.cohorts {
			numbers = append(numbers, c.numbers())
		}
		infos, read = append(infos, info), append(read, numbers)
	}
	s.mu.RUnlock()
	for i := range infos {
		s.conclude(&infos[i], read[i])
	}
	slices.SortFunc(infos, func(a, b PolicyInfo) int { return compareKeys(a.Policy.NamespacedName, b.Policy.NamespacedName) })
	return infos
}

// read reads all but the cohorts.
func (p *policy) read(info *PolicyInfo) {
	*info = PolicyInfo{Err: p.err, Policy: Policy{NamespacedName: p.key}, spec: p.spec}
	if p.spec == nil {
		return
	}
	if len(p.overruledBy) > 0 {
		info.OverruledBy = make(map[types.NamespacedName]int, len(p.overruledBy))
		for by, pods := range p.overruledBy {
			info.OverruledBy[by.key] = pods
		}
	}
}

// cohortNumbers is what can only be read under the lock.
type cohortNumbers struct {
	labels           flatLabels
	qualifying, size int
	placed           perGroup
}

func (c *cohort) numbers() cohortNumbers {
	return cohortNumbers{c.labels, c.qualifying.Len(), c.size(), c.counts}
}

// conclude adds what needs no lock.
func (s *Store) conclude(info *PolicyInfo, read []cohortNumbers) {
	if info.spec == nil {
		return
	}
	info.Policy = info.spec.Policy.clone()
	slices.SortFunc(read, func(a, b cohortNumbers) int { return a.labels.compare(b.labels) })
	for _, c := range read {
		quota := info.spec.plan.counts(c.size)
		id := CohortID{info.Policy.NamespacedName, c.labels}
		info.Cohorts = append(info.Cohorts, Cohort{
			ID:             id,
			Labels:         c.labels.toMap(),
			Qualifying:     c.qualifying,
			Size:           c.size,
			Placed:         c.placed.list(info.spec.last()),
			Quota:          quota.list(info.spec.last()),
			Managed:        info.spec.managed(c.placed),
			Target:         info.spec.managed(quota),
			Other:          int(c.placed[info.spec.last()]),
			QualifyingPods: podSet{store: s, id: id},
			ManagedPods:    podSet{store: s, id: id, managed: true},
		})
	}
}
