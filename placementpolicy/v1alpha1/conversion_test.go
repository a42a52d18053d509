package v1alpha1_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

// policyObject returns a placement policy with the given fields below spec, as a YAML flow mapping. It is decoded in
// the way an API server does: integers stay integers.
func policyObject(t testing.TB, spec string) *unstructured.Unstructured {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(`
apiVersion: placement-policy.scheduling.x-k8s.io/v1alpha1
kind: PlacementPolicy
metadata: {name: web-on-spot, namespace: default}
spec: ` + spec))
	require.NoError(t, err)
	policy := &unstructured.Unstructured{}
	require.NoError(t, policy.UnmarshalJSON(data))
	return policy
}

func TestToPolicy(t *testing.T) {
	key := types.NamespacedName{Namespace: "default", Name: "web-on-spot"}
	everything := &metav1.LabelSelector{}
	size := func(s string) *intstr.IntOrString { v := intstr.Parse(s); return &v }
	tests := []struct {
		name, spec string
		want       policystore.Policy
		err        string
	}{
		{
			name: "defaults are the store's",
			spec: `{podSelector: {}, nodeSelector: {}}`,
			want: policystore.Policy{NamespacedName: key, PodSelector: everything, NodeSelector: everything},
		},
		{
			name: "every field",
			spec: `{weight: 7, enforcementMode: Strict, podSelector: {matchLabels: {app: nginx}}, nodeSelector: {matchLabels: {node: want}},
				matchLabelKeys: [a, b], policy: {action: MustNot, targetSize: 40%}}`,
			want: policystore.Policy{
				NamespacedName: key, Weight: 7, EnforcementMode: policystore.Strict,
				PodSelector:    &metav1.LabelSelector{MatchLabels: map[string]string{"app": "nginx"}},
				NodeSelector:   &metav1.LabelSelector{MatchLabels: map[string]string{"node": "want"}},
				MatchLabelKeys: []string{"a", "b"}, Action: policystore.MustNot, TargetSize: size("40%"),
			},
		},
		{
			name: "all pods together, a number",
			spec: `{podSelector: {}, nodeSelector: {}, matchLabelKeys: [], policy: {targetSize: 3}}`,
			want: policystore.Policy{
				NamespacedName: key,
				PodSelector:    everything,
				NodeSelector:   everything,
				MatchLabelKeys: []string{},
				TargetSize:     size("3"),
			},
		},
		{
			name: "groups",
			spec: `{podSelector: {}, groups: [{name: a, nodeSelector: {}, base: 1, share: 30%, max: 2}, {name: b}], policy: {action: Must, targetSize: 100%}}`,
			want: policystore.Policy{
				NamespacedName: key,
				PodSelector:    everything,
				Action:         policystore.Must,
				TargetSize:     size("100%"),
				Groups: []policystore.NodeGroup{
					{Name: "a", NodeSelector: everything, Base: 1, Share: "30%", Max: ptr.To(int32(2))},
					{Name: "b"},
				},
			},
		},
		{
			name: "groups that are wrong",
			spec: `{podSelector: {}, groups: [{name: a, nodeSelector: {}, share: 30%}, {name: b, share: 70%}]}`,
			err:  `spec.groups[1].share: Forbidden: the last group takes the rest: leave it out`,
		},
		{
			name: "no groups",
			spec: `{podSelector: {}, groups: []}`,
			err:  `spec.groups: Invalid value: must be 1 to 8 groups, not 0`,
		},
		{
			name: "K1 no podSelector",
			spec: `{nodeSelector: {}}`,
			err:  `invalid placement policy default/web-on-spot: spec.podSelector: Required value: write {} to select everything`,
		},
		{
			name: "K1 nothing",
			spec: `{}`,
			err: `invalid placement policy default/web-on-spot: [spec.podSelector: Required value: write {} to select everything, ` +
				`spec.nodeSelector: Required value: write {} to select everything]`,
		},
		{
			name: "K2 targetSize",
			spec: `{podSelector: {}, nodeSelector: {}, policy: {action: MustNot, targetSize: 150%}}`,
			err:  `spec.policy.targetSize: Invalid value: "150%": must be an integer of 0 or more, or a percentage from 0% to 100%`,
		},
		{
			name: "K3 action",
			spec: `{podSelector: {}, nodeSelector: {}, enforcementMode: "", policy: {action: mustnot}}`,
			err:  `spec.policy.action: Unsupported value: "mustnot": supported values: "Must", "MustNot"`,
		},
		{
			name: "K4 expressions",
			spec: `{podSelector: {}, nodeSelector: {matchExpressions: [{key: spot, operator: Equals}]}}`,
			err:  `spec.nodeSelector: Invalid value`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := v1alpha1.FromUnstructured(policyObject(t, tt.spec))
			require.NoError(t, err)
			got, err := p.ToPolicy()
			assert.Equal(t, tt.want, got)
			if tt.err == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, tt.err)
			}
		})
	}
}

