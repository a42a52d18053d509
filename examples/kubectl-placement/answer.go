package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

// Answer is the whole result, and what -o json prints. Pods and policies are named namespace/name.
type Answer struct {
	// OnTarget is that of After if there is one, else that of Before. The exit code says the same.
	OnTarget bool `json:"onTarget"`
	// Change is what --set asks for; left out without.
	Change *Change `json:"change,omitempty"`
	// Before has the policies as they are in the file, After with the change; left out without.
	Before Outcome  `json:"before"`
	After  *Outcome `json:"after,omitempty"`
}

// Change is a change of a policy's spec.
type Change struct {
	Policy string   `json:"policy"`
	Set    []string `json:"set"` // such as policy.targetSize=60%
}

// Outcome is what becomes of the pods under some policies.
type Outcome struct {
	// OnTarget says whether all cohorts are on target in the end.
	OnTarget bool     `json:"onTarget"`
	Policies []Policy `json:"policies"`
	Cohorts  []Cohort `json:"cohorts"`
	// Decisions are about the pending pods that a policy governs, in the order in which they are placed.
	Decisions []Decision `json:"decisions"`
	// Ungoverned are the pods that no policy selects.
	Ungoverned []Workload `json:"ungoverned"`
	// NotCounted is how many pods a policy selects but does not count: they are finished, being deleted, or held by
	// scheduling gates.
	NotCounted int `json:"notCounted"`
}

// Policy is a policy, and the names of the nodes in its two groups.
type Policy struct {
	Policy string `json:"policy"`
	// Error says why the policy is invalid and governs nothing; left out if it is valid.
	Error string `json:"error,omitempty"`
	// Spec is the spec with its defaults; left out if it is invalid.
	Spec        *v1alpha1.PlacementPolicySpec `json:"spec,omitempty"`
	TargetNodes []string                      `json:"targetNodes"`
	OtherNodes  []string                      `json:"otherNodes"`
}

// Cohort is the pods that a policy governs and that agree on its matchLabelKeys.
type Cohort struct {
	Policy    string            `json:"policy"`
	Labels    map[string]string `json:"labels"` // that they agree on
	Workloads []Workload        `json:"workloads"`
	// Qualifying is how many pods count. Size is that, or what their workload wants if it is more. Target is how many of
	// Size belong in the target group.
	Qualifying int `json:"qualifying"`
	Size       int `json:"size"`
	Target     int `json:"target"`
	// Now is before the pending pods are placed, Then is after.
	Now  Counts `json:"now"`
	Then Counts `json:"then"`
	// OnTarget: then, Target pods are in the target group and no pod is pending.
	OnTarget bool `json:"onTarget"`
}

// Counts says how many of the qualifying pods are in the target group and in the other group. The rest are pending, or on
// nodes that are not in the file.
type Counts struct {
	Managed int `json:"managed"`
	Other   int `json:"other"`
	Pending int `json:"pending"`
}

// Workload is a number of pods that the same object controls.
type Workload struct {
	Namespace string `json:"namespace"`
	Workload  string `json:"workload"` // Kind/name; empty for pods that nothing controls
	Pods      int    `json:"pods"`
}

// Decision says to which group of nodes a pod goes, "target" or "other", or that it "waits"; and why.
type Decision struct {
	Pod    string `json:"pod"`
	Policy string `json:"policy"`
	Group  string `json:"group"`
	Reason string `json:"reason"`
}

// answer tells what becomes of w and, if there are settings, of w with these fields of the policy's spec set.
func answer(w *world, policy types.NamespacedName, settings []string) (Answer, error) {
	before := outcome(w)
	if len(settings) == 0 {
		return Answer{OnTarget: before.OnTarget, Before: before}, nil
	}
	changed, err := w.with(policy, settings)
	if err != nil {
		return Answer{}, err
	}
	after := outcome(changed)
	return Answer{OnTarget: after.OnTarget, Change: &Change{policy.String(), settings}, Before: before, After: &after}, nil
}

