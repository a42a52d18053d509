package policystore

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/placement-policy/scheduler-plugin/labelselector"
)

// EnforcementMode says what happens to a pod when the group that it should go to has no room.
type EnforcementMode string

const (
	// Strict keeps the pod pending rather than break the ratio.
	Strict EnforcementMode = "Strict"
	// BestEffort lets the pod go to another group.
	BestEffort EnforcementMode = "BestEffort"
)

// Action says which nodes are the target group.
type Action string

const (
	// Must makes the nodes that the node selector matches the target group.
	Must Action = "Must"
	// MustNot makes the nodes that the node selector does not match the target group.
	MustNot Action = "MustNot"
)

// DefaultMatchLabelKeys returns the keys that make each revision of a Deployment, or of an Argo Rollout, a cohort of
// its own.
func DefaultMatchLabelKeys() []string {
	return []string{"pod-template-hash", "rollouts-pod-template-hash"}
}

// Policy says on which groups of nodes the pods that it selects are to be placed. It has Groups or, in place of them,
// NodeSelector with Action and TargetSize, which stand for two groups: "target", with TargetSize for its share or base,
// and "other", which takes the rest.
type Policy struct {
	// NamespacedName is the policy's identity. It governs pods of its own namespace only.
	types.NamespacedName
	// Weight decides between policies that select the same pod: the heaviest governs it, then a
	// Strict one before a BestEffort one, then the first by name. At least 0.
	Weight int32
	// EnforcementMode is Strict or BestEffort; empty means BestEffort.
	EnforcementMode EnforcementMode
	// PodSelector selects the pods. Required; an empty selector selects every pod of the namespace.
	PodSelector *metav1.LabelSelector
	// MatchLabelKeys are the pod labels that divide the selected pods into cohorts, each of which is
	// held to the policy by itself. Nil means [DefaultMatchLabelKeys]; empty counts all pods together.
	MatchLabelKeys []string

	// Groups are 1 to MaxGroups groups, in order. Nil means the two groups of the fields below.
	Groups []NodeGroup

	// NodeSelector divides the nodes into those that it matches and all others. Required without Groups.
	NodeSelector *metav1.LabelSelector
	// Action says which of the two are the target group: Must or MustNot; empty means Must.
	Action Action
	// TargetSize is how many pods of a cohort belong in the target group: a number of at least 0, or
	// a percentage from "0%" to "100%", rounded down. Nil means 100%.
	TargetSize *intstr.IntOrString
}

// Validate returns what is wrong with the policy, field by field, under the names that the fields have in a
// PlacementPolicy; or nil.
func (p Policy) Validate() error {
	_, err := compile(p)
	return err
}

// clone returns a copy that shares nothing with the policy.
func (p Policy) clone() Policy {
	p.PodSelector = p.PodSelector.DeepCopy()
	p.MatchLabelKeys = slices.Clone(p.MatchLabelKeys) // an empty one stays empty, not nil
	p.Groups = slices.Clone(p.Groups)
	for i := range p.Groups {
		g := &p.Groups[i]
		g.NodeSelector = g.NodeSelector.DeepCopy()
		if g.Max != nil {
			limit := *g.Max
			g.Max = &limit
		}
	}
	p.NodeSelector = p.NodeSelector.DeepCopy()
	if p.TargetSize != nil {
		size := *p.TargetSize
		p.TargetSize = &size
	}
	return p
}

// compiledPolicy is a valid policy with its defaults applied. It is immutable.
type compiledPolicy struct {
	Policy
	podSelector labelselector.Selector
	nodeGroups
}

var noGroups nodeGroups

// groups returns the policy's groups; none if the policy is nil.
func (c *compiledPolicy) groups() *nodeGroups {
	if c == nil {
		return &noGroups
	}
	return &c.nodeGroups
}

var defaultTargetSize = intstr.FromString("100%")

func compile(p Policy) (*compiledPolicy, error) {
	c := &compiledPolicy{Policy: p.clone()}
	var errs field.ErrorList

	if p.Weight < 0 {
		errs = append(errs, field.Invalid(field.NewPath("weight"), p.Weight, "must be 0 or more"))
	}
	switch p.EnforcementMode {
	case "":
		c.EnforcementMode = BestEffort
	case Strict, BestEffort:
	default:
		modes := []EnforcementMode{BestEffort, Strict}
		errs = append(errs, field.NotSupported(field.NewPath("enforcementMode"), p.EnforcementMode, modes))
	}
	var err *field.Error
	if c.podSelector, err = compileSelector(field.NewPath("podSelector"), p.PodSelector); err != nil {
		errs = append(errs, err)
	}
	var groupErrs field.ErrorList
	c.nodeGroups, groupErrs = compileGroups(&p)
	errs = append(errs, groupErrs...)
	if p.Groups == nil {
		c.Action = cmp.Or(p.Action, Must)
		size := *cmp.Or(p.TargetSize, &defaultTargetSize)
		c.TargetSize = &size
	}

	if p.MatchLabelKeys == nil {
		c.MatchLabelKeys = DefaultMatchLabelKeys()
	}
	slices.Sort(c.MatchLabelKeys)
	c.MatchLabelKeys = slices.Compact(c.MatchLabelKeys)
	for i, key := range p.MatchLabelKeys {
		for _, msg := range validation.IsQualifiedName(key) {
			errs = append(errs, field.Invalid(field.NewPath("matchLabelKeys").Index(i), key, "must be a label key: "+msg))
		}
	}

	if len(errs) > 0 {
		return nil, fmt.Errorf("invalid placement policy %s: %w", p.NamespacedName, errs.ToAggregate())
	}
	return c, nil
}

func compileSelector(path *field.Path, s *metav1.LabelSelector) (labelselector.Selector, *field.Error) {
	if s == nil {
		return labelselector.Selector{}, field.Required(path, "write {} to select everything")
	}
	compiled, err := labelselector.Compile(s)
	if err != nil {
		return labelselector.Selector{}, field.Invalid(path, field.OmitValueType{}, err.Error())
	}
	return compiled, nil
}

// sameGrouping reports whether both policies select the same pods with the same rank, and divide pods and nodes in the
// same way: then only the numbers differ.
func (c *compiledPolicy) sameGrouping(o *compiledPolicy) bool {
	return c == o || o != nil &&
		c.Weight == o.Weight && c.EnforcementMode == o.EnforcementMode &&
		slices.Equal(c.MatchLabelKeys, o.MatchLabelKeys) &&
		c.podSelector.String() == o.podSelector.String() && c.sameDivision(o)
}

// sameDivision reports whether both policies, each of which may be nil, divide the nodes in the same way.
func (c *compiledPolicy) sameDivision(o *compiledPolicy) bool {
	return c == o || c != nil && o != nil && c.division == o.division
}

// equal reports whether both policies mean the same.
func (c *compiledPolicy) equal(o *compiledPolicy) bool {
	return c.sameGrouping(o) && c.nodeGroups.equal(&o.nodeGroups)
}

// compareRank orders policies by which of them governs a pod that both select: the governing one first.
func compareRank(a, b *compiledPolicy) int {
	strictFirst := func(c *compiledPolicy) int {
		if c.EnforcementMode == Strict {
			return 0
		}
		return 1
	}
	return cmp.Or(
		cmp.Compare(b.Weight, a.Weight),
		cmp.Compare(strictFirst(a), strictFirst(b)),
		cmp.Compare(a.Name, b.Name),
	)
}
