package integration

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
)

const (
	wantSize     = ": write an integer of 0 or more, or a percentage from 0% to 100%, such as 40%"
	wantOperator = ": write the operator In or NotIn with values, or Exists or DoesNotExist without values"
)

// badPolicies select application web and would govern it, if they were valid.
var badPolicies = []struct {
	name, spec string
	refused    string // what the API server says
	reported   string // what the scheduler says, if it is stored all the same
}{
	{
		"k1-no-pod-selector", `{weight: 9, nodeSelector: {}}`,
		"spec.podSelector: Required value: write the labels of the pods to place, or {} for every pod of the namespace",
		"spec.podSelector: Required value: write {} to select everything",
	},
	{
		"k1-no-node-selector",
		`{weight: 9, podSelector: {}}`,
		"spec.nodeSelector: Required value: write the labels of the nodes that policy.action is about, or {} for every node",
		"spec.nodeSelector: Required value: write {} to select everything",
	},
	{
		"k1-empty", `{}`,
		"spec.podSelector: Required value: write the labels of the pods",
		"spec.podSelector: Required value",
	},
	{
		"k2-word", policySpec("Strict", "Must", "abc", "weight: 9"),
		`spec.policy.targetSize: Invalid value: "abc"` + wantSize,
		`spec.policy.targetSize: Invalid value: "abc": must be`,
	},
	{
		"k2-word-mustnot", policySpec("Strict", "MustNot", "abc", "weight: 9"),
		`spec.policy.targetSize: Invalid value: "abc"` + wantSize,
		`spec.policy.targetSize: Invalid value: "abc": must be`,
	},
	{
		"k2-over-100", policySpec("Strict", "Must", "150%", "weight: 9"),
		`spec.policy.targetSize: Invalid value: "150%"` + wantSize,
		`spec.policy.targetSize: Invalid value: "150%": must be`,
	},
	{
		"k2-over-100-mustnot", policySpec("Strict", "MustNot", "150%", "weight: 9"),
		`spec.policy.targetSize: Invalid value: "150%"` + wantSize,
		`spec.policy.targetSize: Invalid value: "150%": must be`,
	},
	{
		"k2-negative", policySpec("Strict", "Must", "-3", "weight: 9"),
		`spec.policy.targetSize: Invalid value: -3` + wantSize,
		`spec.policy.targetSize: Invalid value: -3: must be`,
	},
	{
		"k2-negative-mustnot", policySpec("Strict", "MustNot", "-3", "weight: 9"),
		`spec.policy.targetSize: Invalid value: -3` + wantSize,
		`spec.policy.targetSize: Invalid value: -3: must be`,
	},
	{
		"k3-mode", policySpec("strict", "Must", "40%", "weight: 9"),
		`spec.enforcementMode: Unsupported value: "strict": supported values: "BestEffort", "Strict"`,
		`spec.enforcementMode: Unsupported value: "strict": supported values: "BestEffort", "Strict"`,
	},
	{
		"k3-action", policySpec("Strict", "mustnot", "40%", "weight: 9"),
		`spec.policy.action: Unsupported value: "mustnot": supported values: "Must", "MustNot"`,
		`spec.policy.action: Unsupported value: "mustnot": supported values: "Must", "MustNot"`,
	},
	{
		"k4-operator",
		`{weight: 9, podSelector: {matchExpressions: [{key: app, operator: Equals, values: [web]}]}, nodeSelector: {}}`,
		"spec.podSelector.matchExpressions: Invalid value" + wantOperator,
		`spec.podSelector: Invalid value`,
	},
	{
		"wrong-type", `{weight: 9, podSelector: web, nodeSelector: {}}`,
		"spec.podSelector",
		"decoding placement policy",
	},
}

func TestK1ToK4BadPoliciesAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, tt := range badPolicies {
		t.Run(tt.name, func(t *testing.T) {
			_, err := w.createPolicy(tt.name, tt.spec)
			assert.ErrorContains(t, err, tt.refused)
		})
	}
	t.Run("K3 empty mode", func(t *testing.T) {
		_, err := w.createPolicy("empty-mode", policySpec(`""`, "Must", "40%"))
		assert.ErrorContains(
			t,
			err,
			`spec.enforcementMode: Unsupported value: "": supported values: "BestEffort", "Strict"`,
		)
	})
	t.Run("K1 and K3 left out", func(t *testing.T) {
		policy, err := w.createPolicy("defaults", "{podSelector: {}, nodeSelector: {}}")
		require.NoError(t, err)
		var want map[string]any
		require.NoError(
			t,
			yaml.Unmarshal([]byte(`{podSelector: {}, nodeSelector: {}, weight: 0, enforcementMode: BestEffort,
			matchLabelKeys: [pod-template-hash, rollouts-pod-template-hash]}`), &want),
		)
		want["weight"] = int64(0)
		assert.Equal(t, want, policy.Object["spec"])
	})
}

func (w *world) createPolicy(name, spec string) (*unstructured.Unstructured, error) {
	policy := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(policyManifest(w.namespace, name, spec), &policy.Object); err != nil {
		return nil, err
	}
	return w.Dynamic().Resource(
		v1alpha1.Resource(),
	).Namespace(
		w.namespace,
	).Create(
		w.ctx,
		policy,
		metav1.CreateOptions{},
	)
}

