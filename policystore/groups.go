package policystore

import (
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/placement-policy/scheduler-plugin/labelselector"
)

// Group is the number of a group in its policy, from 1 on.
type Group uint8

const (
	// NoGroup is the group of a node that no group of the policy has, and of a pod that is not placed or whose node is
	// not known.
	NoGroup Group = 0
	// Target and Other are the two groups of a policy without Groups.
	Target Group = 1
	Other  Group = 2
)

// NodeGroup is one of the groups into which a policy divides the nodes, and says how many pods of a cohort belong on
// it: Base of them first of all, then Share of those that are beyond the bases of all groups, but at most Max. The last
// group takes the rest.
type NodeGroup struct {
	// Name is a DNS label, unique in the policy.
	Name string
	// NodeSelector selects the nodes of the group, but for those that an earlier group has. Only the last group may
	// leave it out: it then has all nodes that no other group has. A node may so be in no group.
	NodeSelector *metav1.LabelSelector
	// Base is how many pods belong here before any shares; bases come in the order of the groups. At least 0.
	Base int32
	// Share is a percentage from "0%" to "100%"; empty means "0%". All shares add up to at most 100%. The last group
	// has none.
	Share string
	// Max is how many pods belong here at most; what is over belongs to the last group, which has no Max. At least 0;
	// nil means that there is no limit.
	Max *int32
}

// nodeGroups is the compiled form of a policy's groups. It is immutable.
type nodeGroups struct {
	names []string // from group 1 on
	plan  plan
	// division tells apart how nodes are divided.
	division string
	// A node is in the group of the first claim whose selector matches, else in rest, which may be NoGroup.
	claims []claim
	rest   Group
}

// claim is of the nodes that a selector matches, for a group.
type claim struct {
	selector labelselector.Selector
	group    Group
}

// all yields the groups in order.
func (gs *nodeGroups) all() iter.Seq[Group] {
	return func(yield func(Group) bool) {
		for g := Group(1); g <= gs.last() && yield(g); g++ {
		}
	}
}

// last returns the group that takes the rest.
func (gs *nodeGroups) last() Group { return Group(len(gs.names)) }

// name returns what the policy calls the group; empty for NoGroup.
func (gs *nodeGroups) name(g Group) string {
	if g == NoGroup || g > gs.last() {
		return ""
	}
	return gs.names[g-1]
}

// manages reports whether the pods in the group are managed: those in any group but the last.
func (gs *nodeGroups) manages(g Group) bool { return g != NoGroup && g < gs.last() }

// managed returns how many of the pods are managed.
func (gs *nodeGroups) managed(pods perGroup) int { return pods.sum() - int(pods[gs.last()]) }

// groupOf returns the group that a node with these labels is in, or NoGroup.
func (gs *nodeGroups) groupOf(nodeLabels labels.Labels) Group {
	for _, c := range gs.claims {
		if c.selector.Matches(nodeLabels) {
			return c.group
		}
	}
	return gs.rest
}

// equal reports whether both mean the same.
func (gs *nodeGroups) equal(o *nodeGroups) bool {
	return gs.division == o.division && slices.Equal(gs.names, o.names) && slices.Equal(gs.plan.groups, o.plan.groups)
}

// set sets what follows from the sizes of the groups, and from what they claim.
func (gs *nodeGroups) set(sizes []groupSize) {
	gs.plan = newPlan(sizes)
	var b strings.Builder
	for _, c := range gs.claims {
		fmt.Fprintf(&b, "%d: %s; ", c.group, c.selector)
	}
	fmt.Fprintf(&b, "%d", gs.rest)
	gs.division = b.String()
}

