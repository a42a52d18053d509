package crd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

const defaults = `weight: 0, enforcementMode: BestEffort, matchLabelKeys: [pod-template-hash, rollouts-pod-template-hash]`

func TestAccepted(t *testing.T) {
	server := newAPIServer(t)
	tests := []struct {
		name, spec string
		// want is the spec after defaulting; empty means the same as spec.
		want string
	}{
		{
			name: "K1 policy left out",
			spec: `{podSelector: {}, nodeSelector: {}}`,
			want: `{podSelector: {}, nodeSelector: {}, ` + defaults + `}`,
		},
		{
			name: "policy empty",
			spec: `{podSelector: {}, nodeSelector: {}, policy: {}}`,
			want: `{podSelector: {}, nodeSelector: {}, policy: {action: Must, targetSize: 100%}, ` + defaults + `}`,
		},
		{
			name: "null is the same as left out",
			spec: `{weight: null, enforcementMode: null, podSelector: {matchLabels: null}, nodeSelector: {}, matchLabelKeys: null, policy: null, groups: null}`,
			want: `{podSelector: {}, nodeSelector: {}, ` + defaults + `}`,
		},
		{
			name: "every field",
			spec: `{weight: 2147483647, enforcementMode: Strict, podSelector: {matchLabels: {app: nginx}}, nodeSelector: {matchLabels: {node: want}},
				matchLabelKeys: [pod-template-hash, example.com/revision], policy: {action: MustNot, targetSize: 40%}}`,
		},
		{
			name: "all pods together",
			spec: `{weight: 0, enforcementMode: BestEffort, podSelector: {}, nodeSelector: {}, matchLabelKeys: [], policy: {action: Must, targetSize: 0}}`,
		},
		{
			name: "K2 sizes at their bounds",
			spec: `{podSelector: {}, nodeSelector: {}, policy: {targetSize: 0%}}`,
			want: `{podSelector: {}, nodeSelector: {}, policy: {action: Must, targetSize: 0%}, ` + defaults + `}`,
		},
		{
			name: "K2 largest number",
			spec: `{podSelector: {}, nodeSelector: {}, policy: {targetSize: 2147483647}}`,
			want: `{podSelector: {}, nodeSelector: {}, policy: {action: Must, targetSize: 2147483647}, ` + defaults + `}`,
		},
		{
			name: "K3 mode and action left out",
			spec: `{podSelector: {}, nodeSelector: {}, policy: {targetSize: 3}}`,
			want: `{podSelector: {}, nodeSelector: {}, policy: {action: Must, targetSize: 3}, ` + defaults + `}`,
		},
		{
			name: "K4 expressions",
			spec: `{weight: 1, enforcementMode: Strict, podSelector: {matchExpressions: [{key: app, operator: In, values: [web]}]},
				nodeSelector: {matchExpressions: [{key: spot, operator: Exists}, {key: old, operator: DoesNotExist, values: []}, {key: zone, operator: NotIn, values: [a, b]}]},
				matchLabelKeys: [], policy: {action: Must, targetSize: 40%}}`,
		},
		{
			name: "groups, every field",
			spec: `{weight: 1, enforcementMode: Strict, podSelector: {}, matchLabelKeys: [], groups: [
				{name: spot-a, nodeSelector: {matchLabels: {pool: a}}, base: 1, share: 30%, max: 20},
				{name: spot-b, nodeSelector: {matchExpressions: [{key: pool, operator: NotIn, values: [a, c]}]}, base: 0, share: 0%, max: 0},
				{name: rest, nodeSelector: {matchLabels: {pool: c}}, base: 2147483647}]}`,
		},
		{
			name: "groups, as little as there can be",
			spec: `{podSelector: {}, groups: [{name: all}]}`,
			want: `{podSelector: {}, groups: [{name: all, base: 0}], ` + defaults + `}`,
		},
		{
			name: "groups, as many as there can be",
			spec: `{podSelector: {}, groups: [{name: a, nodeSelector: {}, share: 100%}, {name: b, nodeSelector: {}}, {name: c, nodeSelector: {}, base: 1},
				{name: d, nodeSelector: {}}, {name: e, nodeSelector: {}}, {name: f, nodeSelector: {}}, {name: g, nodeSelector: {}}, {name: h}]}`,
			want: `{podSelector: {}, groups: [{name: a, nodeSelector: {}, base: 0, share: 100%}, {name: b, nodeSelector: {}, base: 0},
				{name: c, nodeSelector: {}, base: 1}, {name: d, nodeSelector: {}, base: 0}, {name: e, nodeSelector: {}, base: 0},
				{name: f, nodeSelector: {}, base: 0}, {name: g, nodeSelector: {}, base: 0}, {name: h, base: 0}], ` + defaults + `}`,
		},
		{
			name: "groups beside the policy that an earlier version wrote by default",
			spec: `{podSelector: {}, groups: [{name: all, base: 0}], policy: {action: Must, targetSize: 100%}, ` + defaults + `}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.want == "" {
				tt.want = tt.spec
			}
			got := policyObject(t, tt.spec)
			require.Empty(t, server.create(t, got.Object))
			assert.Equal(t, policyObject(t, tt.want).Object, got.Object)

			p, err := v1alpha1.FromUnstructured(got)
			require.NoError(t, err)
			_, err = p.ToPolicy()
			assert.NoError(t, err, "what the API server accepts, the store should accept")
		})
	}
}

func TestRefused(t *testing.T) {
	server := newAPIServer(t)
	const (
		size     = `: write an integer of 0 or more, or a percentage from 0% to 100%, such as 40%`
		operator = `: write the operator In or NotIn with values, or Exists or DoesNotExist without values`
	)
	tests := []struct {
		name, spec, message string
	}{
		{
			"K1 no podSelector",
			`{nodeSelector: {}}`,
			`spec.podSelector: Required value: write the labels of the pods to place, or {} for every pod of the namespace`,
		},
		{
			"K1 no nodeSelector",
			`{podSelector: {}}`,
			`spec.nodeSelector: Required value: write the labels of the nodes that policy.action is about, or {} for every node`,
		},
		{
			"K1 null selector",
			`{podSelector: null, nodeSelector: {}}`,
			`spec.podSelector: Required value: write the labels`,
		},
		{"K1 nothing in spec", `{}`, `spec.nodeSelector: Required value: write the labels`},
		{"K1 no spec", `null`, `spec: Required value`},
		{
			"K2 word",
			`{podSelector: {}, nodeSelector: {}, policy: {targetSize: abc}}`,
			`spec.policy.targetSize: Invalid value: "abc"` + size,
		},
		{
			"K2 word, MustNot",
			`{podSelector: {}, nodeSelector: {}, policy: {action: MustNot, targetSize: abc}}`,
			`spec.policy.targetSize: Invalid value: "abc"` + size,
		},
		{
			"K2 over 100%",
			`{podSelector: {}, nodeSelector: {}, policy: {targetSize: 150%}}`,
			`spec.policy.targetSize: Invalid value: "150%"` + size,
		},
		{
			"K2 over 100%, MustNot",
			`{podSelector: {}, nodeSelector: {}, policy: {action: MustNot, targetSize: 150%}}`,
			`spec.policy.targetSize: Invalid value: "150%"` + size,
		},
		{
			"K2 negative",
			`{podSelector: {}, nodeSelector: {}, policy: {targetSize: -3}}`,
			`spec.policy.targetSize: Invalid value: -3` + size,
		},
		{
			"K2 negative, MustNot",
			`{podSelector: {}, nodeSelector: {}, policy: {action: MustNot, targetSize: -3}}`,
			`spec.policy.targetSize: Invalid value: -3` + size,
		},
		{
			"K2 negative percentage",
			`{podSelector: {}, nodeSelector: {}, policy: {targetSize: -3%}}`,
			`spec.policy.targetSize: Invalid value: "-3%"` + size,
		},
		{
			"K2 number in quotes",
			`{podSelector: {}, nodeSelector: {}, policy: {targetSize: "4"}}`,
			`spec.policy.targetSize: Invalid value: "4"` + size,
		},
		{
			"K2 empty",
			`{podSelector: {}, nodeSelector: {}, policy: {targetSize: ""}}`,
			`spec.policy.targetSize: Invalid value: ""` + size,
		},
		{
			"K2 more than an int32",
			`{podSelector: {}, nodeSelector: {}, policy: {targetSize: 2147483648}}`,
			`spec.policy.targetSize: Invalid value: 2147483648` + size,
		},
		{
			"K2 fraction",
			`{podSelector: {}, nodeSelector: {}, policy: {targetSize: 0.4}}`,
			`spec.policy.targetSize: Invalid value`,
		},
		{
			"K3 mode empty",
			`{podSelector: {}, nodeSelector: {}, enforcementMode: ""}`,
			`spec.enforcementMode: Unsupported value: "": supported values: "BestEffort", "Strict"`,
		},
		{
			"K3 mode in lower case",
			`{podSelector: {}, nodeSelector: {}, enforcementMode: strict}`,
			`spec.enforcementMode: Unsupported value: "strict": supported values: "BestEffort", "Strict"`,
		},
		{
			"K3 action in lower case",
			`{podSelector: {}, nodeSelector: {}, policy: {action: mustnot}}`,
			`spec.policy.action: Unsupported value: "mustnot": supported values: "Must", "MustNot"`,
		},
		{
			"K4 unknown operator",
			`{podSelector: {matchExpressions: [{key: app, operator: Equals, values: [web]}]}, nodeSelector: {}}`,
			`spec.podSelector.matchExpressions: Invalid value` + operator,
		},
		{
			"K4 In without values",
			`{podSelector: {matchExpressions: [{key: app, operator: In}]}, nodeSelector: {}}`,
			`spec.podSelector.matchExpressions: Invalid value` + operator,
		},
		{
			"K4 NotIn with no value",
			`{podSelector: {}, nodeSelector: {matchExpressions: [{key: app, operator: NotIn, values: []}]}}`,
			`spec.nodeSelector.matchExpressions: Invalid value` + operator,
		},
		{
			"K4 Exists with a value",
			`{podSelector: {}, nodeSelector: {matchExpressions: [{key: spot, operator: Exists, values: ["true"]}]}}`,
			`spec.nodeSelector.matchExpressions: Invalid value` + operator,
		},
		{
			"K4 label value not a string",
			`{podSelector: {matchLabels: {app: 5}}, nodeSelector: {}}`,
			`spec.podSelector.matchLabels.app: Invalid value: "integer"`,
		},
		{
			"weight below 0",
			`{podSelector: {}, nodeSelector: {}, weight: -1}`,
			`spec.weight: Invalid value: -1: spec.weight in body should be greater than or equal to 0`,
		},
		{
			"weight above an int32",
			`{podSelector: {}, nodeSelector: {}, weight: 2147483648}`,
			`must be of type integer with format int32 in spec.weight`,
		},
		{
			"matchLabelKeys not a key",
			`{podSelector: {}, nodeSelector: {}, matchLabelKeys: [a b]}`,
			`spec.matchLabelKeys[0]: Invalid value: "a b": write a label key, such as pod-template-hash or example.com/revision`,
		},
		{
			"matchLabelKeys twice",
			`{podSelector: {}, nodeSelector: {}, matchLabelKeys: [a, a]}`,
			"spec.matchLabelKeys: Invalid value: write each label key once",
		},
		{
			"matchLabelKeys too many",
			`{podSelector: {}, nodeSelector: {}, matchLabelKeys: [k1, k2, k3, k4, k5, k6, k7, k8, k9, k10, k11, k12, k13, k14, k15, k16, k17]}`,
			`spec.matchLabelKeys: Too many: 17: must have at most 16 items`,
		},
		{
			"neither nodeSelector nor groups",
			`{podSelector: {}, policy: {targetSize: 40%}}`,
			`for every node; or write groups in its place`,
		},
		{
			"groups and nodeSelector",
			`{podSelector: {}, nodeSelector: {}, groups: [{name: a}]}`,
			`spec.nodeSelector: Forbidden: leave it out, since each of the groups has its own; or leave out groups`,
		},
		{
			"groups and targetSize",
			`{podSelector: {}, groups: [{name: a}], policy: {targetSize: 40%}}`,
			`spec.policy: Forbidden: leave it out, since the groups say how many of the pods belong on each; or leave out groups`,
		},
		{
			"groups and a number for targetSize",
			`{podSelector: {}, groups: [{name: a}], policy: {targetSize: 4}}`,
			`spec.policy: Forbidden: leave it out`,
		},
		{
			"groups and action",
			`{podSelector: {}, groups: [{name: a}], policy: {action: MustNot}}`,
			`spec.policy: Forbidden: leave it out`,
		},
		{
			"no group",
			`{podSelector: {}, groups: []}`,
			`spec.groups: Invalid value: 0: spec.groups in body should have at least 1 items`,
		},
		{
			"too many groups",
			`{podSelector: {}, groups: [` + strings.Repeat(`{name: a, nodeSelector: {}}, `, 8) + `{name: h}]}`,
			`spec.groups: Too many: 9: must have at most 8 items`,
		},
		{"a group without a name", `{podSelector: {}, groups: [{base: 1}]}`, `spec.groups[0].name: Required value`},
		{
			"a name of capitals",
			`{podSelector: {}, groups: [{name: Spot}]}`,
			`spec.groups[0].name: Invalid value: "Spot": write a DNS label, such as spot-a: lower-case letters, digits and -`,
		},
		{
			"an empty name",
			`{podSelector: {}, groups: [{name: ""}]}`,
			`spec.groups[0].name: Invalid value: "": write a DNS label`,
		},
		{
			"a name too long",
			`{podSelector: {}, groups: [{name: ` + strings.Repeat("a", 64) + `}]}`,
			`spec.groups[0].name: Too long: may not be more than 63 bytes`,
		},
		{
			"two groups of one name",
			`{podSelector: {}, groups: [{name: a, nodeSelector: {}}, {name: a}]}`,
			`spec.groups: Invalid value: give each group a name of its own`,
		},
		{
			"a group without nodeSelector",
			`{podSelector: {}, groups: [{name: a}, {name: b}]}`,
			`spec.groups: Invalid value: write the nodeSelector of each group; only the last one may leave it out, and then has all other nodes`,
		},
		{
			"the last group with a share",
			`{podSelector: {}, groups: [{name: a, nodeSelector: {}, share: 40%}, {name: b, share: 60%}]}`,
			`spec.groups: Invalid value: leave out share and max of the last group: it takes the rest`,
		},
		{
			"the last group with a max",
			`{podSelector: {}, groups: [{name: a, max: 0}]}`,
			`spec.groups: Invalid value: leave out share and max of the last group: it takes the rest`,
		},
		{
			"shares over 100%",
			`{podSelector: {}, groups: [{name: a, nodeSelector: {}, share: 60%}, {name: b, nodeSelector: {}, share: 41%}, {name: c}]}`,
			`spec.groups: Invalid value: write shares that add up to at most 100%`,
		},
		{
			"a share over 100%",
			`{podSelector: {}, groups: [{name: a, nodeSelector: {}, share: 101%}, {name: c}]}`,
			`spec.groups[0].share: Invalid value: "101%": write a percentage from 0% to 100%, such as 40%`,
		},
		{
			"an empty share",
			`{podSelector: {}, groups: [{name: a, nodeSelector: {}, share: ""}, {name: c}]}`,
			`spec.groups[0].share: Invalid value: "": write a percentage`,
		},
		{
			"a number for a share",
			`{podSelector: {}, groups: [{name: a, nodeSelector: {}, share: 30}, {name: c}]}`,
			`spec.groups[0].share: Invalid value: "integer": spec.groups[0].share in body must be of type string`,
		},
		{
			"a base below 0",
			`{podSelector: {}, groups: [{name: a, base: -1}]}`,
			`spec.groups[0].base: Invalid value: -1: spec.groups[0].base in body should be greater than or equal to 0`,
		},
		{
			"a max below 0",
			`{podSelector: {}, groups: [{name: a, nodeSelector: {}, max: -1}, {name: b}]}`,
			`spec.groups[0].max: Invalid value: -1: spec.groups[0].max in body should be greater than or equal to 0`,
		},
		{
			"misspelt field",
			`{podSelector: {}, nodeSelector: {}, targetSize: 40%}`,
			`spec.targetSize: Forbidden: unknown field`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			errs := server.create(t, policyObject(t, tt.spec).Object)
			require.NotEmpty(t, errs)
			assert.ErrorContains(t, errs.ToAggregate(), tt.message)
		})
	}
}

// Manifests as they were written for the plugin that this one replaces apply unchanged and keep their meaning.
func TestAncestorManifestsAreAccepted(t *testing.T) {
	server := newAPIServer(t)
	for _, mode := range []string{"BestEffort", "Strict"} {
		for _, action := range []string{"Must", "MustNot"} {
			for _, size := range []string{"40%", "4"} {
				obj := object(t, fmt.Sprintf(`
apiVersion: placement-policy.scheduling.x-k8s.io/v1alpha1
kind: PlacementPolicy
metadata:
  name: nginx
spec:
  weight: 100
  enforcementMode: %s
  podSelector:
    matchLabels:
      app: nginx
  nodeSelector:
    matchLabels:
      node: want
  policy:
    action: %s
    targetSize: %s
`, mode, action, size))
				want := obj.DeepCopy()
				require.NoError(
					t,
					unstructured.SetNestedStringSlice(
						want.Object,
						policystore.DefaultMatchLabelKeys(),
						"spec",
						"matchLabelKeys",
					),
				)
				require.Empty(t, server.create(t, obj.Object))
				assert.Equal(t, want, obj)
			}
		}
	}
}

func TestExamplesAreAccepted(t *testing.T) {
	server := newAPIServer(t)
	files, err := filepath.Glob("../../policies/*.yaml")
	require.NoError(t, err)
	var names []string
	for _, file := range files {
		names = append(names, filepath.Base(file))
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, manifest := range strings.Split(string(data), "\n---\n") {
			obj := object(t, manifest)
			if obj.GetKind() == "Deployment" {
				assert.NoError(t, yaml.UnmarshalStrict([]byte(manifest), &appsv1.Deployment{}), file)
				continue
			}
			require.Empty(t, server.create(t, obj.Object), file)
			p, err := v1alpha1.FromUnstructured(obj)
			require.NoError(t, err, file)
			_, err = p.ToPolicy()
			assert.NoError(t, err, file)
		}
	}
	assert.Equal(t, []string{
		"base-and-percentage.yaml",
		"besteffort-must.yaml",
		"besteffort-mustnot.yaml",
		"max.yaml",
		"positive-labels.yaml",
		"spot-pool.yaml",
		"strict-must.yaml",
		"strict-mustnot.yaml",
		"three-pools.yaml",
	}, names)
}