// TestDefinitions has a cluster that starts without the CustomResourceDefinition, and then has one that takes anything.
func TestDefinitions(t *testing.T) {
	t.Parallel()
	c, err := startCluster(t.Context())
	require.NoError(t, err)

	_, err = c.startScheduler(t.Context(), schedulerOptions{Config: exampleConfig(t, defaultScheduler)})
	require.ErrorContains(t, err, "ended unexpectedly")
	assert.ErrorContains(
		t,
		err,
		"the resource placementpolicies.placement-policy.scheduling.x-k8s.io is not installed: "+
			"apply the CustomResourceDefinition in placementpolicy/v1alpha1/placement-policy.scheduling.x-k8s.io_placementpolicies.yaml",
	)

	require.NoError(t, c.Apply(t.Context(), laxDefinition(t)))
	w := newWorldIn(t, c)
	for _, tt := range badPolicies {
		w.invalid = append(w.invalid, tt.name)
		require.NoError(t, w.Apply(w.ctx, policyManifest(w.namespace, tt.name, tt.spec)), tt.name)
	}
	require.NoError(t, c.Apply(t.Context(), []byte(v1alpha1.CRDManifest())))
	w.startScheduler(schedulerOptions{})
	for _, tt := range badPolicies {
		w.eventually(func(c *assert.CollectT) {
			events, err := w.policyEvents(tt.name)
			require.NoError(c, err)
			require.Len(c, events, 1, tt.name)
			assert.Equal(c, "Invalid", events[0].Reason)
			assert.Equal(c, "Warning", events[0].Type)
			assert.Contains(c, events[0].Message, "it governs no pods until it is mended: ")
			assert.Contains(c, events[0].Message, tt.reported)
			if tt.name == "wrong-type" {
				return // the API server takes no status for it
			}
			status, err := w.policyStatus(tt.name)
			require.NoError(c, err)
			accepted := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionAccepted)
			require.NotNil(c, accepted)
			assert.Equal(c, metav1.ConditionFalse, accepted.Status)
			assert.Contains(c, accepted.Message, tt.reported)
		})
	}

	w.addNodes("m1 o1")
	w.setPolicy("web", strict40)
	w.deploy("web", 10)
	w.requireSplit("web", 4, 6)

	mended := badPolicies[0].name
	w.invalid = w.invalid[1:]
	w.setPolicy(mended, policySpec("Strict", "Must", "60%", "weight: 9"))
	w.requireSplit(mended, 4, 6)
	w.scale("web", 15)
	w.requireSplit(mended, 9, 6)
	w.requireSplit("web", 0, 0)
}

// TestDefinitionIsDeleted deletes the CustomResourceDefinition, and all policies with it, while the scheduler runs.
func TestDefinitionIsDeleted(t *testing.T) {
	t.Parallel()
	c, err := startCluster(t.Context())
	require.NoError(t, err)
	require.NoError(t, c.Apply(t.Context(), []byte(v1alpha1.CRDManifest())))
	w := newWorldIn(t, c)
	w.startScheduler(schedulerOptions{})
	w.addNodes("m1", cordoned)
	w.addNodes("o1")
	w.setPolicy("web", strict40)
	w.deploy("web", 10)
	w.requireCounts("web", 10, 0, 6)
	w.requirePending("web", 4)

	definitions := w.Dynamic().Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	})
	name := v1alpha1.Resource().GroupResource().String()
	require.NoError(t, definitions.Delete(w.ctx, name, metav1.DeleteOptions{}))
	w.requireOn("o", 10) // pods that waited run as without a policy
	counted, err := w.schedulerCounts()
	require.NoError(t, err)
	assert.Empty(t, counted)
	w.deploy("more", 5)
	w.requireOn("o", 15)
	require.NoError(t, w.scheduler.Err())

	w.eventually(func(c *assert.CollectT) { // while the old one is being deleted there cannot be another
		_, err := definitions.Get(w.ctx, name, metav1.GetOptions{})
		require.True(c, apierrors.IsNotFound(err))
	})
	require.NoError(t, c.Apply(t.Context(), []byte(v1alpha1.CRDManifest())))
	w.patchNode("m1", "spec: {unschedulable: null}")
	w.setPolicy("web", policySpec("Strict", "Must", "60%"))
	w.scale("web", 25)
	w.requireSplit("web", 15, 10)
	w.requireStatus("web", metav1.ConditionTrue, v1alpha1.ReasonOnTarget, v1alpha1.PlacementPolicyStatus{
		ObservedGeneration: 1, QualifyingPods: 25, ManagedPods: 15, OtherPods: 10, TargetPods: 15, Cohorts: 1,
	})
	require.NoError(t, w.scheduler.Err(), "it has run all the time")
}

// laxDefinition is the CustomResourceDefinition with a schema that takes everything.
func laxDefinition(t *testing.T) []byte {
	t.Helper()
	definition := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(v1alpha1.CRDManifest()), &definition.Object))
	versions, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
	require.NoError(t, err)
	for _, version := range versions {
		version.(map[string]any)["schema"] = map[string]any{
			"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
		}
	}
	require.NoError(t, unstructured.SetNestedSlice(definition.Object, versions, "spec", "versions"))
	manifest, err := yaml.Marshal(definition.Object)
	require.NoError(t, err)
	return manifest
}
