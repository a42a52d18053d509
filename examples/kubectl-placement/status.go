package main

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

// Status is how policies fare.
type Status struct {
	// OnTarget: every policy is valid and on target.
	OnTarget bool           `json:"onTarget"`
	Policies []PolicyStatus `json:"policies"`
}

// PolicyStatus is how a policy fares.
type PolicyStatus struct {
	Policy
	// OnTarget: the policy is valid, and all of its cohorts are on target.
	OnTarget bool `json:"onTarget"`
	// Pods adds up the cohorts.
	Pods    Counts   `json:"pods"`
	Cohorts []Cohort `json:"cohorts"`
	// NotCountedPods is how many pods the policy governs but does not count: they are finished, being deleted, or held
	// by scheduling gates.
	NotCountedPods int `json:"notCountedPods"`
	// Findings say what is off, and why; also what an operator should know of a policy that is on target.
	Findings []string `json:"findings"`
}

// statusOf tells how the policies of those names fare, or all if there are none. A name may be with its namespace, as
// namespace/name.
func statusOf(w *world, names []string) (Status, error) {
	s := newSurvey(w)
	status := Status{OnTarget: true, Policies: []PolicyStatus{}}
	governed := podsByPolicy(s, w)
	found := map[string]bool{}
	cohorts := s.cohorts
	for _, info := range s.policies {
		key := info.Policy.NamespacedName
		own := cohorts[:len(info.Cohorts)]
		cohorts = cohorts[len(info.Cohorts):]
		if len(names) > 0 && !slices.Contains(names, key.Name) && !slices.Contains(names, key.String()) {
			continue
		}
		found[key.Name], found[key.String()] = true, true
		p := PolicyStatus{Policy: newPolicy(info, s.nodes), OnTarget: info.Err == nil, Cohorts: slices.Clip(own)}
		for _, c := range own {
			p.Pods.add(c.Now)
			p.OnTarget = p.OnTarget && c.OnTarget
		}
		if len(own) == 0 {
			p.Cohorts = []Cohort{}
			p.Pods = countsOf(info, policystore.Cohort{})
		}
		p.NotCountedPods = len(governed[key]) - p.Pods.QualifyingPods
		p.Findings = findings(s, p, info, w.policies[key], governed[key])
		status.OnTarget = status.OnTarget && p.OnTarget
		status.Policies = append(status.Policies, p)
	}
	for _, name := range names {
		if !found[name] {
			others := cmp.Or(some(namesOf(s.policies)), "none")
			return Status{}, fmt.Errorf("there is no placement policy %s: there are %s", name, others)
		}
	}
	return status, nil
}

func podsByPolicy(s *survey, w *world) map[types.NamespacedName][]*v1.Pod {
	governed := map[types.NamespacedName][]*v1.Pod{}
	for _, pod := range w.queue() {
		if d, ok := s.Decide(pod); ok {
			governed[d.Policy] = append(governed[d.Policy], pod)
		}
	}
	return governed
}

func namesOf(policies []policystore.PolicyInfo) []string {
	var names []string
	for _, info := range policies {
		names = append(names, info.Policy.String())
	}
	return names
}

// findings says what is off with a policy, and why: in the order in which an operator would look.
func findings(s *survey, p PolicyStatus, info policystore.PolicyInfo, object *unstructured.Unstructured,
	pods []*v1.Pod) []string {
	found := []string{}
	add := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	if p.Error != "" {
		add("governs nothing: %s", p.Error)
		return found
	}
	observed, _, _ := unstructured.NestedInt64(object.Object, "status", "observedGeneration")
	if observed != object.GetGeneration() {
		add("no scheduler has written the status of this version: " +
			"does one with the plugin run, and may it patch placementpolicies/status?")
	}
	for i, g := range p.Groups {
		switch {
		case p.Pods.Groups[i].TargetPods == 0:
		case len(g.Nodes) == 0:
			add("group %s has no node", g.Name)
		case len(g.Cordoned) == len(g.Nodes):
			add("all nodes of group %s are cordoned", g.Name)
		}
	}

	off, lost, over := 0, map[string]int{}, map[string]int{}
	for _, c := range p.Cohorts {
		if !c.OnTarget {
			off++
		}
		for _, g := range c.Now.Groups {
			over[g.Name] += max(0, g.Pods-g.TargetPods)
		}
	}
	if off > 0 && len(p.Cohorts) > 1 {
		add("%d of %d cohorts are off target", off, len(p.Cohorts))
	}
	var pending []*v1.Pod
	for _, pod := range pods {
		switch {
		case s.cohort(pod) == nil:
		case pod.Spec.NodeName == "":
			pending = append(pending, pod)
		case s.node(pod.Spec.NodeName) == nil:
			lost[pod.Spec.NodeName]++
		}
	}
	for _, alike := range groupBy(pending, reasonOf) {
		add("%d pending: %s", len(alike), schedulerSays(alike[0]))
	}
	for _, node := range slices.Sorted(maps.Keys(lost)) {
		add("%d on node %s, which is not there: in no group", lost[node], node)
	}
	for _, g := range p.Groups {
		if over[g.Name] > 0 {
			add("%d too many in group %s: running pods are not moved; the next ones go elsewhere", over[g.Name], g.Name)
		}
	}
	for _, by := range slices.SortedFunc(maps.Keys(info.OverruledBy), compareKeys) {
		add("%d of the pods that it selects are governed by %s", info.OverruledBy[by], by)
	}
	if p.NotCountedPods > 0 {
		add("%d not counted, since finished, being deleted or held by scheduling gates", p.NotCountedPods)
	}
	return found
}

// numbers are what tells apart what the scheduler says of pods that wait for the same reason.
var numbers = regexp.MustCompile(`\([^)]*\)|[0-9]+`)

func reasonOf(pod *v1.Pod) string { return numbers.ReplaceAllString(schedulerSays(pod), "") }

// groupBy returns the pods with equal keys together, in the order in which the first of them comes.
func groupBy(pods []*v1.Pod, key func(*v1.Pod) string) (groups [][]*v1.Pod) {
	index := map[string]int{}
	for _, pod := range pods {
		i, known := index[key(pod)]
		if !known {
			i = len(groups)
			index[key(pod)] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], pod)
	}
	return groups
}

func compareKeys(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) }
