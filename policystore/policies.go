package policystore

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/placement-policy/scheduler-plugin/labelselector"
)

// policy is a policy that was set. spec is nil and err says why if it is invalid.
type policy struct {
	key     types.NamespacedName
	spec    *compiledPolicy
	err     error
	cohorts map[flatLabels]*cohort // by the labels that tell them apart; none without qualifying pods
	touched bool                   // listed in state.touched
	// overruledBy has how many pods the policy selects, but another one governs, by that one; no zeros.
	overruledBy map[*policy]int
}

// namespace holds what only pods and policies of one namespace share.
type namespace struct {
	name string
	// index finds the valid policies that select a label set.
	index labelselector.Index[*policy]
	// labelSets are the distinct label sets of the namespace's pods.
	labelSets map[flatLabels]*labelSet
}

// maxSelectedBy bounds what a pod costs where very many policies select it. A policy that comes after so many others is
// not told how many pods these govern.
const maxSelectedBy = 8

// labelSet is a set of labels that at least one pod has. Pods that agree on their labels share one, so that what
// follows from labels is worked out once: the pods of a ReplicaSet, however many, have one labelSet.
type labelSet struct {
	namespace *namespace
	labels    flatLabels
	// selectedBy are the policies that select the pods, the governing one first; the first maxSelectedBy of them.
	selectedBy []*policy
	// cohortLabels tell the cohorts of the governing policy apart.
	cohortLabels flatLabels
	pods         []*pod // at their labelSetIndex
}

// governing returns the policy that governs the pods with these labels, or nil.
func (l *labelSet) governing() *policy {
	if len(l.selectedBy) == 0 {
		return nil
	}
	return l.selectedBy[0]
}

// setPolicy sets a policy that is valid (err is nil) or invalid (spec is nil).
func (s *state) setPolicy(key types.NamespacedName, spec *compiledPolicy, err error) {
	pol := s.policies[key]
	if pol == nil {
		pol = &policy{key: key, cohorts: map[flatLabels]*cohort{}, overruledBy: map[*policy]int{}}
		s.policies[key] = pol
	}
	old := pol.spec
	pol.spec, pol.err = spec, err
	s.touch(pol)
	if spec != nil && spec.sameGrouping(old) {
		return
	}
	s.regroup(pol)
}

func (s *state) removePolicy(key types.NamespacedName) {
	pol := s.policies[key]
	if pol == nil {
		return
	}
	s.touch(pol)
	pol.spec = nil
	s.regroup(pol)
	delete(s.policies, key)
}

// regroup works out anew which pods of its namespace the policy selects, governs and counts where.
func (s *state) regroup(pol *policy) {
	ns := s.namespaceFor(pol.key.Namespace)
	if pol.spec == nil {
		ns.index.Delete(pol)
	} else {
		ns.index.Set(pol, pol.spec.podSelector)
	}
	for _, l := range ns.labelSets {
		selected, selects := slices.Contains(l.selectedBy, pol), pol.spec != nil && pol.spec.podSelector.Matches(&l.labels)
		full := len(l.selectedBy) == maxSelectedBy
		if !selected && (!selects || full && comparePolicies(l.selectedBy[maxSelectedBy-1], pol) < 0) {
			continue
		}
		was := l.governing()
		s.countOverruled(l, -len(l.pods))
		l.selectedBy = slices.DeleteFunc(l.selectedBy, func(o *policy) bool { return o == pol })
		if selected && full { // those that come after them may follow
			l.selectedBy = ns.selecting(l.labels.toMap())
		} else if selects {
			i, _ := slices.BinarySearchFunc(l.selectedBy, pol, comparePolicies)
			l.selectedBy = slices.Insert(l.selectedBy, i, pol)
			l.selectedBy = slices.Delete(l.selectedBy, min(maxSelectedBy, len(l.selectedBy)), len(l.selectedBy))
		}
		s.countOverruled(l, +len(l.pods))
		if was == pol || l.governing() == pol {
			l.setCohortLabels()
			for _, p := range l.pods {
				s.settle(p)
			}
		}
	}
	s.tidyNamespace(ns)
}

// countOverruled counts pods, n more or fewer, that have the labels and are governed by only one of the policies that
// select them.
func (s *state) countOverruled(l *labelSet, n int) {
	for i := 1; i < len(l.selectedBy); i++ {
		pol, by := l.selectedBy[i], l.selectedBy[0]
		if pol.overruledBy[by] += n; pol.overruledBy[by] == 0 {
			delete(pol.overruledBy, by)
		}
		s.touch(pol)
	}
}

func comparePolicies(a, b *policy) int { return compareRank(a.spec, b.spec) }

func (l *labelSet) setCohortLabels() {
	l.cohortLabels = flatLabels{}
	if pol := l.governing(); pol != nil {
		l.cohortLabels = l.labels.only(pol.spec.MatchLabelKeys)
	}
}

func (s *state) namespaceFor(name string) *namespace {
	ns := s.namespaces[name]
	if ns == nil {
		ns = &namespace{
			name:      name,
			index:     labelselector.Index[*policy]{Order: comparePolicies},
			labelSets: map[flatLabels]*labelSet{},
		}
		s.namespaces[name] = ns
	}
	return ns
}

func (s *state) tidyNamespace(ns *namespace) {
	if len(ns.labelSets) == 0 && ns.index.Len() == 0 {
		delete(s.namespaces, ns.name)
	}
}

func (s *state) labelSetFor(obj *v1.Pod) *labelSet {
	ns := s.namespaceFor(obj.Namespace)
	labels := flatten(obj.Labels)
	l := ns.labelSets[labels]
	if l == nil {
		l = &labelSet{
			namespace:  ns,
			labels:     labels,
			selectedBy: ns.selecting(obj.Labels),
		}
		l.setCohortLabels()
		ns.labelSets[labels] = l
	}
	return l
}

// selecting returns the policies that select pods with the labels, the first maxSelectedBy of them.
func (ns *namespace) selecting(labels map[string]string) (policies []*policy) {
	for pol := range ns.index.Matching(labels) {
		if policies = append(policies, pol); len(policies) == maxSelectedBy {
			break
		}
	}
	return policies
}

// setLabelSet lists the pod under the label set, which nil takes away. It leaves the contribution to settle.
func (s *state) setLabelSet(p *pod, l *labelSet) {
	if old := p.labelSet; old != nil {
		s.countOverruled(old, -1)
		old.pods = swapRemove(old.pods, p.labelSetIndex, func(moved *pod) { moved.labelSetIndex = p.labelSetIndex })
		if len(old.pods) == 0 {
			delete(old.namespace.labelSets, old.labels)
			s.tidyNamespace(old.namespace)
		}
	}
	p.labelSet = l
	if l != nil {
		s.countOverruled(l, +1)
		p.labelSetIndex = len(l.pods)
		l.pods = append(l.pods, p)
	}
}

// governingFor returns the policy that governs a pod that is not tracked, or nil.
func (s *state) governingFor(obj *v1.Pod) *policy {
	if ofDaemonSet(obj) {
		return nil
	}
	return s.selecting(obj)
}

// selecting returns the first of the policies that select the pod, or nil.
func (s *state) selecting(obj *v1.Pod) *policy {
	ns := s.namespaces[obj.Namespace]
	if ns == nil {
		return nil
	}
	for pol := range ns.index.Matching(obj.Labels) {
		return pol
	}
	return nil
}