// compileGroups compiles the groups of the policy, in whichever of the two forms it has them.
func compileGroups(p *Policy) (nodeGroups, field.ErrorList) {
	if p.Groups == nil {
		return compileTwoGroups(p)
	}
	var gs nodeGroups
	var errs field.ErrorList
	path := field.NewPath("groups")
	if n := len(p.Groups); n < 1 || n > MaxGroups {
		errs = append(errs, field.Invalid(path, field.OmitValueType{},
			fmt.Sprintf("must be 1 to %d groups, not %d", MaxGroups, n)))
	}
	const instead = "the groups say it: leave out either this or groups"
	if p.NodeSelector != nil {
		errs = append(errs, field.Forbidden(field.NewPath("nodeSelector"), instead))
	}
	if p.Action != "" && p.Action != Must || p.TargetSize != nil && *p.TargetSize != defaultTargetSize {
		errs = append(errs, field.Forbidden(field.NewPath("policy"), instead))
	}

	var sizes []groupSize
	shares := 0
	for i := range p.Groups {
		g, last := &p.Groups[i], i == len(p.Groups)-1
		size, groupErrs := compileSize(path.Index(i), g, last)
		if slices.Contains(gs.names, g.Name) {
			groupErrs = append(groupErrs, field.Duplicate(path.Index(i).Child("name"), g.Name))
		}
		errs = append(errs, groupErrs...)
		gs.names = append(gs.names, g.Name)
		sizes = append(sizes, size)
		shares += size.share

		if g.NodeSelector == nil && last {
			gs.rest = Group(i + 1)
			continue
		}
		selector, err := compileSelector(path.Index(i).Child("nodeSelector"), g.NodeSelector)
		if err != nil {
			errs = append(errs, err)
		}
		gs.claims = append(gs.claims, claim{selector, Group(i + 1)})
	}
	if shares > 100 {
		errs = append(errs, field.Invalid(path, field.OmitValueType{},
			fmt.Sprintf("the shares must add up to at most 100%%, not %d%%", shares)))
	}
	if len(errs) == 0 {
		gs.set(sizes)
	}
	return gs, errs
}

// compileSize compiles all of a group but its node selector.
func compileSize(path *field.Path, g *NodeGroup, last bool) (groupSize, field.ErrorList) {
	var errs field.ErrorList
	for _, msg := range validation.IsDNS1123Label(g.Name) {
		errs = append(errs, field.Invalid(path.Child("name"), g.Name, "must be a DNS label, such as spot-a: "+msg))
	}
	size := groupSize{base: int(g.Base), max: noMax}
	if g.Base < 0 {
		errs = append(errs, field.Invalid(path.Child("base"), g.Base, "must be 0 or more"))
	}
	const rest = "the last group takes the rest: leave it out"
	switch share, ok := parsePercentage(g.Share); {
	case g.Share == "":
	case last:
		errs = append(errs, field.Forbidden(path.Child("share"), rest))
	case !ok:
		errs = append(errs, field.Invalid(path.Child("share"), g.Share, "must be a percentage from 0% to 100%, such as 40%"))
	default:
		size.share = share
	}
	switch {
	case g.Max == nil:
	case last:
		errs = append(errs, field.Forbidden(path.Child("max"), rest))
	case *g.Max < 0:
		errs = append(errs, field.Invalid(path.Child("max"), *g.Max, "must be 0 or more"))
	default:
		size.max = int(*g.Max)
	}
	return size, errs
}

// compileTwoGroups compiles the groups that NodeSelector, Action and TargetSize stand for.
func compileTwoGroups(p *Policy) (nodeGroups, field.ErrorList) {
	gs := nodeGroups{names: []string{"target", "other"}}
	var errs field.ErrorList
	selector, err := compileSelector(field.NewPath("nodeSelector"), p.NodeSelector)
	if err != nil {
		errs = append(errs, err)
	}
	switch p.Action {
	case "", Must:
		gs.claims, gs.rest = []claim{{selector, Target}}, Other
	case MustNot:
		gs.claims, gs.rest = []claim{{selector, Other}}, Target
	default:
		errs = append(errs, field.NotSupported(field.NewPath("policy", "action"), p.Action, []Action{Must, MustNot}))
	}
	size := groupSize{share: 100, max: noMax}
	if p.TargetSize != nil {
		if size, err = compileTargetSize(*p.TargetSize); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		gs.set([]groupSize{size, {max: noMax}})
	}
	return gs, errs
}

func compileTargetSize(t intstr.IntOrString) (groupSize, *field.Error) {
	path := field.NewPath("policy", "targetSize")
	const want = "must be an integer of 0 or more, or a percentage from 0% to 100%, such as 40%"
	if t.Type == intstr.Int {
		if t.IntVal < 0 {
			return groupSize{}, field.Invalid(path, t.IntVal, want)
		}
		return groupSize{base: int(t.IntVal), max: noMax}, nil
	}
	share, ok := parsePercentage(t.StrVal)
	if !ok {
		return groupSize{}, field.Invalid(path, t.StrVal, want)
	}
	return groupSize{share: share, max: noMax}, nil
}

// percentPattern is what the schema of a PlacementPolicy allows too.
var percentPattern = regexp.MustCompile(`^(100|[0-9]{1,2})%$`)

func parsePercentage(text string) (percent int, ok bool) {
	if !percentPattern.MatchString(text) {
		return 0, false
	}
	percent, _ = strconv.Atoi(strings.TrimSuffix(text, "%"))
	return percent, true
}
