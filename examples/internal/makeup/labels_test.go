package makeup

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

func requires(key string, operator metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
	return &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}},
	}
}

func both(a, b *metav1.LabelSelector) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: append(a.MatchExpressions, b.MatchExpressions...)}
}

func TestPodLabels(t *testing.T) {
	for name, tc := range map[string]struct {
		selector *metav1.LabelSelector
		want     map[string]string // nil: there are none
	}{
		"everything": {&metav1.LabelSelector{}, map[string]string{}},
		"nothing":    {nil, nil},
		"labels":     {&metav1.LabelSelector{MatchLabels: map[string]string{"app": "web", "tier": "x"}}, map[string]string{"app": "web", "tier": "x"}},
		"In":         {requires("app", metav1.LabelSelectorOpIn, "web", "api"), map[string]string{"app": "api"}},
		"NotIn":      {requires("app", metav1.LabelSelectorOpNotIn, "web"), map[string]string{}},
		"absent":     {requires("app", metav1.LabelSelectorOpDoesNotExist), map[string]string{}},
		"present":    {requires("app", metav1.LabelSelectorOpExists), map[string]string{"app": "other"}},
		"another value": {
			both(requires("app", metav1.LabelSelectorOpExists), requires("app", metav1.LabelSelectorOpNotIn, "other", "web")),
			map[string]string{"app": "true"},
		},
		"contradiction": {
			both(requires("app", metav1.LabelSelectorOpExists), requires("app", metav1.LabelSelectorOpDoesNotExist)), nil,
		},
	} {
		got, err := PodLabels(tc.selector)
		if tc.want == nil {
			assert.ErrorContains(t, err, "found none that the selector", name)
			continue
		}
		require.NoError(t, err, name)
		assert.Equal(t, tc.want, got, name)
	}
}

// For each group there is a node, in whichever way the groups are told apart.
func TestNodeLabels(t *testing.T) {
	spot := &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "spot"}}
	type group = policystore.NodeGroup
	for name, policy := range map[string]policystore.Policy{
		"Must":          {NodeSelector: spot},
		"MustNot":       {NodeSelector: spot, Action: policystore.MustNot},
		"NotIn":         {NodeSelector: requires("pool", metav1.LabelSelectorOpNotIn, "spot")},
		"DoesNotExist":  {NodeSelector: requires("pool", metav1.LabelSelectorOpDoesNotExist)},
		"one group":     {Groups: []group{{Name: "all"}}},
		"three groups":  {Groups: []group{{Name: "a", NodeSelector: spot}, {Name: "b", NodeSelector: requires("pool", metav1.LabelSelectorOpExists)}, {Name: "c"}}},
		"positive ones": {Groups: []group{{Name: "a", NodeSelector: spot}, {Name: "b", NodeSelector: requires("pool", metav1.LabelSelectorOpIn, "od")}}},
		"negative ones": {Groups: []group{{Name: "a", NodeSelector: requires("pool", metav1.LabelSelectorOpNotIn, "od", "spot")}, {Name: "b", NodeSelector: spot}, {Name: "c"}}},
	} {
		t.Run(name, func(t *testing.T) {
			policy.NamespacedName = types.NamespacedName{Namespace: "default", Name: "web"}
			policy.PodSelector = &metav1.LabelSelector{}
			s := policystore.New()
			require.NoError(t, s.SetPolicy(policy))
			info, _ := s.Policy(policy.NamespacedName)
			for g := range info.Groups() {
				got, err := NodeLabels(info, g)
				require.NoError(t, err)
				assert.Equal(t, g, info.GroupOf(got), "%v", got)
			}
		})
	}
	s := policystore.New()
	require.NoError(t, s.SetPolicy(policystore.Policy{PodSelector: spot, NodeSelector: &metav1.LabelSelector{}}))
	info, _ := s.Policy(types.NamespacedName{})
	_, err := NodeLabels(info, policystore.Other)
	assert.EqualError(t, err, "found none that a node of group other may have")
}
