package policystore

import (
	"iter"
	"maps"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// PolicyInfo is what the store knows of a policy at one moment.
type PolicyInfo struct {
	// Policy is the policy with its defaults applied; if Err is set, only its name.
	Policy Policy
	// Err says why the policy is invalid and therefore governs nothing. Nil if it is valid.
	Err error
	// Cohorts are the cohorts with at least one qualifying pod, in the order of their labels.
	Cohorts []Cohort
	// OverruledBy has how many pods the policy selects, but another one governs, active or not, by that other policy.
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

// Quota returns how many of n pods belong in the group, which is how many of the first n slots of the policy's plan do: 0
// for NoGroup, and if the policy is invalid.
func (i PolicyInfo) Quota(g Group, n int) int {
	if g > i.spec.groups().last() {
		return 0
	}
	return int(i.spec.groups().plan.counts(min(max(0, n), math.MaxInt32))[g])
}

// GroupOfSlot returns the group that slot n of the policy's plan belongs to: the one for the n-th pod. It is NoGroup if n is
// less than 1, and if the policy is invalid.
func (i PolicyInfo) GroupOfSlot(n int) Group {
	if n < 1 {
		return NoGroup
	}
	return i.spec.groups().plan.groupOf(min(n, math.MaxInt32))
}

// Cohort is the pods that a policy governs and that agree on its MatchLabelKeys.
type Cohort struct {
	// Labels are the labels that the pods agree on: those of the MatchLabelKeys that they have.
	Labels map[string]string
	// Qualifying is how many pods count: the active ones, pending or placed.
	Qualifying int
	// Size is how many pods the cohort is to have: Qualifying, or what its workload wants if that is more.
	Size int
	// Placed are how many pods are placed in each group, and Quota how many of all Size pods belong there, both from the
	// first group on. Pods that are in no group are pending, or on a node that is not known or that no group has.
	Placed, Quota []int
	// Managed and Target are what Placed and Quota say of all groups but the last together; Other is what Placed says of
	// the last.
	Managed, Target, Other int
	// QualifyingPods and ManagedPods are the UIDs of the Qualifying and Managed pods. Unlike the
	// numbers they are live: they go on with the store, until no pod of the cohort qualifies.
	QualifyingPods, ManagedPods SetReader[types.UID]
}

func (p *policy) info() PolicyInfo {
	info := PolicyInfo{Err: p.err, Policy: Policy{NamespacedName: p.key}, spec: p.spec}
	if p.spec == nil {
		return info
	}
	info.Policy = p.spec.Policy
	if len(p.overruledBy) > 0 {
		info.OverruledBy = make(map[types.NamespacedName]int, len(p.overruledBy))
		for by, pods := range p.overruledBy {
			info.OverruledBy[by.key] = pods
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p.cohorts)) {
		c := p.cohorts[key]
		size := c.size()
		quota := p.spec.plan.counts(size)
		info.Cohorts = append(info.Cohorts, Cohort{
			Labels:         c.labels.toMap(),
			Qualifying:     c.qualifying.Len(),
			Size:           size,
			Placed:         c.counts.list(p.spec.last()),
			Quota:          quota.list(p.spec.last()),
			Managed:        p.spec.managed(c.counts),
			Target:         p.spec.managed(quota),
			Other:          int(c.counts[p.spec.last()]),
			QualifyingPods: &c.qualifying,
			ManagedPods:    &c.managed,
		})
	}
	return info
}
