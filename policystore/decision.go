package policystore

import (
	"fmt"
	"iter"
	"math"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Decision says where a pod may go and where it should go, by the policy that governs it. It is a value: it stays as it
// is when the store moves on. The zero value is the decision for a pod that no policy governs: all groups are open to
// it.
type Decision struct {
	// Policy is the policy that governs the pod.
	Policy types.NamespacedName
	// Qualifying is how many pods of the cohort qualify, the pod itself included.
	Qualifying int
	// Size is N, the size that the cohort is to have: Qualifying, or the size that its workload wants if that is
	// larger.
	Size int
	// Preferred is the group in which the pod keeps what is placed on the policy's plan.
	Preferred Group

	// placed are how many other pods of the cohort are placed in each group, or hold a place there as nominated pods,
	// and quota how many of all Size pods belong there.
	placed, quota perGroup

	spec     *compiledPolicy
	labels   flatLabels // that the cohort's pods agree on
	pod      types.UID
	priority int32
	// moved are the other pods that a simulation counts elsewhere than the store has them: in a group or, evicted, in
	// none. It is never changed in place, since copies share it.
	moved []placement
}

// placement is a pod in a group, which may be NoGroup.
type placement struct {
	uid   types.UID
	group Group
}

// count adds n pods to the group.
func (d *Decision) count(g Group, n int) {
	if g != NoGroup {
		d.placed[g] += int32(n)
	}
}

// conclude sets what follows from the counts. What is placed are the first slots of the plan; if not, as after a
// scale-down, the group that lacks most is preferred.
func (d *Decision) conclude() {
	d.quota = d.spec.plan.counts(d.Size)
	next := d.spec.plan.counts(d.placed.sum() + 1)
	lacks := int32(0)
	for g := range d.spec.all() {
		if n := next[g] - d.placed[g]; n > lacks {
			d.Preferred, lacks = g, n
		}
	}
}

// EnforcementMode returns the mode of the policy; empty if no policy governs the pod.
func (d Decision) EnforcementMode() EnforcementMode {
	if d.spec == nil {
		return ""
	}
	return d.spec.EnforcementMode
}

// Groups yields the groups of the policy, in order; none if no policy governs the pod.
func (d Decision) Groups() iter.Seq[Group] { return d.spec.groups().all() }

// GroupName returns what the policy calls the group; empty for NoGroup.
func (d Decision) GroupName(g Group) string { return d.spec.groups().name(g) }

// GroupOf returns the group that a node with these labels is in: NoGroup if it is in none, or if no policy governs the
// pod.
func (d Decision) GroupOf(nodeLabels map[string]string) Group {
	return d.spec.groups().groupOf(labels.Set(nodeLabels))
}

// Allows reports whether the pod may go to the group. BestEffort allows all. Strict allows a group while it holds fewer
// pods than belong there, so at least one always, and the policy alone never blocks a pod; it does not allow NoGroup.
func (d Decision) Allows(g Group) bool {
	return d.EnforcementMode() != Strict || d.Free(g) > 0
}

// AllowsAll reports whether the pod may go to any node.
func (d Decision) AllowsAll() bool {
	if d.EnforcementMode() != Strict {
		return true
	}
	for g := range d.Groups() {
		if !d.Allows(g) {
			return false
		}
	}
	return d.spec.rest != NoGroup
}

// NewPlaces returns how many pods of the cohort may go where the earlier decision about the pod did not let it go: into
// a group that is open and was not or, if the nodes are now divided in another way, into any that is open. If no Strict
// policy governs the pod any more nothing limits them: that is [math.MaxInt].
func (d Decision) NewPlaces(earlier Decision) int {
	same := d.spec.sameDivision(earlier.spec)
	switch {
	case d.EnforcementMode() == Strict:
	case same && earlier.AllowsAll():
		return 0
	default:
		return math.MaxInt
	}
	places := 0
	for g := range d.Groups() {
		if d.Allows(g) && !(same && earlier.Allows(g)) {
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

// String returns the policy and the labels that the cohort's pods agree on, as in
// default/web{pod-template-hash=5d4f8c}.
func (c CohortID) String() string {
	if c == (CohortID{}) {
		return ""
	}
	return fmt.Sprintf("%s{%s}", c.policy, c.labels)
}

// CohortID returns which cohort the decision counts.
func (d Decision) CohortID() CohortID { return CohortID{d.Policy, d.labels} }

// OnlyGroup returns the group in which a Strict policy wants all pods, however many there are, as with 0% or 100%; ok
// is false for any other policy.
func (d Decision) OnlyGroup() (g Group, ok bool) {
	if d.EnforcementMode() != Strict {
		return NoGroup, false
	}
	g = d.spec.plan.only()
	return g, g != NoGroup
}

// Quota returns how many of the cohort's Size pods belong in the group; 0 for NoGroup.
func (d Decision) Quota(g Group) int { return d.quota.of(g) }

// Placed returns how many other pods of the cohort are placed in the group, or hold a place there as nominated pods; 0
// for NoGroup.
func (d Decision) Placed(g Group) int { return d.placed.of(g) }

// Free returns how many more pods the group takes until it holds all that belong there. It is negative if it holds too
// many, as under BestEffort or after a scale-down.
func (d Decision) Free(g Group) int { return d.Quota(g) - d.Placed(g) }

// Reason says in words why the group is full or, if it is not, how full it is; and of NoGroup which groups there are.
func (d Decision) Reason(g Group) string {
	if g == NoGroup {
		return fmt.Sprintf("placement policy %s: node in none of its groups (%s)", d.Policy, strings.Join(d.spec.names, ", "))
	}
	state := "open"
	if d.Free(g) <= 0 {
		state = "full"
	}
	wanted := ""
	if d.Size > d.Qualifying {
		wanted = fmt.Sprintf(" of %d wanted", d.Size)
	}
	return fmt.Sprintf("placement policy %s: group %s %s (%d of %d pods; %d%s qualify)",
		d.Policy, d.GroupName(g), state, d.Placed(g), d.Quota(g), d.Qualifying, wanted)
}

// Preference says in words why the preferred group is it. It is only for a pod that a policy governs.
func (d Decision) Preference() string {
	placed := d.placed.sum() + 1
	return fmt.Sprintf("group %s should have %d of %d placed, and has %d",
		d.GroupName(d.Preferred), d.spec.groups().plan.counts(placed)[d.Preferred], placed, d.Placed(d.Preferred))
}

// QuotaError is the error of [Store.AssumePod] when a Strict policy lets no more pods into the node's group. The
// message is the decision's reason.
type QuotaError struct {
	Decision Decision
	Group    Group
}

func (e *QuotaError) Error() string { return e.Decision.Reason(e.Group) }
