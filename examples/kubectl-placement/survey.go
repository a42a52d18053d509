package main

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

// Policy is a policy, and the nodes in its groups.
type Policy struct {
	Policy string `json:"policy"`
	// Error says why the policy is invalid and governs nothing; left out if it is valid.
	Error string `json:"error,omitempty"`
	// Spec is the spec with its defaults; left out if it is invalid.
	Spec *v1alpha1.PlacementPolicySpec `json:"spec,omitempty"`
	// Groups are none if it is invalid.
	Groups []Group `json:"groups"`
}

// Cohort is the pods that a policy governs and that agree on its matchLabelKeys.
type Cohort struct {
	Policy    string            `json:"policy"`
	Labels    map[string]string `json:"labels"` // that they agree on
	Workloads []Workload        `json:"workloads"`
	// Size is how many pods qualify, or what their workload wants if it is more.
	Size int `json:"size"`
	// Now is where they are. Then, of whatif alone, is where they are once the pending pods are placed.
	Now  Counts  `json:"now"`
	Then *Counts `json:"then,omitempty"`
	// OnTarget: in the end, no pod is pending, and each group has the pods that belong there.
	OnTarget bool `json:"onTarget"`
}

// Workload is a number of pods that the same object controls.
type Workload struct {
	Namespace string `json:"namespace"`
	Workload  string `json:"workload"` // Kind/name; empty for pods that nothing controls
	Pods      int    `json:"pods"`
}

// workloadOf returns what controls the pod, with no pods yet.
func workloadOf(pod *v1.Pod) Workload {
	w := Workload{Namespace: pod.Namespace}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		w.Workload = owner.Kind + "/" + owner.Name
	}
	return w
}

// sameAs reports whether both are of the same object, with however many pods.
func (w Workload) sameAs(o Workload) bool {
	return w.Namespace == o.Namespace && w.Workload == o.Workload
}

// survey is a world in the eyes of a store: what it knows of the policies, and the cohort of each pod that counts.
type survey struct {
	*policystore.Store
	nodes    []*v1.Node // by name
	policies []policystore.PolicyInfo
	cohorts  []Cohort // of the policies, in their order
	cohortOf map[types.UID]int
}

func newSurvey(w *world) *survey {
	s := &survey{Store: w.store(), cohorts: []Cohort{}, cohortOf: map[types.UID]int{}}
	byName := func(a, b *v1.Node) int { return cmp.Compare(a.Name, b.Name) }
	s.nodes = slices.SortedFunc(maps.Values(w.nodes), byName)
	for _, key := range s.Policies() {
		info, _ := s.Policy(key)
		s.policies = append(s.policies, info)
		for _, c := range info.Cohorts {
			for uid := range c.QualifyingPods.All() {
				s.cohortOf[uid] = len(s.cohorts)
			}
			now := countsOf(info, c)
			s.cohorts = append(s.cohorts, Cohort{
				Policy: key.String(), Labels: c.Labels, Workloads: []Workload{}, Size: c.Size,
				Now: now, OnTarget: now.onTarget(),
			})
		}
	}
	for _, pod := range w.queue() {
		if i, counted := s.cohortOf[pod.UID]; counted {
			s.cohorts[i].Workloads = count(s.cohorts[i].Workloads, pod)
		}
	}
	return s
}

// cohort returns the cohort in which the pod counts, or nil.
func (s *survey) cohort(pod *v1.Pod) *Cohort {
	if i, counted := s.cohortOf[pod.UID]; counted {
		return &s.cohorts[i]
	}
	return nil
}

// node returns the node of that name, or nil.
func (s *survey) node(name string) *v1.Node {
	compare := func(node *v1.Node, name string) int { return cmp.Compare(node.Name, name) }
	i, found := slices.BinarySearchFunc(s.nodes, name, compare)
	if !found {
		return nil
	}
	return s.nodes[i]
}

// count adds the pod to the workload that it belongs to.
func count(list []Workload, pod *v1.Pod) []Workload {
	w := workloadOf(pod)
	i := slices.IndexFunc(list, w.sameAs)
	if i < 0 {
		i, list = len(list), append(list, w)
	}
	list[i].Pods++
	return list
}

func newPolicy(info policystore.PolicyInfo, nodes []*v1.Node) Policy {
	p := Policy{Policy: info.Policy.String(), Groups: []Group{}}
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
		Policy: v1alpha1.Policy{
			Action:     v1alpha1.Action(info.Policy.Action),
			TargetSize: info.Policy.TargetSize,
		},
	}
	for _, g := range info.Policy.Groups {
		p.Spec.Groups = append(p.Spec.Groups, v1alpha1.Group(g))
	}
	p.Groups = groupsOf(info, nodes)
	return p
}
