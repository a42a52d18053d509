package policystore_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

// What is wrong with a policy is said with what to write instead; it then governs nothing, and harms no other policy.
func TestInvalidPolicy(t *testing.T) {
	type policy = policystore.Policy
	const size = "must be an integer of 0 or more, or a percentage from 0% to 100%, such as 40%"
	like := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Like"}}}
	percentage := func(size string) func(*policy) {
		return func(p *policy) { p.TargetSize = ptr.To(intstr.FromString(size)) }
	}
	for name, tc := range map[string]struct {
		edit func(*policy)
		want string
	}{
		"K1 no podSelector":  {func(p *policy) { p.PodSelector = nil }, "podSelector: Required value: write {} to select everything"},
		"K1 no nodeSelector": {func(p *policy) { p.NodeSelector = nil }, "nodeSelector: Required value: write {} to select everything"},
		"K1 nothing at all":  {func(p *policy) { *p = policy{NamespacedName: web} }, "everything, nodeSelector: Required value: write {}"},

		"K2 targetSize abc":        {percentage("abc"), `policy.targetSize: Invalid value: "abc": ` + size},
		"K2 targetSize 150%":       {percentage("150%"), `policy.targetSize: Invalid value: "150%": ` + size},
		"K2 targetSize -5%":        {percentage("-5%"), `policy.targetSize: Invalid value: "-5%": ` + size},
		"K2 targetSize 4.5%":       {percentage("4.5%"), `policy.targetSize: Invalid value: "4.5%": ` + size},
		"K2 targetSize 040%":       {percentage("040%"), `policy.targetSize: Invalid value: "040%": ` + size},
		"K2 targetSize as a text":  {percentage("4"), `policy.targetSize: Invalid value: "4": ` + size},
		"K2 targetSize left empty": {percentage(""), `policy.targetSize: Invalid value: "": ` + size},
		"K2 targetSize -3":         {func(p *policy) { p.TargetSize = ptr.To(intstr.FromInt(-3)) }, "policy.targetSize: Invalid value: -3: " + size},

		"K3 enforcementMode strict": {func(p *policy) { p.EnforcementMode = "strict" },
			`enforcementMode: Unsupported value: "strict": supported values: "BestEffort", "Strict"`},
		"K3 action mustnot": {func(p *policy) { p.Action = "mustnot" },
			`policy.action: Unsupported value: "mustnot": supported values: "Must", "MustNot"`},

		"K4 podSelector": {func(p *policy) { p.PodSelector = like },
			`podSelector: Invalid value: compiling label selector: matchExpressions[0].operator: Invalid value: "Like"`},
		"K4 nodeSelector": {func(p *policy) { p.NodeSelector = like },
			`nodeSelector: Invalid value: compiling label selector: matchExpressions[0].operator: Invalid value: "Like"`},

		"weight": {func(p *policy) { p.Weight = -1 }, "weight: Invalid value: -1: must be 0 or more"},
		"matchLabelKeys": {func(p *policy) { p.MatchLabelKeys = []string{"app", "my app"} },
			`matchLabelKeys[1]: Invalid value: "my app": must be a label key`},
	} {
		for _, action := range []policystore.Action{policystore.Must, policystore.MustNot} {
			t.Run(name+" with "+string(action), func(t *testing.T) {
				elsewhere := must(policystore.Strict, "40%")
				elsewhere.Namespace = "elsewhere"
				w := newWorld(t, elsewhere)
				pods := slices.Concat(w.create(1), w.create(1, inNamespace("elsewhere")))

				bad := must(policystore.Strict, "40%")
				bad.Action = action
				tc.edit(&bad)
				err := w.SetPolicy(bad)
				require.ErrorContains(t, err, tc.want)
				assert.EqualError(t, bad.Validate(), err.Error())

				info, ok := w.Policy(web)
				assert.True(t, ok)
				assert.Equal(t, policystore.PolicyInfo{Policy: policy{NamespacedName: web}, Err: err}, info)
				assert.Equal(t, policystore.NoGroup, info.GroupOf(spot))
				assert.Zero(t, info.Quota(target, 10))
				_, governed := w.Decide(w.pods[pods[0]])
				assert.False(t, governed)
				_, governed = w.Decide(w.pods[pods[1]])
				assert.True(t, governed)
			})
		}
	}
}

