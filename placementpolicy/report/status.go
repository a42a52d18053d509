package report

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

const (
	// FieldManager is the field manager of the statuses that a program which schedules applies.
	FieldManager = "placement-policy"
	// specFieldManager is that of what any replica may write. With another manager's name the API server does not take
	// what this one leaves out for removed.
	specFieldManager = FieldManager + "-spec"
	// maxMessage is the length in bytes that the API server allows for a condition's message.
	maxMessage = 32768
)

// update is the part of a status that is to be applied. Fields that are not in it are somebody else's, or removed.
type update struct {
	status  map[string]any
	manager string
	// urgent: a condition has changed.
	urgent bool
}

// all returns the update to the status now, all of which is ours; nil if old says the same.
func all(old, now v1alpha1.PlacementPolicyStatus) (*update, error) {
	if apiequality.Semantic.DeepEqual(old, now) {
		return nil, nil
	}
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&now)
	if err != nil {
		return nil, fmt.Errorf("converting a status: %w", err)
	}
	if now.OffTargetCohorts == nil {
		status["offTargetCohorts"] = []any{} // left out, it would stay if another manager had written it
	}
	return &update{status, FieldManager, changed(old, now)}, nil
}

// fromSpec is like all for what any replica knows of the status now.
func fromSpec(old, now v1alpha1.PlacementPolicyStatus) (*update, error) {
	known := func(status v1alpha1.PlacementPolicyStatus) v1alpha1.PlacementPolicyStatus {
		conditions := slices.DeleteFunc(slices.Clone(status.Conditions), func(c metav1.Condition) bool {
			return c.Type == v1alpha1.ConditionOnTarget
		})
		return v1alpha1.PlacementPolicyStatus{Conditions: conditions}
	}
	old, now = known(old), known(now)
	if apiequality.Semantic.DeepEqual(old, now) {
		return nil, nil
	}
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&now)
	if err != nil {
		return nil, fmt.Errorf("converting a status: %w", err)
	}
	return &update{map[string]any{"conditions": status["conditions"]}, specFieldManager, true}, nil
}

// changed reports whether a condition has another status or reason.
func changed(old, now v1alpha1.PlacementPolicyStatus) bool {
	return slices.ContainsFunc(now.Conditions, func(c metav1.Condition) bool {
		then := meta.FindStatusCondition(old.Conditions, c.Type)
		return then == nil || then.Status != c.Status || then.Reason != c.Reason
	})
}

// apply returns the policy as the API server has it then.
func (r *Reporter) apply(ctx context.Context, policy *unstructured.Unstructured,
	u *update) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	object := &unstructured.Unstructured{Object: map[string]any{"status": u.status}}
	object.SetGroupVersionKind(policy.GroupVersionKind())
	object.SetNamespace(policy.GetNamespace())
	object.SetName(policy.GetName())
	object.SetUID(policy.GetUID()) // so that no other policy of that name gets it
	policies := r.Client.Resource(v1alpha1.Resource()).Namespace(policy.GetNamespace())
	options := metav1.ApplyOptions{FieldManager: u.manager, Force: true}
	return policies.ApplyStatus(ctx, policy.GetName(), object, options)
}

// statusIn returns the status that the policy has, without conditions of others. One that cannot be read is none: it
// will be written anew.
func statusIn(policy *unstructured.Unstructured) v1alpha1.PlacementPolicyStatus {
	var status v1alpha1.PlacementPolicyStatus
	object, _ := policy.Object["status"].(map[string]any)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &status); err != nil {
		return v1alpha1.PlacementPolicyStatus{}
	}
	status.Conditions = slices.DeleteFunc(status.Conditions, func(c metav1.Condition) bool {
		ours := []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionOnTarget, v1alpha1.ConditionConflicted}
		return !slices.Contains(ours, c.Type)
	})
	return status
}

