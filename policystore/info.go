package policystore

import (
	"maps"
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

// GroupOf returns the group that a node with these labels is in: Target or Other, or NoGroup if the policy is invalid.
func (i PolicyInfo) GroupOf(nodeLabels map[string]string) Group {
	if i.spec == nil {
		return NoGroup
	}
	return i.spec.groupOf(labels.Set(nodeLabels))
}

// TargetOf returns how many of n pods belong in the target group; 0 if the policy is invalid.
func (i PolicyInfo) TargetOf(n int) int {
	if i.spec == nil {
		return 0
	}
	return i.spec.target(n)
}

// Cohort is the pods that a policy governs and that agree on its MatchLabelKeys.
type Cohort struct {
	// Labels are the labels that the pods agree on: those of the MatchLabelKeys that they have.
	Labels map[string]string
	// Qualifying is how many pods count: the active ones, pending or placed.
	Qualifying int
	// Size is what the target is a part of: Qualifying, or what the cohort's workload wants if that is more.
	Size int
	// Target is how many pods belong in the target group.
	Target int
	// Managed and Other are how many are placed in the target group and in the other group. The rest are pending, or
	// on a node that is not known.
	Managed, Other int
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
		info.Cohorts = append(info.Cohorts, Cohort{
			Labels:         c.labels.toMap(),
			Qualifying:     c.qualifying.Len(),
			Size:           size,
			Target:         p.spec.target(size),
			Managed:        c.managed.Len(),
			Other:          c.other,
			QualifyingPods: &c.qualifying,
			ManagedPods:    &c.managed,
		})
	}
	return info
}
