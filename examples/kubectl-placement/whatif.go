package main

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

// WhatIf is what becomes of the pods, and with a change of a policy.
type WhatIf struct {
	// OnTarget is that of After if there is one, else that of Before. The exit code says the same.
	OnTarget bool `json:"onTarget"`
	// Change is what --set asks for; left out without.
	Change *Change `json:"change,omitempty"`
	// Before has the policies as they are, After with the change; left out without.
	Before Outcome  `json:"before"`
	After  *Outcome `json:"after,omitempty"`
}

// Change is a change of a policy's spec.
type Change struct {
	Policy string   `json:"policy"`
	Set    []string `json:"set"` // such as policy.targetSize=60%
}

// Outcome is what becomes of the pods under some policies. Pods and policies are named namespace/name.
type Outcome struct {
	// OnTarget says whether all cohorts are on target in the end.
	OnTarget bool     `json:"onTarget"`
	Policies []Policy `json:"policies"`
	Cohorts  []Cohort `json:"cohorts"`
	// Decisions are about the pending pods that a policy governs, in the order in which they are placed.
	Decisions []Decision `json:"decisions"`
	// Ungoverned are the pods that no policy governs.
	Ungoverned []Ungoverned `json:"ungoverned"`
	// NotCounted is how many pods a policy governs but does not count: they are finished, being deleted, or held by
	// scheduling gates.
	NotCounted int `json:"notCounted"`
}

// Decision says to which group of nodes a pod goes, or that it "waits"; and why.
type Decision struct {
	Pod    string `json:"pod"`
	Policy string `json:"policy"`
	Group  string `json:"group"`
	Reason string `json:"reason"`
}

// whatIf tells what becomes of w and, if there are settings, of w with these fields of the policy's spec set.
func whatIf(w *world, policy types.NamespacedName, settings []string) (WhatIf, error) {
	before := outcome(w)
	if len(settings) == 0 {
		return WhatIf{OnTarget: before.OnTarget, Before: before}, nil
	}
	changed, err := w.with(policy, settings)
	if err != nil {
		return WhatIf{}, err
	}
	after := outcome(changed)
	change := &Change{policy.String(), settings}
	return WhatIf{OnTarget: after.OnTarget, Change: change, Before: before, After: &after}, nil
}

// Ungoverned are pods that the same object controls and that no policy governs, and why.
type Ungoverned struct {
	Workload
	Why string `json:"why"`
}

func countUngoverned(list []Ungoverned, pod *v1.Pod, why string) []Ungoverned {
	u := Ungoverned{workloadOf(pod), why}
	i := slices.IndexFunc(list, func(o Ungoverned) bool { return o.sameAs(u.Workload) && o.Why == why })
	if i < 0 {
		i, list = len(list), append(list, u)
	}
	list[i].Pods++
	return list
}

// outcome places the pending pods of w one after another, as a scheduler does, and reports the counts before and after.
func outcome(w *world) Outcome {
	s := newSurvey(w)
	o := Outcome{OnTarget: true, Policies: []Policy{}, Decisions: []Decision{}, Ungoverned: []Ungoverned{}}
	rules := map[types.NamespacedName]rule{}
	for _, info := range s.policies {
		rules[info.Policy.NamespacedName] = newRule(info, s.nodes)
		o.Policies = append(o.Policies, newPolicy(info, s.nodes))
	}

	for _, pod := range w.queue() {
		d, governed := s.Decide(pod)
		switch {
		case !governed:
			o.Ungoverned = countUngoverned(o.Ungoverned, pod, s.WhyNotGoverned(pod))
		case s.cohort(pod) == nil:
			o.NotCounted++
		case pod.Spec.NodeName == "":
			o.Decisions = append(o.Decisions, place(s.Store, pod, d, rules[d.Policy]))
		}
	}

	for _, key := range s.Policies() {
		info, _ := s.Policy(key)
		for _, c := range info.Cohorts {
			cohort := s.cohorts[len(o.Cohorts)] // they are in the order of the store
			then := countsOf(info, c)
			cohort.Then, cohort.OnTarget = &then, then.onTarget()
			o.Cohorts = append(o.Cohorts, cohort)
			o.OnTarget = o.OnTarget && cohort.OnTarget
		}
	}
	if o.Cohorts == nil {
		o.Cohorts = []Cohort{}
	}
	return o
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

// place puts the pod on a node of the preferred group or, if that has none, of another one if the policy allows it.
func place(store *policystore.Store, pod *v1.Pod, d policystore.Decision, r rule) Decision {
	reason := d.Preference()
	others := slices.DeleteFunc(slices.Collect(d.Groups()), func(g policystore.Group) bool { return g == d.Preferred })
	for _, group := range append([]policystore.Group{d.Preferred}, others...) {
		if r.open[group] == nil {
			reason += fmt.Sprintf("; no uncordoned node in group %s", d.GroupName(group))
		} else if err := store.AssumePod(pod, r.open[group]); err != nil {
			reason += "; " + err.Error()
		} else {
			return Decision{keyOf(pod).String(), d.Policy.String(), d.GroupName(group), reason}
		}
	}
	return Decision{keyOf(pod).String(), d.Policy.String(), "waits", reason}
}
