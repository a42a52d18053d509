package integration

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
)

func TestM2StatusAndMetricsFollowThePolicy(t *testing.T) {
	t.Parallel()
	w := fourOfTen(t, strict40)
	type status = v1alpha1.PlacementPolicyStatus
	w.requireStatus("web", metav1.ConditionTrue, v1alpha1.ReasonOnTarget,
		status{ObservedGeneration: 1, QualifyingPods: 10, ManagedPods: 4, OtherPods: 6, TargetPods: 4, Cohorts: 1})

	w.setPolicy("web", policySpec("Strict", "Must", "80%"))
	w.requireStatus("web", metav1.ConditionFalse, v1alpha1.ReasonDrift,
		status{ObservedGeneration: 2, QualifyingPods: 10, ManagedPods: 4, OtherPods: 6, TargetPods: 8, Cohorts: 1})

	w.scale("web", 30)
	w.requireSplit("web", 24, 6)
	w.requireStatus("web", metav1.ConditionTrue, v1alpha1.ReasonOnTarget,
		status{ObservedGeneration: 2, QualifyingPods: 30, ManagedPods: 24, OtherPods: 6, TargetPods: 24, Cohorts: 1})

	w.deletePolicy("web")
	w.requireAgreement()
	counted, err := w.schedulerCounts()
	require.NoError(t, err)
	assert.Empty(t, counted, "the series of a policy go with it")
}

// requireStatus waits until the policy has this status, with the condition OnTarget as given.
func (w *world) requireStatus(policy string, onTarget metav1.ConditionStatus, reason string, want v1alpha1.PlacementPolicyStatus) {
	w.t.Helper()
	w.eventually(func(c *assert.CollectT) {
		got, err := w.policyStatus(policy)
		require.NoError(c, err)
		condition := meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionOnTarget)
		require.NotNil(c, condition)
		assert.Equal(c, onTarget, condition.Status, condition.Message)
		assert.Equal(c, reason, condition.Reason, condition.Message)
		got.Conditions, got.OffTargetCohorts = nil, nil
		assert.Equal(c, want, got)
	})
}

func (w *world) policyStatus(name string) (v1alpha1.PlacementPolicyStatus, error) {
	object, err := w.Dynamic().Resource(v1alpha1.Resource()).Namespace(w.namespace).Get(w.ctx, name, metav1.GetOptions{})
	if err != nil {
		return v1alpha1.PlacementPolicyStatus{}, err
	}
	policy, err := v1alpha1.FromUnstructured(object)
	if err != nil { // the spec may be invalid, and the status is of interest all the same
		object.Object["spec"] = map[string]any{}
		policy, err = v1alpha1.FromUnstructured(object)
	}
	if err != nil {
		return v1alpha1.PlacementPolicyStatus{}, err
	}
	return policy.Status, nil
}
