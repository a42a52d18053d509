package policystore

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
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
	// BestEffort lets the pod go to the other group.
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

// DefaultMatchLabelKeys returns the keys that make each revision of a Deployment, or of an Argo Rollout, a cohort of its
// own.
func DefaultMatchLabelKeys() []string {
	return []string{"pod-template-hash", "rollouts-pod-template-hash"}
}

// Policy asks for a share of the pods that it selects to be placed on one group of nodes.
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
	// NodeSelector splits the nodes into two groups. Required.
	NodeSelector *metav1.LabelSelector
	// MatchLabelKeys are the pod labels that divide the selected pods into cohorts, each of which is
	// held to TargetSize by itself. Nil means [DefaultMatchLabelKeys]; empty counts all pods together.
	MatchLabelKeys []string
	// Action is Must or MustNot; empty means Must.
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

// compiledPolicy is a valid policy with its defaults applied. It is immutable.
type compiledPolicy struct {
	Policy
	podSelector, nodeSelector labelselector.Selector
	// size is a percentage of the cohort or a number of pods.
	size    int
	percent bool
}

func compile(p Policy) (*compiledPolicy, error) {
	c := &compiledPolicy{Policy: p}
	var errs field.ErrorList

	if p.Weight < 0 {
		errs = append(errs, field.Invalid(field.NewPath("weight"), p.Weight, "must be 0 or more"))
	}
	switch p.EnforcementMode {
	case "":
		c.EnforcementMode = BestEffort
	case Strict, BestEffort:
	default:
		errs = append(errs, field.NotSupported(field.NewPath("enforcementMode"), p.EnforcementMode, []EnforcementMode{BestEffort, Strict}))
	}
	switch p.Action {
	case "":
		c.Action = Must
	case Must, MustNot:
	default:
		errs = append(errs, field.NotSupported(field.NewPath("policy", "action"), p.Action, []Action{Must, MustNot}))
	}

	var err *field.Error
	if c.podSelector, err = compileSelector(field.NewPath("podSelector"), p.PodSelector); err != nil {
		errs = append(errs, err)
	}
	if c.nodeSelector, err = compileSelector(field.NewPath("nodeSelector"), p.NodeSelector); err != nil {
		errs = append(errs, err)
	}

	if p.MatchLabelKeys == nil {
		c.MatchLabelKeys = DefaultMatchLabelKeys()
	}
	c.MatchLabelKeys = slices.Clone(c.MatchLabelKeys) // an empty one stays empty, not nil
	slices.Sort(c.MatchLabelKeys)
	c.MatchLabelKeys = slices.Compact(c.MatchLabelKeys)
	for i, key := range p.MatchLabelKeys {
		for _, msg := range validation.IsQualifiedName(key) {
			errs = append(errs, field.Invalid(field.NewPath("matchLabelKeys").Index(i), key, "must be a label key: "+msg))
		}
	}

	if p.TargetSize == nil {
		c.TargetSize = new(intstr.FromString("100%"))
	}
	if c.size, c.percent, err = parseTargetSize(*c.TargetSize); err != nil {
		errs = append(errs, err)
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

// percentPattern is what the schema of a PlacementPolicy allows too.
var percentPattern = regexp.MustCompile(`^(100|[0-9]{1,2})%$`)

func parseTargetSize(t intstr.IntOrString) (size int, percent bool, _ *field.Error) {
	path := field.NewPath("policy", "targetSize")
	const want = "must be an integer of 0 or more, or a percentage from 0% to 100%, such as 40%"
	if t.Type == intstr.Int {
		if t.IntVal < 0 {
			return 0, false, field.Invalid(path, t.IntVal, want)
		}
		return int(t.IntVal), false, nil
	}
	if !percentPattern.MatchString(t.StrVal) {
		return 0, false, field.Invalid(path, t.StrVal, want)
	}
	size, _ = strconv.Atoi(strings.TrimSuffix(t.StrVal, "%"))
	return size, true, nil
}

// target is T(n): how many of n pods belong in the target group, 0 <= T(n) <= n.
func (c *compiledPolicy) target(n int) int {
	if c.percent {
		return n/100*c.size + n%100*c.size/100 // n*c.size may overflow
	}
	return min(c.size, n)
}

// groupOf returns the group that a node with these labels is in.
func (c *compiledPolicy) groupOf(nodeLabels labels.Labels) Group {
	if c.nodeSelector.Matches(nodeLabels) == (c.Action == Must) {
		return Target
	}
	return Other
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
	return c == o || c != nil && o != nil && c.Action == o.Action && c.nodeSelector.String() == o.nodeSelector.String()
}

// hasNodeSelector reports whether the policy, which may be nil, has the node selector of the given text.
func (c *compiledPolicy) hasNodeSelector(text string) bool {
	return c != nil && c.nodeSelector.String() == text
}

// equal reports whether both policies mean the same.
func (c *compiledPolicy) equal(o *compiledPolicy) bool {
	return c.sameGrouping(o) && c.size == o.size && c.percent == o.percent
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
