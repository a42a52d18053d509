package integration

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/report"
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

// TestN2PodsThatWaitAreOffTarget has all pods in the target group that belong there, and no room for the others.
func TestN2PodsThatWaitAreOffTarget(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addNodes("m1")
	w.addNodes("o1", cordoned)
	w.setPolicy("web", strict40)
	w.deploy("web", 10)
	w.requireCounts("web", 10, 4, 0)
	w.requirePending("web", 6)
	w.requireStatus("web", metav1.ConditionFalse, v1alpha1.ReasonNoRoom, v1alpha1.PlacementPolicyStatus{
		ObservedGeneration: 1, QualifyingPods: 10, ManagedPods: 4, TargetPods: 4, Cohorts: 1,
	})
	onTarget := labels.Set{"policy_namespace": w.namespace, "policy": "web"}
	assert.Zero(t, w.metric("scheduler_placement_policy_on_target", onTarget))

	w.patchNode("o1", "spec: {unschedulable: null}")
	w.requireSplit("web", 4, 6)
	w.requireStatus("web", metav1.ConditionTrue, v1alpha1.ReasonOnTarget, v1alpha1.PlacementPolicyStatus{
		ObservedGeneration: 1, QualifyingPods: 10, ManagedPods: 4, OtherPods: 6, TargetPods: 4, Cohorts: 1,
	})
	assert.Equal(t, 1, w.metric("scheduler_placement_policy_on_target", onTarget))
}

// TestN3RolloutThatPausesIsOnTarget has a StatefulSet whose partition keeps most pods at the revision of before, for
// as long as the user wants.
func TestN3RolloutThatPausesIsOnTarget(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addNodes("m1 o1")
	w.setPolicy("web", policySpec("Strict", "Must", "40%", "matchLabelKeys: [controller-revision-hash]"))
	partition := &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32(8))}
	_, err := w.Client().AppsV1().StatefulSets(w.namespace).Create(w.ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.StatefulSetSpec{
			Replicas:       new(int32(10)),
			Selector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template:       w.template("web", nil),
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{RollingUpdate: partition},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	w.requireSplit("web", 4, 6)

	_, err = w.Client().AppsV1().StatefulSets(w.namespace).Patch(w.ctx, "web", types.MergePatchType,
		toJSON(t, "spec: {template: {metadata: {annotations: {example.com/revision: two}}}}"), metav1.PatchOptions{})
	require.NoError(t, err)
	// The last two pods have come back. Of the eight old ones 3.2 belong in the target group, of the two new ones 0.8.
	w.requireStatus("web", metav1.ConditionTrue, v1alpha1.ReasonOnTarget, v1alpha1.PlacementPolicyStatus{
		ObservedGeneration: 1, QualifyingPods: 10, ManagedPods: 3, OtherPods: 7, TargetPods: 3, Cohorts: 2,
	})
}

// TestAStandbyLeavesCountsAlone has a scheduler stand by that sees the pods of a policy as pending, since the leader,
// which the test plays, has only reserved nodes for them.
func TestAStandbyLeavesCountsAlone(t *testing.T) {
	t.Parallel()
	c, err := startCluster(t.Context())
	require.NoError(t, err)
	require.NoError(t, c.Apply(t.Context(), []byte(v1alpha1.CRDManifest())))
	w := newWorldIn(t, c)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: deployed},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       new("leader"),
			LeaseDurationSeconds: new(int32(3600)),
			RenewTime:            new(metav1.NowMicro()),
		},
	}
	_, err = w.Client().CoordinationV1().Leases("kube-system").Create(w.ctx, lease, metav1.CreateOptions{})
	require.NoError(t, err)
	w.startScheduler(schedulerOptions{ExtraArgs: []string{
		"--leader-elect=true",
		"--leader-elect-resource-name=" + deployed,
		"--leader-elect-resource-namespace=kube-system",
	}})
	w.addNodes("m1 o1")
	w.setPolicy("web", strict40)
	w.createPods("web", 10)
	w.requireAgreement()
	written := v1alpha1.PlacementPolicyStatus{
		ObservedGeneration: 1, QualifyingPods: 10, ManagedPods: 4, OtherPods: 6, TargetPods: 4, Cohorts: 1,
	}
	status, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": "PlacementPolicy",
		"metadata": map[string]any{"name": "web", "namespace": w.namespace}, "status": written,
	})
	require.NoError(t, err)
	policies := w.Dynamic().Resource(v1alpha1.Resource()).Namespace(w.namespace)
	_, err = policies.Patch(w.ctx, "web", types.ApplyPatchType, status,
		metav1.PatchOptions{FieldManager: report.FieldManager, Force: new(true)}, "status")
	require.NoError(t, err)

	w.setPolicy("heavier", policySpec("Strict", "Must", "40%", "weight: 1"))
	w.eventually(func(c *assert.CollectT) { // the standby writes what it knows for certain
		got, err := w.policyStatus("web")
		require.NoError(c, err)
		assert.True(c, meta.IsStatusConditionTrue(got.Conditions, v1alpha1.ConditionConflicted))
		assert.True(c, meta.IsStatusConditionTrue(got.Conditions, v1alpha1.ConditionAccepted))
		got.Conditions = nil
		require.Equal(t, written, got, "the counts are the leader's")
	})
}

