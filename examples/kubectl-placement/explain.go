package main

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

// Explanation is what governs a pod, and where it may and should go.
type Explanation struct {
	Pod string `json:"pod"`
	// Node is where it is, and Group the group in which it counts there; left out if there is none.
	Node  string `json:"node,omitempty"`
	Group string `json:"group,omitempty"`
	// Policy is the policy that governs it; left out if none does, as NotGoverned then explains.
	Policy      string `json:"policy,omitempty"`
	NotGoverned string `json:"notGoverned,omitempty"`
	// NotCounted says why it would not count in any policy's cohort; left out if it would.
	NotCounted string `json:"notCounted,omitempty"`
	// Cohort is the one in which it counts; left out if it counts in none.
	Cohort *Cohort `json:"cohort,omitempty"`
	// Choices are the groups of the policy; for a pod that is placed, as if it were to be placed again. Without a
	// policy there are none.
	Choices []Choice `json:"choices"`
	// Waiting says why it is pending; left out if it is not.
	Waiting []string `json:"waiting,omitempty"`
	// Policies are those of its namespace, and what each is to the pod.
	Policies []Relation `json:"policies"`
}

// Choice is what a group is to a pod. Numbers are without the pod itself.
type Choice struct {
	Group string `json:"group"`
	// Pods is how many pods of the cohort are placed there, of QuotaPods that are meant for it in the end.
	Pods      int `json:"pods"`
	QuotaPods int `json:"quotaPods"`
	// Allowed: the policy lets the pod go there. Preferred: there it keeps the ratio exact.
	Allowed   bool `json:"allowed"`
	Preferred bool `json:"preferred"`
	// OpenNodes are the nodes that would take the pod, room and other pods aside.
	OpenNodes []string `json:"openNodes"`
	// ClosedNodes is how many would not, by the reason.
	ClosedNodes map[string]int `json:"closedNodes,omitempty"`
}

// Relation says whether a policy governs a pod, and why or why not.
type Relation struct {
	Policy  string `json:"policy"`
	Governs bool   `json:"governs"`
	Why     string `json:"why"`
}

// explain tells what governs the pod of that name. An empty namespace is any that has such a pod, if only one does.
func explain(w *world, namespace, name string) (Explanation, error) {
	pod, err := w.pod(namespace, name)
	if err != nil {
		return Explanation{}, err
	}
	s := newSurvey(w)
	info, _ := s.Pod(pod)
	e := Explanation{
		Pod: keyOf(pod).String(), Node: pod.Spec.NodeName, Group: info.GroupName, NotGoverned: info.NotGoverned,
		NotCounted: info.NotActive, Waiting: whyWaiting(pod), Choices: []Choice{}, Policies: []Relation{},
	}
	for _, policy := range s.policies {
		if policy.Policy.Namespace == pod.Namespace {
			e.Policies = append(e.Policies, relation(s, policy, pod))
		}
	}
	d, governed := s.Decide(pod)
	if !governed {
		return e, nil
	}
	e.Policy = d.Policy.String()
	e.Cohort = s.cohort(pod)
	for g := range d.Groups() {
		c := Choice{
			Group:       d.GroupName(g),
			Pods:        d.Placed(g),
			QuotaPods:   d.Quota(g),
			Allowed:     d.Allows(g),
			Preferred:   d.Preferred == g,
			OpenNodes:   []string{},
			ClosedNodes: map[string]int{},
		}
		for _, node := range s.nodes {
			if d.GroupOf(node.Labels) != g {
				continue
			}
			if why := whyNotOn(node, pod); why != "" {
				c.ClosedNodes[why]++
			} else {
				c.OpenNodes = append(c.OpenNodes, node.Name)
			}
		}
		e.Choices = append(e.Choices, c)
	}
	open := func(c Choice) bool { return c.Allowed && len(c.OpenNodes) > 0 }
	if len(e.Waiting) > 0 && e.Cohort != nil && !slices.ContainsFunc(e.Choices, open) {
		e.Waiting = append(e.Waiting, "no node of the groups that the policy allows would take it")
	}
	return e, nil
}

// pod returns the pod of that name.
func (w *world) pod(namespace, name string) (*v1.Pod, error) {
	var found *v1.Pod
	for _, pod := range w.pods {
		if pod.Name != name || namespace != "" && pod.Namespace != namespace {
			continue
		}
		if found != nil {
			one, other := keyOf(found).String(), keyOf(pod).String()
			return nil, fmt.Errorf(
				"there are pods %s and %s: say which with --namespace",
				min(one, other),
				max(one, other),
			)
		}
		found = pod
	}
	if found == nil {
		return nil, fmt.Errorf("there is no pod %s", types.NamespacedName{Namespace: namespace, Name: name})
	}
	return found, nil
}

// relation tells what a policy of the pod's namespace is to the pod.
func relation(s *survey, info policystore.PolicyInfo, pod *v1.Pod) Relation {
	r := Relation{Policy: info.Policy.String()}
	d, governed := s.Decide(pod)
	switch failing := whyNotSelected(info.Policy.PodSelector, pod); {
	case info.Err != nil:
		r.Why = info.Err.Error()
	case len(failing) > 0:
		r.Why = "its podSelector does not match: " + failing
	case governed && d.Policy == info.Policy.NamespacedName:
		r.Governs, r.Why = true, "governs it: "+newPolicy(info, nil).rule()
	case governed:
		by, _ := s.Policy(d.Policy)
		r.Why = fmt.Sprintf("selects it, but %s governs it, %s", d.Policy, precedence(by.Policy, info.Policy))
	default:
		r.Why = "selects it, but " + s.WhyNotGoverned(pod)
	}
	return r
}

// whyNotSelected lists the requirements that the pod's labels do not meet; none if the selector selects it.
func whyNotSelected(selector *metav1.LabelSelector, pod *v1.Pod) string {
	compiled, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return ""
	}
	var failing []string
	requirements, _ := compiled.Requirements()
	for _, r := range requirements {
		if r.Matches(labels.Set(pod.Labels)) {
			continue
		}
		has := "has no such label"
		if value, ok := pod.Labels[r.Key()]; ok {
			has = fmt.Sprintf("has %s=%s", r.Key(), value)
		}
		failing = append(failing, fmt.Sprintf("it wants %s, the pod %s", r.String(), has))
	}
	return strings.Join(failing, "; ")
}

// precedence says why the first policy governs a pod that both select.
func precedence(first, second policystore.Policy) string {
	switch {
	case first.Weight != second.Weight:
		return fmt.Sprintf("being heavier (%d, not %d)", first.Weight, second.Weight)
	case first.EnforcementMode != second.EnforcementMode:
		return "being Strict"
	default:
		return "being the first by name"
	}
}
