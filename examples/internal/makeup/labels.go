// Package makeup makes up labels, for programs that show a policy on pods and nodes of their own.
package makeup

import (
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

// maxTries bounds the label sets that are tried. Selectors have few keys and few values.
const maxTries = 100_000

// PodLabels returns labels that the selector matches. The error says so if it finds none.
func PodLabels(selector *metav1.LabelSelector) (map[string]string, error) {
	compiled, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return nil, err
	}
	set, ok := find([]labels.Selector{compiled}, compiled.Matches)
	if !ok {
		return nil, fmt.Errorf("found none that the selector %s matches", compiled)
	}
	return set, nil
}

// NodeLabels returns labels that make a node one of the policy's group. The error says so if it finds none.
func NodeLabels(policy policystore.PolicyInfo, group policystore.Group) (map[string]string, error) {
	selectors := []labels.Selector{}
	add := func(s *metav1.LabelSelector) {
		if compiled, err := metav1.LabelSelectorAsSelector(s); err == nil {
			selectors = append(selectors, compiled)
		}
	}
	add(policy.Policy.NodeSelector)
	for _, g := range policy.Policy.Groups {
		add(g.NodeSelector)
	}
	set, ok := find(selectors, func(l labels.Labels) bool { return policy.GroupOf(l.(labels.Set)) == group })
	if !ok {
		return nil, fmt.Errorf("found none that a node of group %s may have", policy.GroupName(group))
	}
	return set, nil
}

// find returns the first label set that is accepted, of those that can make a difference to the selectors: each of
// their keys with each of its values, with others, or left out.
func find(selectors []labels.Selector, accept func(labels.Labels) bool) (map[string]string, bool) {
	values := map[string][]string{}
	for _, s := range selectors {
		requirements, _ := s.Requirements()
		for _, r := range requirements {
			values[r.Key()] = append(append(values[r.Key()], "true", "other"), r.Values().UnsortedList()...)
		}
	}
	keys := slices.Sorted(maps.Keys(values))
	set, tries := labels.Set{}, 0
	var try func(keys []string) bool
	try = func(keys []string) bool {
		if len(keys) == 0 {
			tries++
			return accept(set)
		}
		key, rest := keys[0], keys[1:]
		if try(rest) {
			return true
		}
		slices.Sort(values[key])
		for _, value := range slices.Compact(values[key]) {
			if tries >= maxTries {
				return false
			}
			set[key] = value
			if try(rest) {
				return true
			}
			delete(set, key)
		}
		return false
	}
	return set, try(keys)
}
