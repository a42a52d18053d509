package integration

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
)

// counts are the pods of a policy, all cohorts added up.
type counts struct {
	Qualifying, Managed, Other, Target int
}

// recount counts the pods of each policy from what the API server has now. It shares no code with the plugin, and is as
// plain as can be. It holds at rest: it does not know of pods that a workload has yet to create.
func (w *world) recount() (map[string]counts, error) {
	list, err := w.Dynamic().Resource(v1alpha1.Resource()).Namespace(w.namespace).List(w.ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	pods, err := w.Client().CoreV1().Pods(w.namespace).List(w.ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	nodes, err := w.Client().CoreV1().Nodes().List(w.ctx, metav1.ListOptions{LabelSelector: "test=" + w.namespace})
	if err != nil {
		return nil, err
	}
	nodeLabels := map[string]labels.Set{}
	for _, node := range nodes.Items {
		nodeLabels[node.Name] = node.Labels
	}

	var policies []*v1alpha1.PlacementPolicy
	for i := range list.Items {
		if slices.Contains(w.invalid, list.Items[i].GetName()) {
			continue
		}
		policy, err := v1alpha1.FromUnstructured(&list.Items[i])
		if err != nil {
			return nil, err
		}
		policies = append(policies, policy)
	}
	slices.SortFunc(policies, func(a, b *v1alpha1.PlacementPolicy) int { // the governing one first
		return cmp.Or(
			cmp.Compare(b.Spec.Weight, a.Spec.Weight),
			cmp.Compare(b.Spec.EnforcementMode, a.Spec.EnforcementMode), // Strict before BestEffort
			cmp.Compare(a.Name, b.Name),
		)
	})

	all := map[string]counts{}
	governed := map[string]bool{}
	for _, policy := range policies {
		var c counts
		cohorts := map[string]int{}
		for i := range pods.Items {
			pod := &pods.Items[i]
			if governed[pod.Name] || !isActive(pod) || !matches(policy.Spec.PodSelector, pod.Labels) {
				continue
			}
			governed[pod.Name] = true
			c.Qualifying++
			var cohort []string
			for _, key := range policy.Spec.MatchLabelKeys {
				if value, ok := pod.Labels[key]; ok {
					cohort = append(cohort, key+"="+value)
				}
			}
			cohorts[strings.Join(cohort, ",")]++
			if on, ok := nodeLabels[pod.Spec.NodeName]; !ok {
				continue
			} else if matches(policy.Spec.NodeSelector, on) == (policy.Spec.Policy.Action == v1alpha1.Must) {
				c.Managed++
			} else {
				c.Other++
			}
		}
		for _, n := range cohorts {
			target, err := targetOf(policy, n)
			if err != nil {
				return nil, err
			}
			c.Target += target
		}
		all[policy.Name] = c
	}
	return all, nil
}

func isActive(pod *v1.Pod) bool {
	return pod.DeletionTimestamp == nil && len(pod.Spec.SchedulingGates) == 0 &&
		pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed
}

func matches(selector *metav1.LabelSelector, set labels.Set) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(set)
}

// targetOf returns how many of n pods the policy wants in its target group.
func targetOf(policy *v1alpha1.PlacementPolicy, n int) (int, error) {
	size := policy.Spec.Policy.TargetSize.String()
	number, percent := strings.CutSuffix(size, "%")
	target, err := strconv.Atoi(number)
	if err != nil {
		return 0, fmt.Errorf("policy %s: %w", policy.Name, err)
	}
	if percent {
		target = n * target / 100
	}
	return min(target, n), nil
}