// Objects that were stored under a laxer CRD.
func TestFromUnstructuredRefusesWrongTypes(t *testing.T) {
	for _, spec := range []string{
		`5`,
		`{podSelector: 5}`,
		`{podSelector: {matchLabels: {app: 5}}}`,
		`{matchLabelKeys: pod-template-hash}`,
		`{weight: heavy}`,
		`{weight: 4294967297}`,
		`{policy: {targetSize: 0.4}}`,
		`{policy: {targetSize: 2147483648}}`,
		`{policy: {targetSize: [4]}}`,
		`{groups: {name: a}}`,
		`{groups: [{name: a, share: 30}]}`,
		`{groups: [{name: a, base: 2147483648}]}`,
	} {
		_, err := v1alpha1.FromUnstructured(policyObject(t, spec))
		assert.ErrorContains(t, err, "decoding placement policy default/web-on-spot: ", spec)
	}
}

// In matchLabelKeys, nil stands for the default and must be left out, while [] must be written.
func TestMatchLabelKeysRoundTrip(t *testing.T) {
	for _, keys := range [][]string{nil, {}, {"a"}} {
		want := v1alpha1.PlacementPolicy{Spec: v1alpha1.PlacementPolicySpec{MatchLabelKeys: keys}}

		data, err := json.Marshal(want)
		require.NoError(t, err)
		var viaJSON v1alpha1.PlacementPolicy
		require.NoError(t, json.Unmarshal(data, &viaJSON))
		assert.Equal(t, want, viaJSON)

		u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&want)
		require.NoError(t, err)
		viaUnstructured, err := v1alpha1.FromUnstructured(&unstructured.Unstructured{Object: u})
		require.NoError(t, err)
		assert.Equal(t, &want, viaUnstructured)
	}
}

func FuzzConversion(f *testing.F) {
	for _, seed := range []string{
		`null`, `{}`, `{"spec": null}`, `{"metadata": {"name": 5}}`,
		`{"apiVersion": "placement-policy.scheduling.x-k8s.io/v1alpha1", "kind": "PlacementPolicy", "metadata": {"name": "a"}, "spec": {
			"weight": 1, "enforcementMode": "Strict", "podSelector": {"matchLabels": {"app": "nginx"}},
			"nodeSelector": {"matchExpressions": [{"key": "spot", "operator": "In", "values": ["true"]}]},
			"matchLabelKeys": ["a"], "policy": {"action": "MustNot", "targetSize": "40%"}}}`,
		`{"spec": {"podSelector": {}, "nodeSelector": {}, "policy": {"targetSize": 4}}}`,
		`{"spec": {"podSelector": {}, "groups": [{"name": "a", "nodeSelector": {}, "base": 1, "share": "30%", "max": 2}, {"name": "b"}]}}`,
		`{"spec": {"podSelector": {}, "nodeSelector": {}, "policy": {"targetSize": -1e300}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var obj map[string]any
		if json.Unmarshal(data, &obj) != nil {
			return
		}
		p, err := v1alpha1.FromUnstructured(&unstructured.Unstructured{Object: obj})
		if err != nil {
			return
		}
		policy, err := p.ToPolicy()
		assert.Equal(t, policy.Validate() == nil, err == nil)
	})
}
