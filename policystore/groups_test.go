package policystore_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

// inPool selects the nodes of a pool.
func inPool(pool string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"pool": pool}}
}

// grouped is the policy web with groups.
func grouped(mode policystore.EnforcementMode, groups ...policystore.NodeGroup) policystore.Policy {
	p := must(mode, "100%")
	p.NodeSelector, p.TargetSize, p.Groups = nil, nil, groups
	return p
}

func TestInvalidGroups(t *testing.T) {
	type group = policystore.NodeGroup
	for name, tc := range map[string]struct {
		edit func(*policystore.Policy)
		want []string
	}{
		"none": {
			func(p *policystore.Policy) { p.Groups = []group{} },
			[]string{"groups: Invalid value: must be 1 to 8 groups, not 0"},
		},
		"too many": {
			func(p *policystore.Policy) {
				p.Groups = nil
				for i := range 9 {
					p.Groups = append(p.Groups, group{Name: fmt.Sprint("g", i), NodeSelector: inPool("a")})
				}
			},
			[]string{"groups: Invalid value: must be 1 to 8 groups, not 9"},
		},
		"both forms": {
			func(p *policystore.Policy) {
				p.NodeSelector, p.TargetSize = inPool("a"), new(intstr.FromInt(4))
			},
			[]string{
				"nodeSelector: Forbidden: the groups say it: leave out either this or groups",
				"policy: Forbidden: the groups say it: leave out either this or groups",
			},
		},
		"an action": {
			func(p *policystore.Policy) { p.Action = policystore.MustNot },
			[]string{"policy: Forbidden: the groups say it"},
		},
		"names": {
			func(p *policystore.Policy) {
				p.Groups[0].Name, p.Groups[1].Name, p.Groups[2].Name = "Spot", "", "Spot"
			},
			[]string{
				`groups[0].name: Invalid value: "Spot": must be a DNS label, such as spot-a: a lowercase`,
				`groups[1].name: Invalid value: "": must be a DNS label, such as spot-a: a lowercase`,
				`groups[2].name: Invalid value: "Spot": must be a DNS label, such as spot-a: a lowercase`,
				`groups[2].name: Duplicate value: "Spot"`,
			},
		},
		"numbers below 0": {
			func(p *policystore.Policy) { p.Groups[0].Base, p.Groups[1].Max = -1, new(int32(-2)) },
			[]string{
				"groups[0].base: Invalid value: -1: must be 0 or more",
				"groups[1].max: Invalid value: -2: must be 0 or more",
			},
		},
		"a share": {
			func(p *policystore.Policy) { p.Groups[0].Share, p.Groups[1].Share = "130%", "30" },
			[]string{
				`groups[0].share: Invalid value: "130%": must be a percentage from 0% to 100%, such as 40%`,
				`groups[1].share: Invalid value: "30": must be a percentage from 0% to 100%, such as 40%`,
			},
		},
		"all shares together": {
			func(p *policystore.Policy) { p.Groups[0].Share = "71%" },
			[]string{"groups: Invalid value: the shares must add up to at most 100%, not 101%"},
		},
		"a share and a max of the last group": {
			func(p *policystore.Policy) { p.Groups[2].Share, p.Groups[2].Max = "0%", new(int32(math.MaxInt32)) },
			[]string{
				"groups[2].share: Forbidden: the last group takes the rest: leave it out",
				"groups[2].max: Forbidden: the last group takes the rest: leave it out",
			},
		},
		"selectors": {
			func(p *policystore.Policy) {
				like := []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Like"}}
				p.Groups[0].NodeSelector = nil
				p.Groups[2].NodeSelector = &metav1.LabelSelector{MatchExpressions: like}
			},
			[]string{
				"groups[0].nodeSelector: Required value: write {} to select everything",
				`groups[2].nodeSelector: Invalid value: compiling label selector: matchExpressions[0].operator: Invalid`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := grouped(policystore.Strict,
				group{Name: "spot-a", NodeSelector: inPool("a"), Share: "30%"},
				group{Name: "spot-b", NodeSelector: inPool("b"), Share: "30%", Max: new(int32(20))},
				group{Name: "on-demand", Base: 2})
			require.NoError(t, p.Validate())
			tc.edit(&p)
			var list utilerrors.Aggregate
			require.ErrorAs(t, p.Validate(), &list)
			require.Len(t, list.Errors(), len(tc.want), list)
			for i, want := range tc.want {
				require.ErrorContains(t, list.Errors()[i], want)
			}
		})
	}
}