// outcome places the pending pods of w one after another, as a scheduler does, and reports the counts before and after.
func outcome(w *world) Outcome {
	o := Outcome{OnTarget: true, Policies: []Policy{}, Cohorts: []Cohort{}, Decisions: []Decision{}, Ungoverned: []Workload{}}
	store := w.store()
	nodes := slices.SortedFunc(maps.Values(w.nodes), func(a, b *v1.Node) int { return cmp.Compare(a.Name, b.Name) })
	rules := map[types.NamespacedName]rule{}
	cohortOf := map[types.UID]int{}
	for _, key := range store.Policies() {
		info, _ := store.Policy(key)
		rules[key] = newRule(info, nodes)
		o.Policies = append(o.Policies, newPolicy(info, nodes))
		for _, c := range info.Cohorts {
			for uid := range c.QualifyingPods.All() {
				cohortOf[uid] = len(o.Cohorts)
			}
			o.Cohorts = append(o.Cohorts, Cohort{
				Policy: key.String(), Labels: c.Labels, Qualifying: c.Qualifying, Size: c.Size, Target: c.Target, Now: countsOf(c),
			})
		}
	}

	for _, pod := range w.queue() {
		d, governed := store.Decide(pod)
		i, counted := cohortOf[pod.UID]
		switch {
		case !governed:
			o.Ungoverned = count(o.Ungoverned, pod)
		case !counted:
			o.NotCounted++
		default:
			o.Cohorts[i].Workloads = count(o.Cohorts[i].Workloads, pod)
			if pod.Spec.NodeName == "" {
				o.Decisions = append(o.Decisions, place(store, pod, d, rules[d.Policy]))
			}
		}
	}

	cohorts := o.Cohorts // in the order of the store
	for _, key := range store.Policies() {
		info, _ := store.Policy(key)
		for i, c := range info.Cohorts {
			cohorts[i].Then = countsOf(c)
			cohorts[i].OnTarget = c.Managed == c.Target && cohorts[i].Then.Pending == 0
			o.OnTarget = o.OnTarget && cohorts[i].OnTarget
		}
		cohorts = cohorts[len(info.Cohorts):]
	}
	return o
}

func countsOf(c policystore.Cohort) Counts {
	return Counts{Managed: c.Managed, Other: c.Other, Pending: c.Qualifying - c.Managed - c.Other}
}

// count adds the pod to the workload that it belongs to.
func count(list []Workload, pod *v1.Pod) []Workload {
	w := Workload{Namespace: pod.Namespace}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		w.Workload = owner.Kind + "/" + owner.Name
	}
	i := slices.IndexFunc(list, func(o Workload) bool { return o.Namespace == w.Namespace && o.Workload == w.Workload })
	if i < 0 {
		i, list = len(list), append(list, w)
	}
	list[i].Pods++
	return list
}

// rule is what place needs of a policy.
type rule struct {
	policystore.PolicyInfo
	open map[policystore.Group]*v1.Node // a node of each group that is not cordoned
}

func newRule(info policystore.PolicyInfo, nodes []*v1.Node) rule {
	r := rule{info, map[policystore.Group]*v1.Node{}}
	for _, node := range nodes {
		if !node.Spec.Unschedulable {
			r.open[info.GroupOf(node.Labels)] = node
		}
	}
	return r
}

// place puts the pod on a node of the preferred group or, if that has none, of the other one if the policy allows it.
func place(store *policystore.Store, pod *v1.Pod, d policystore.Decision, r rule) Decision {
	n := d.Managed + d.Other + 1
	reason := fmt.Sprintf("target group has %d, should have %d of %d placed", d.Managed, r.TargetOf(n), n)
	groups := []policystore.Group{policystore.Target, policystore.Other}
	if d.Preferred == policystore.Other {
		slices.Reverse(groups)
	}
	for _, group := range groups {
		if r.open[group] == nil {
			reason += fmt.Sprintf("; no uncordoned node in the %s group", group)
		} else if err := store.AssumePod(pod, r.open[group]); err != nil {
			reason += "; " + err.Error()
		} else {
			return Decision{keyOf(pod).String(), d.Policy.String(), group.String(), reason}
		}
	}
	return Decision{keyOf(pod).String(), d.Policy.String(), "waits", reason}
}

func newPolicy(info policystore.PolicyInfo, nodes []*v1.Node) Policy {
	p := Policy{Policy: info.Policy.String(), TargetNodes: []string{}, OtherNodes: []string{}}
	if info.Err != nil {
		p.Error = info.Err.Error()
		return p
	}
	p.Spec = &v1alpha1.PlacementPolicySpec{
		Weight:          info.Policy.Weight,
		EnforcementMode: v1alpha1.EnforcementMode(info.Policy.EnforcementMode),
		PodSelector:     info.Policy.PodSelector,
		NodeSelector:    info.Policy.NodeSelector,
		MatchLabelKeys:  info.Policy.MatchLabelKeys,
		Policy:          v1alpha1.Policy{Action: v1alpha1.Action(info.Policy.Action), TargetSize: info.Policy.TargetSize},
	}
	for _, node := range nodes {
		if info.GroupOf(node.Labels) == policystore.Target {
			p.TargetNodes = append(p.TargetNodes, node.Name)
		} else {
			p.OtherNodes = append(p.OtherNodes, node.Name)
		}
	}
	return p
}