// TestALeaderWithNothingToScheduleWritesCounts scales down under a scheduler that has not tried any pod.
func TestALeaderWithNothingToScheduleWritesCounts(t *testing.T) {
	t.Parallel()
	for _, elect := range []bool{true, false} {
		t.Run(fmt.Sprint("leader-elect=", elect), func(t *testing.T) {
			t.Parallel()
			c, err := startCluster(t.Context())
			require.NoError(t, err)
			require.NoError(t, c.Apply(t.Context(), []byte(v1alpha1.CRDManifest())))
			w := newWorldIn(t, c)
			w.startScheduler(schedulerOptions{})
			w.addNodes("m1 o1")
			w.deploy("web", 10, onlyOn("o"))
			w.requireOn("o", 10)
			require.NoError(t, w.scheduler.Stop())

			w.startScheduler(schedulerOptions{ExtraArgs: []string{fmt.Sprint("--leader-elect=", elect)}})
			w.setPolicy("web", strict40)
			w.scale("web", 5)
			w.requireStatus("web", metav1.ConditionFalse, v1alpha1.ReasonDrift, v1alpha1.PlacementPolicyStatus{
				ObservedGeneration: 1, QualifyingPods: 5, OtherPods: 5, TargetPods: 2, Cohorts: 1,
			})
		})
	}
}

// TestStatusOfAnOlderVersionIsTakenOver has a status that was written by an update, as older versions of the
// scheduler did.
func TestStatusOfAnOlderVersionIsTakenOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addNodes("m1 o1")
	w.setPolicy("web", strict40)
	policies := w.Dynamic().Resource(v1alpha1.Resource()).Namespace(w.namespace)
	off := map[string]any{
		"qualifyingPods": int64(1), "managedPods": int64(1), "otherPods": int64(0), "targetPods": int64(0),
	}
	require.NoError(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		policy, err := policies.Get(w.ctx, "web", metav1.GetOptions{})
		require.NoError(t, err)
		require.NoError(t, unstructured.SetNestedSlice(policy.Object, []any{off}, "status", "offTargetCohorts"))
		_, err = policies.UpdateStatus(w.ctx, policy, metav1.UpdateOptions{FieldManager: "placement-policy-scheduler"})
		return err
	}))
	w.deploy("web", 10)
	w.requireSplit("web", 4, 6)
	w.eventually(func(c *assert.CollectT) {
		status, err := w.policyStatus("web")
		require.NoError(c, err)
		assert.EqualValues(c, 4, status.ManagedPods)
		assert.Empty(c, status.OffTargetCohorts)
		assert.True(c, meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionOnTarget))
	})
}

// requireStatus waits until the policy has this status, with the condition OnTarget as given.
func (w *world) requireStatus(policy string, onTarget metav1.ConditionStatus, reason string,
	want v1alpha1.PlacementPolicyStatus) {
	w.t.Helper()
	w.eventually(func(c *assert.CollectT) {
		got, err := w.policyStatus(policy)
		require.NoError(c, err)
		condition := meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionOnTarget)
		require.NotNil(c, condition)
		assert.Equal(c, onTarget, condition.Status, condition.Message)
		assert.Equal(c, reason, condition.Reason, condition.Message)
		got.Conditions, got.OffTargetCohorts, got.Groups = nil, nil, nil
		assert.Equal(c, want, got)
	})
}

func (w *world) policyStatus(name string) (v1alpha1.PlacementPolicyStatus, error) {
	object, err := w.Dynamic().Resource(
		v1alpha1.Resource(),
	).Namespace(
		w.namespace,
	).Get(
		w.ctx,
		name,
		metav1.GetOptions{},
	)
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