// statusOf returns the status of a policy of which the store knows info. waiting: pods wait because the policy keeps
// them out of a group. Conditions that stay as they are in the old status keep their time.
func statusOf(old v1alpha1.PlacementPolicyStatus, generation int64, info policystore.PolicyInfo,
	waiting bool) v1alpha1.PlacementPolicyStatus {
	now := v1alpha1.PlacementPolicyStatus{ObservedGeneration: generation, Conditions: slices.Clone(old.Conditions)}
	set := func(kind string, status metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&now.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: generation,
		})
	}
	if info.Err != nil {
		const nothing = "an invalid policy governs no pods"
		set(
			v1alpha1.ConditionAccepted,
			metav1.ConditionFalse,
			v1alpha1.ReasonInvalid,
			cut(info.Err.Error(), maxMessage),
		)
		set(v1alpha1.ConditionOnTarget, metav1.ConditionUnknown, v1alpha1.ReasonInvalid, nothing)
		set(v1alpha1.ConditionConflicted, metav1.ConditionUnknown, v1alpha1.ReasonInvalid, nothing)
		return now
	}
	set(v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonValid, "the policy is valid")

	off, pending := 0, 0
	for group := range info.Groups() {
		now.Groups = append(now.Groups, v1alpha1.GroupStatus{Name: info.GroupName(group)})
	}
	for _, c := range info.Cohorts {
		n := countOf(info, c)
		now.QualifyingPods += n.QualifyingPods
		now.ManagedPods += n.ManagedPods
		now.OtherPods += n.OtherPods
		now.TargetPods += n.TargetPods
		for i, g := range n.Groups {
			now.Groups[i].Pods += g.Pods
			now.Groups[i].TargetPods += g.TargetPods
		}
		if n.onTarget {
			continue
		}
		off++
		pending += n.pending
		if len(now.OffTargetCohorts) < v1alpha1.MaxOffTargetCohorts {
			now.OffTargetCohorts = append(now.OffTargetCohorts, n.CohortStatus)
		}
	}
	now.Cohorts = int32(len(info.Cohorts))

	counts := groupsMessage(now.Groups)
	if off > 0 && now.Cohorts > 1 {
		counts += fmt.Sprintf("; %d of %d cohorts are off target", off, now.Cohorts)
	}
	switch {
	case off == 0:
		set(v1alpha1.ConditionOnTarget, metav1.ConditionTrue, v1alpha1.ReasonOnTarget, counts)
	case waiting && pending > 0:
		set(v1alpha1.ConditionOnTarget, metav1.ConditionFalse, v1alpha1.ReasonNoRoom, fmt.Sprintf(
			"%s; %d pods wait: full groups keep them out, and no node of the others takes them", counts, pending))
	case pending > 0:
		set(v1alpha1.ConditionOnTarget, metav1.ConditionFalse, v1alpha1.ReasonPodsPending,
			fmt.Sprintf("%s; %d pods are yet to be placed", counts, pending))
	default:
		set(v1alpha1.ConditionOnTarget, metav1.ConditionFalse, v1alpha1.ReasonDrift,
			counts+"; all pods are placed, and the next ones will be so as to repair it")
	}

	if len(info.OverruledBy) == 0 {
		set(v1alpha1.ConditionConflicted, metav1.ConditionFalse, v1alpha1.ReasonNoConflict,
			"the policy governs all pods that it selects")
	} else {
		set(
			v1alpha1.ConditionConflicted,
			metav1.ConditionTrue,
			v1alpha1.ReasonOverruled,
			overruledMessage(info.OverruledBy),
		)
	}
	return now
}

// count is where the pods of a cohort are.
type count struct {
	v1alpha1.CohortStatus
	// pending is how many of them are placed in none of the policy's groups.
	pending int
	// onTarget: all are placed, and each group has those that belong there.
	onTarget bool
}

// countOf counts the pods that there are, and where those belong. What the workload wants beside them does not count
// here: a rollout may be paused, or a quota reached.
func countOf(info policystore.PolicyInfo, c policystore.Cohort) count {
	n := count{onTarget: true, pending: c.Qualifying}
	n.CohortStatus = v1alpha1.CohortStatus{
		Labels:         c.Labels,
		QualifyingPods: int32(c.Qualifying),
		ManagedPods:    int32(c.Managed),
		OtherPods:      int32(c.Other),
		TargetPods:     int32(c.Qualifying),
	}
	for group := range info.Groups() {
		placed, belong := c.Placed[group-1], info.Quota(group, c.Qualifying)
		n.pending -= placed
		n.onTarget = n.onTarget && placed == belong
		n.Groups = append(n.Groups, v1alpha1.GroupStatus{
			Name: info.GroupName(group), Pods: int32(placed), TargetPods: int32(belong),
		})
	}
	n.TargetPods -= n.Groups[len(n.Groups)-1].TargetPods // the last group's are not managed
	return n
}

// groupsMessage says how many pods each group has of those that belong there.
func groupsMessage(groups []v1alpha1.GroupStatus) string {
	var texts []string
	for _, g := range groups {
		texts = append(texts, fmt.Sprintf("%s has %d of %d pods", g.Name, g.Pods, g.TargetPods))
	}
	return "group " + strings.Join(texts, ", ")
}

// overruledMessage names the policies that govern pods instead, without their number, which changes often.
func overruledMessage(by map[types.NamespacedName]int) string {
	const most = 3
	names := make([]string, 0, len(by))
	for key := range by {
		names = append(names, key.Name)
	}
	slices.Sort(names)
	rest := ""
	if len(names) > most {
		rest = fmt.Sprintf(" and %d more", len(names)-most)
		names = names[:most]
	}
	return "other policies, of more weight or with precedence, govern pods that it selects: " +
		strings.Join(names, ", ") + rest
}
