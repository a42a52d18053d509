package policystore

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/placement-policy/scheduler-plugin/labelselector"
)

const (
	// nodeSetSize is how many nodes the sets of Store.NodesIn have at most.
	nodeSetSize = 500
	// maxDivisions bounds the memory for them. Clusters have few different node selectors.
	maxDivisions = 100
)

// division is the names of the known nodes: of those that a node selector matches, and of the others. Many policies divide
// the nodes in the same way.
type division struct {
	selector         labelselector.Selector
	matching, others nodeSets
}

// nodeSets are disjoint sets of names, none empty. They are immutable, since they are handed out.
type nodeSets []sets.Set[string]

// NodesIn returns the names of the known nodes in a group of the decision's policy, in sets of at most 500 each, none of them
// empty and all of about equal size. They are shared: they must not be changed, and stay as they are when nodes change. It
// returns none if the policy is gone or has another node selector since, or if no policy governs the pod; and if the nodes
// are divided by 100 other node selectors already, of policies that are still there, which is as many as it remembers.
func (s *Store) NodesIn(d Decision, g Group) []sets.Set[string] {
	if d.spec == nil || g == NoGroup {
		return nil
	}
	matching := (g == Target) == (d.spec.Action == Must)
	s.mu.RLock()
	div, full := s.state.divisions[d.spec.nodeSelector.String()], len(s.state.divisions) >= maxDivisions
	nodes := div.side(matching)
	s.mu.RUnlock()
	if div != nil || full {
		return nodes
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.divisionFor(d).side(matching)
}

// side returns the nodes that the selector matches or the others; none of a nil division.
func (div *division) side(matching bool) nodeSets {
	switch {
	case div == nil:
		return nil
	case matching:
		return div.matching
	default:
		return div.others
	}
}

// sideOf returns the side that a node is on; nil if the node is not known.
func (div *division) sideOf(n *node) *nodeSets {
	switch {
	case !n.known:
		return nil
	case div.selector.Matches(&n.labels):
		return &div.matching
	default:
		return &div.others
	}
}

// divisionFor returns the division by the node selector of the decision's policy, which it works out if need be. It returns nil if
// the policy does not have that selector any more, or if there are too many divisions.
func (s *state) divisionFor(d Decision) *division {
	key := d.spec.nodeSelector.String()
	div, pol := s.divisions[key], s.policies[d.Policy]
	if div != nil || len(s.divisions) >= maxDivisions || pol == nil || !pol.spec.hasNodeSelector(key) {
		return div
	}
	div = &division{selector: d.spec.nodeSelector}
	names := map[*nodeSets][]string{}
	for _, n := range s.nodes {
		if side := div.sideOf(n); side != nil {
			names[side] = append(names[side], n.name)
		}
	}
	for side, names := range names {
		*side = spread(names)
	}
	s.divisions[key] = div
	return div
}

// reviseDivisions follows a node that has changed.
func (s *state) reviseDivisions(was, is *node) {
	for _, div := range s.divisions {
		from, to := div.sideOf(was), div.sideOf(is)
		if from == to {
			continue
		}
		if from != nil {
			*from = from.without(was.name)
		}
		if to != nil {
			*to = to.with(is.name)
		}
	}
}

// tidyDivision forgets the division by the node selector that a policy had, if none has it any more.
func (s *state) tidyDivision(old *compiledPolicy) {
	if old == nil {
		return
	}
	key := old.nodeSelector.String()
	if s.divisions[key] == nil {
		return
	}
	for _, pol := range s.policies {
		if pol.spec.hasNodeSelector(key) {
			return
		}
	}
	delete(s.divisions, key)
}

// spread divides names among as few sets as can hold them, of equal size.
func spread(names []string) nodeSets {
	n := (len(names) + nodeSetSize - 1) / nodeSetSize
	l := make(nodeSets, n)
	for i := range l {
		l[i] = sets.New(names[i*len(names)/n : (i+1)*len(names)/n]...)
	}
	return l
}

func (l nodeSets) names() []string {
	var names []string
	for _, set := range l {
		names = append(names, set.UnsortedList()...)
	}
	return names
}

// with returns the sets with one more name: in the smallest or, if all are full, spread anew.
func (l nodeSets) with(name string) nodeSets {
	smallest := 0
	for i, set := range l {
		if set.Len() < l[smallest].Len() {
			smallest = i
		}
	}
	if len(l) == 0 || l[smallest].Len() >= nodeSetSize {
		return spread(append(l.names(), name))
	}
	l = slices.Clone(l)
	l[smallest] = l[smallest].Clone().Insert(name)
	return l
}

// without returns the sets without a name that is in one of them. If few are left in that one, all are spread anew: after that it
// takes many more until there are few again.
func (l nodeSets) without(name string) nodeSets {
	i := slices.IndexFunc(l, func(set sets.Set[string]) bool { return set.Has(name) })
	l = slices.Clone(l)
	l[i] = l[i].Clone().Delete(name)
	if l[i].Len() < nodeSetSize/4 {
		return spread(l.names())
	}
	return l
}
