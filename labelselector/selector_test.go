package labelselector

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// parse reads a selector in kubectl's notation.
func parse(t *testing.T, s string) *metav1.LabelSelector {
	parsed, err := metav1.ParseToLabelSelector(s)
	require.NoError(t, err)
	return parsed
}

func TestCompile(t *testing.T) {
	type sets []labels.Set
	for _, tc := range []struct {
		name             string
		selector         *metav1.LabelSelector
		matches, differs sets
	}{
		{"nil matches nothing", nil, nil, sets{nil, {"app": "web"}}},
		{"empty matches everything", &metav1.LabelSelector{}, sets{nil, {"app": "web"}}, nil},
		{"one label", parse(t, "app=web"), sets{{"app": "web"}, {"app": "web", "more": ""}}, sets{nil, {"app": "api"}, {"app": ""}}},
		{"an empty value", parse(t, "app="), sets{{"app": ""}}, sets{nil, {"app": "web"}}},
		{"In", parse(t, "app in (web,api)"), sets{{"app": "web"}, {"app": "api"}}, sets{nil, {"app": "db"}}},
		{"NotIn matches also where the key is missing", parse(t, "app notin (web,api)"), sets{nil, {"app": "db"}}, sets{{"app": "web"}}},
		{"Exists", parse(t, "app"), sets{{"app": ""}, {"app": "web"}}, sets{nil, {"pp": "web"}}},
		{"DoesNotExist", parse(t, "!app"), sets{nil, {"pp": "web"}}, sets{{"app": ""}}},
		{"all requirements must hold", parse(t, "app=web,tier in (a,b),!canary"),
			sets{{"app": "web", "tier": "a"}}, sets{{"app": "web"}, {"tier": "a"}, {"app": "web", "tier": "a", "canary": ""}}},
		{"requirements may exclude each other", parse(t, "app=web,app notin (web)"), nil, sets{nil, {"app": "web"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := Compile(tc.selector)
			require.NoError(t, err)
			for _, set := range tc.matches {
				assert.Truef(t, s.Matches(set), "%q should match %v", s, set)
			}
			for _, set := range tc.differs {
				assert.Falsef(t, s.Matches(set), "%q should not match %v", s, set)
			}
		})
	}
}

func TestNilStandsForNoLabels(t *testing.T) {
	assert.False(t, compile(t, parse(t, "app")).Matches(nil))
	assert.True(t, compile(t, parse(t, "!app")).Matches(nil))
	assert.False(t, Selector{}.Matches(nil))
}

func TestSelectorsWithTheSameTextMatchTheSame(t *testing.T) {
	assert.Equal(t, "app=web,tier in (a,b)", compile(t, parse(t, "tier in (b,a),app=web")).String())
	assert.Empty(t, compile(t, &metav1.LabelSelector{}).String())
	assert.Equal(t, "(nothing)", compile(t, nil).String())
	assert.Equal(t, "(nothing)", Selector{}.String())
	assert.False(t, reflect.TypeFor[Selector]().Comparable(), "== would compile and then panic")
}

func TestCompileRefuses(t *testing.T) {
	expression := func(key string, operator metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}},
		}
	}
	for _, tc := range []struct {
		name     string
		selector *metav1.LabelSelector
		want     string
	}{
		{"operator", expression("app", "Like", "web"), `matchExpressions[0].operator: Invalid value: "Like"`},
		{"operator left out", expression("app", ""), `matchExpressions[0].operator: Invalid value: ""`},
		{"In without values", expression("app", metav1.LabelSelectorOpIn), "matchExpressions[0].values: Required value"},
		{"NotIn without values", expression("app", metav1.LabelSelectorOpNotIn), "matchExpressions[0].values: Required value"},
		{"Exists with values", expression("app", metav1.LabelSelectorOpExists, "web"), "matchExpressions[0].values: Forbidden"},
		{"DoesNotExist with values", expression("app", metav1.LabelSelectorOpDoesNotExist, "web"), "matchExpressions[0].values: Forbidden"},
		{"key", expression("my app", metav1.LabelSelectorOpExists), `matchExpressions[0].key: Invalid value: "my app"`},
		{"key left out", expression("", metav1.LabelSelectorOpExists), `[matchExpressions[0].key: Invalid value: ""`},
		{"value", expression("app", metav1.LabelSelectorOpIn, "web", "the web"), `matchExpressions[0].values[1]: Invalid value: "the web"`},
		{"label key", &metav1.LabelSelector{MatchLabels: map[string]string{"my app": "web"}}, `matchLabels: Invalid value: "my app"`},
		{"label value", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "the web"}}, `matchLabels: Invalid value: "the web"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := Compile(tc.selector)
			require.ErrorContains(t, err, "compiling label selector: "+tc.want)
			assert.False(t, s.Matches(labels.Set{"app": "web"}), "what is returned beside an error matches nothing")
		})
	}
}
