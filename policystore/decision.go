package policystore

import (
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Group is one of the two groups into which a policy divides the nodes.
type Group uint8

const (
	// NoGroup is the group of a pod that is not placed, or whose node is not known.
	NoGroup Group = iota
	// Target is the group of nodes that a policy's target size speaks of.
	Target
	// Other is the group of all other nodes.
	Other
)

// String returns "target", "other" or "none".
func (g Group) String() string {
	switch g {
	case Target:
		return "target"
	case Other:
		return "other"
	default:
		return "none"
	}
}

// Decision says where a pod may go and where it should go, by the policy that governs it. It is a value: it stays as it
// is when the store moves on. The zero value is the decision for a pod that no policy governs: all groups are open to it.
//
// Allows, Free, Quota and Reason are about the groups Target and Other. They take NoGroup for Other.
type Decision struct {
	// Policy is the policy that governs the pod.
	Policy types.NamespacedName
	// Qualifying is how many pods of the cohort qualify, the pod itself included.
	Qualifying int
	// Size is N, the size of the cohort that Target is a part of: Qualifying, or the size that the
	// cohort's workload wants if that is larger.
	Size int
	// Target is T(Size): how many pods of the cohort belong in the target group.
	Target int
	// Managed and Other are how many pods of the cohort are placed in the target group and in the
	// other group, or hold a place there as nominated pods. The pod itself does not count.
	Managed, Other int
	// Preferred is the group in which the pod keeps the ratio of what is placed exact.
	Preferred Group

	spec     *compiledPolicy
	labels   flatLabels // that the cohort's pods agree on
	pod      types.UID
	priority int32
	// moved are the other pods that a simulation counts elsewhere than the store has them: in a group or, evicted, in none. It
	// is never changed in place, since copies share it.
	moved []placement
}

// placement is a pod in a group, which may be NoGroup.
type placement struct {
	uid   types.UID
	group Group
}

// count adds n pods to the group.
func (d *Decision) count(g Group, n int) {
	switch g {
	case Target:
		d.Managed += n
	case Other:
		d.Other += n
	}
}

// conclude sets what follows from the counts.
func (d *Decision) conclude() {
	d.Target = d.spec.target(d.Size)
	d.Preferred = Other
	if d.Managed < d.spec.target(d.Managed+d.Other+1) {
		d.Preferred = Target
	}
}

// EnforcementMode returns the mode of the policy; empty if no policy governs the pod.
func (d Decision) EnforcementMode() EnforcementMode {
	if d.spec == nil {
		return ""
	}
	return d.spec.EnforcementMode
}

// GroupOf returns the group that a node with these labels is in: Target or Other; NoGroup if no policy governs the pod.
func (d Decision) GroupOf(nodeLabels map[string]string) Group {
	if d.spec == nil {
		return NoGroup
	}
	return d.spec.groupOf(labels.Set(nodeLabels))
}

// Allows reports whether the pod may go to the group. BestEffort allows both. Strict allows a group while it holds fewer
// pods than are meant for it; at least one group always does, so that a policy alone never blocks a pod.
func (d Decision) Allows(g Group) bool {
	return d.EnforcementMode() != Strict || d.Free(g) > 0
}

// NewPlaces returns how many pods of the cohort may go where the earlier decision about the pod did not let it go: into a
// group that is open and was not or, if the nodes are now divided in another way, into any that is open. If no Strict policy
// governs the pod any more nothing limits them: that is [math.MaxInt].
func (d Decision) NewPlaces(earlier Decision) int {
	places := 0
	for _, g := range []Group{Target, Other} {
		switch {
		case !d.Allows(g), d.spec.sameDivision(earlier.spec) && earlier.Allows(g):
		case d.EnforcementMode() != Strict:
			return math.MaxInt
		default:
			places += d.Free(g)
		}
	}
	return places
}

// CohortID identifies a cohort. It is comparable. The zero value stands for pods that no policy governs.
type CohortID struct {
	policy types.NamespacedName
	labels flatLabels
}

// CohortID returns which cohort the decision counts.
func (d Decision) CohortID() CohortID { return CohortID{d.Policy, d.labels} }

// OnlyGroup returns the group in which a Strict policy of 0% or 100% wants all pods, however many there are; ok is false
// for any other policy.
func (d Decision) OnlyGroup() (g Group, ok bool) {
	if d.EnforcementMode() != Strict {
		return NoGroup, false
	}
	index, ok := d.spec.plan.only()
	if !ok {
		return NoGroup, false
	}
	return Group(index + 1), true
}

// Quota returns how many of the cohort's Size pods are meant for the group.
func (d Decision) Quota(g Group) int {
	if g == Target {
		return d.Target
	}
	return d.Size - d.Target
}

// Free returns how many more pods the group takes until it holds all that are meant for it. It is negative if it holds too
// many, as under BestEffort or after a scale-down.
func (d Decision) Free(g Group) int { return d.Quota(g) - d.placed(g) }

func (d Decision) placed(g Group) int {
	if g == Target {
		return d.Managed
	}
	return d.Other
}

// Reason says in words why the group is full or, if it is not, how full it is.
func (d Decision) Reason(g Group) string {
	state := "open"
	if d.Free(g) <= 0 {
		state = "full"
	}
	wanted := ""
	if d.Size > d.Qualifying {
		wanted = fmt.Sprintf(" of %d wanted", d.Size)
	}
	return fmt.Sprintf("placement policy %s: %s group %s (%d of %d pods; %d%s qualify)",
		d.Policy, g, state, d.placed(g), d.Quota(g), d.Qualifying, wanted)
}

// QuotaError is the error of [Store.AssumePod] when a Strict policy lets no more pods into the node's group. The message
// is the decision's reason.
type QuotaError struct {
	Decision Decision
	Group    Group
}

func (e *QuotaError) Error() string { return e.Decision.Reason(e.Group) }
