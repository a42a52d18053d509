package main

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// schedulerSays tells why a pod is pending, in the words of its scheduler.
func schedulerSays(pod *v1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && c.Message != "" {
			return c.Message
		}
	}
	name := pod.Spec.SchedulerName
	if name == "" {
		name = v1.DefaultSchedulerName
	}
	return fmt.Sprintf("not tried yet by scheduler %s: does it run?", name)
}

// whyNotOn says what of the node keeps the pod away, room and other pods aside; nothing if nothing does.
func whyNotOn(node *v1.Node, pod *v1.Pod) string {
	logger := klog.Background()
	cordon := v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}
	if node.Spec.Unschedulable && !corev1.TolerationsTolerateTaint(logger, pod.Spec.Tolerations, &cordon, false) {
		return "cordoned"
	}
	repels := func(taint *v1.Taint) bool { return taint.Effect != v1.TaintEffectPreferNoSchedule }
	taint, found := corev1.FindMatchingUntoleratedTaint(logger, node.Spec.Taints, pod.Spec.Tolerations, repels, false)
	if found {
		return fmt.Sprintf("tainted with %s, which the pod does not tolerate", taint.ToString())
	}
	if match, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err != nil || !match {
		return "not matched by the pod's node selector or affinity"
	}
	return ""
}

// whyWaiting says why a pod is pending; nothing if it is not, or if it has ended.
func whyWaiting(pod *v1.Pod) []string {
	switch {
	case pod.Spec.NodeName != "",
		pod.DeletionTimestamp != nil,
		pod.Status.Phase == v1.PodSucceeded,
		pod.Status.Phase == v1.PodFailed:
		return nil
	case len(pod.Spec.SchedulingGates) > 0:
		var gates []string
		for _, gate := range pod.Spec.SchedulingGates {
			gates = append(gates, gate.Name)
		}
		return []string{"held by scheduling gates: " + strings.Join(gates, ", ")}
	}
	reasons := []string{schedulerSays(pod)}
	if node := pod.Status.NominatedNodeName; node != "" {
		reasons = append(reasons, "nominated for node "+node+", where room is being made for it")
	}
	return reasons
}
