package policystore

import (
	"fmt"
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

// NodeGroup is one of the groups into which a policy divides the nodes, and says how many pods of a cohort belong on
// it: Base of them first of all, then Share of those that are beyond the bases of all groups, but at most Max. The last
// group takes the rest.
type NodeGroup struct {
	// Name is a DNS label, unique in the policy.
	Name string
	// NodeSelector selects the nodes of the group, but for those that an earlier group has. Only the last group may leave
	// it out: it then has all nodes that no other group has. A node may so be in no group.
	NodeSelector *metav1.LabelSelector
	// Base is how many pods belong here before any shares; bases come in the order of the groups. At least 0.
	Base int32
	// Share is a percentage from "0%" to "100%"; empty means "0%". All shares add up to at most 100%. The last group has
	// none.
	Share string
	// Max is how many pods belong here at most; what is over belongs to the last group, which has no Max. At least 0;
	// nil means that there is no limit.
	Max *int32
}

// nodeGroups is the compiled form of a policy's groups. It is immutable.
type nodeGroups struct {
	names []string // of the groups from 1 on
	plan  plan
	// A node is in the group of the first claim whose selector matches, else in rest, which may be NoGroup.
	claims []claim
	rest   Group
}

// claim is of the nodes that a selector matches, for a group.
type claim struct {
	selector labelselector.Selector
	group    Group
}

// groupOf returns the group that a node with these labels is in, or NoGroup.
func (gs *nodeGroups) groupOf(nodeLabels labels.Labels) Group {
	for _, c := range gs.claims {
		if c.selector.Matches(nodeLabels) {
			return c.group
		}
	}
	return gs.rest
}

// sameNodes reports whether both divide the nodes in the same way.
func (gs *nodeGroups) sameNodes(o *nodeGroups) bool {
	return gs.rest == o.rest && slices.EqualFunc(gs.claims, o.claims, func(a, b claim) bool {
		return a.group == b.group && a.selector.String() == b.selector.String()
	})
}

// equal reports whether both mean the same.
func (gs *nodeGroups) equal(o *nodeGroups) bool {
	return gs.sameNodes(o) && slices.Equal(gs.names, o.names) && slices.Equal(gs.plan.groups, o.plan.groups)
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
		gs.plan = newPlan(sizes)
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
		gs.plan = newPlan([]groupSize{size, {max: noMax}})
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