func TestPolicyDefaults(t *testing.T) {
	everything := &metav1.LabelSelector{}
	w := newWorld(t, policystore.Policy{NamespacedName: web, PodSelector: everything, NodeSelector: everything})
	info, _ := w.Policy(web)
	assert.Equal(t, policystore.Policy{
		NamespacedName:  web,
		EnforcementMode: policystore.BestEffort,
		PodSelector:     everything,
		NodeSelector:    everything,
		MatchLabelKeys:  []string{"pod-template-hash", "rollouts-pod-template-hash"},
		Action:          policystore.Must,
		TargetSize:      ptr.To(intstr.FromString("100%")),
	}, info.Policy)
	assert.Equal(t, policystore.Target, info.GroupOf(nil))
	assert.Equal(t, 10, info.Quota(target, 10))

	for name, policy := range map[string]policystore.Policy{
		"defaults":          info.Policy,
		"no matchLabelKeys": {NamespacedName: web, PodSelector: everything, NodeSelector: everything, MatchLabelKeys: []string{}},
	} {
		t.Run(name+" mean the same when set again", func(t *testing.T) {
			w.set(policy)
			once, _ := w.Policy(web)
			w.set(once.Policy)
			twice, _ := w.Policy(web)
			assert.Equal(t, once, twice)
		})
	}
}

// Of two policies that select a pod the first in each row governs it, whichever is set first.
func TestGoverningPolicy(t *testing.T) {
	policy := func(name string, weight int32, mode policystore.EnforcementMode) policystore.Policy {
		p := must(mode, "40%")
		p.Name, p.Weight = name, weight
		return p
	}
	for name, tc := range map[string]struct{ first, second policystore.Policy }{
		"the heavier":                {policy("b", 500, policystore.BestEffort), policy("a", 100, policystore.Strict)},
		"at equal weight the Strict": {policy("b", 100, policystore.Strict), policy("a", 100, policystore.BestEffort)},
		"else the first by name":     {policy("a", 100, policystore.Strict), policy("b", 100, policystore.Strict)},
	} {
		for _, reversed := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				w := newWorld(t)
				pods := w.create(3)
				order := []policystore.Policy{tc.first, tc.second}
				if reversed {
					slices.Reverse(order)
				}
				for _, p := range order {
					w.set(p)
				}
				requireGoverned := func(by, not types.NamespacedName) {
					t.Helper()
					d, _ := w.Decide(w.pods[pods[0]])
					require.Equal(t, by, d.Policy)
					info, _ := w.Policy(by)
					require.Equal(t, 3, info.Cohorts[0].Qualifying)
					info, _ = w.Policy(not)
					require.Empty(t, info.Cohorts, "a pod counts for the policy that governs it only")
				}
				requireGoverned(tc.first.NamespacedName, tc.second.NamespacedName)
				w.RemovePolicy(tc.first.NamespacedName)
				requireGoverned(tc.second.NamespacedName, tc.first.NamespacedName)
			})
		}
	}
}

func TestDefaultMatchLabelKeysCannotBeChanged(t *testing.T) {
	policystore.DefaultMatchLabelKeys()[0] = "zone"
	assert.Equal(t, []string{"pod-template-hash", "rollouts-pod-template-hash"}, policystore.DefaultMatchLabelKeys())
}

func TestMatchLabelKeys(t *testing.T) {
	w := newWorld(t)
	w.create(1)
	w.create(2, labelled("pod-template-hash", "old"), labelled("zone", "a"))
	w.create(3, labelled("pod-template-hash", "new"), labelled("zone", "a"))
	w.create(4, labelled("pod-template-hash", "new"), labelled("zone", "b"))
	w.create(5, labelled("zone", "b"))

	type cohort struct {
		labels     map[string]string
		qualifying int
	}
	for _, step := range []struct {
		name string
		keys []string
		want []cohort
	}{
		{"the revision by default", nil, []cohort{
			{map[string]string{}, 6}, {map[string]string{"pod-template-hash": "new"}, 7}, {map[string]string{"pod-template-hash": "old"}, 2}}},
		{"none", []string{}, []cohort{{map[string]string{}, 15}}},
		{"another", []string{"zone"}, []cohort{
			{map[string]string{}, 1}, {map[string]string{"zone": "a"}, 5}, {map[string]string{"zone": "b"}, 9}}},
		{"several, in any order and more than once", []string{"zone", "pod-template-hash", "zone"}, []cohort{
			{map[string]string{}, 1},
			{map[string]string{"pod-template-hash": "new", "zone": "a"}, 3},
			{map[string]string{"pod-template-hash": "new", "zone": "b"}, 4},
			{map[string]string{"pod-template-hash": "old", "zone": "a"}, 2},
			{map[string]string{"zone": "b"}, 5}}},
		{"one that no pod has", []string{"shard"}, []cohort{{map[string]string{}, 15}}},
	} {
		policy := must(policystore.Strict, "40%")
		policy.MatchLabelKeys = step.keys
		w.set(policy)
		info, _ := w.Policy(web)
		var got []cohort
		for _, c := range info.Cohorts {
			got = append(got, cohort{c.Labels, c.Qualifying})
			assert.Equal(t, c.Qualifying, c.QualifyingPods.Len())
		}
		assert.Equal(t, step.want, got, step.name)
	}
}
