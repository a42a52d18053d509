package policystore

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
)

const (
	// nodeSetSize is how many nodes the sets of Store.NodesIn have at most.
	nodeSetSize = 500
	// maxDivisions bounds the memory for them. Clusters have few different node selectors.
	maxDivisions = 100
)

// division is the names of the known nodes in each group. Many policies divide the nodes in the same way.
type division struct {
	by    *nodeGroups
	nodes [MaxGroups + 1]nodeSets // by group
}

// nodeSets are disjoint sets of names, none empty. They are immutable, since they are handed out.
type nodeSets []sets.Set[string]

// NodesIn returns the names of the known nodes in a group of the decision's policy, in sets of at most 500 each, none of them
// empty and all of about equal size. They are shared: they must not be changed, and stay as they are when nodes change. It
// returns none if the policy is gone or has other groups since, or if no policy governs the pod; and if the nodes are
// divided in 100 other ways already, by policies that are still there, which is as many as it remembers.
func (s *Store) NodesIn(d Decision, g Group) []sets.Set[string] {
	if d.spec == nil || g == NoGroup {
		return nil
	}
	s.mu.RLock()
	div, full := s.state.divisions[d.spec.division], len(s.state.divisions) >= maxDivisions
	nodes := div.nodesIn(g)
	s.mu.RUnlock()
	if div != nil || full {
		return nodes
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.divisionFor(d).nodesIn(g)
}

// nodesIn returns the nodes in the group; none of a nil division.
func (div *division) nodesIn(g Group) nodeSets {
	if div == nil {
		return nil
	}
	return div.nodes[g]
}

// groupOf returns the group that a node is in; NoGroup too if the node is not known.
func (div *division) groupOf(n *node) Group {
	if !n.known {
		return NoGroup
	}
	return div.by.groupOf(&n.labels)
}

// divisionFor returns the division into the groups of the decision's policy, which it works out if need be. It returns nil
// if the policy does not have these groups any more, or if there are too many divisions.
func (s *state) divisionFor(d Decision) *division {
	key := d.spec.division
	div, pol := s.divisions[key], s.policies[d.Policy]
	if div != nil || len(s.divisions) >= maxDivisions || pol == nil || !pol.spec.sameDivision(d.spec) {
		return div
	}
	div = &division{by: &d.spec.nodeGroups}
	var names [MaxGroups + 1][]string
	for _, n := range s.nodes {
		g := div.groupOf(n)
		names[g] = append(names[g], n.name)
	}
	for g := range div.by.all() {
		div.nodes[g] = spread(names[g])
	}
	s.divisions[key] = div
	return div
}

// reviseDivisions follows a node that has changed.
func (s *state) reviseDivisions(was, is *node) {
	for _, div := range s.divisions {
		from, to := div.groupOf(was), div.groupOf(is)
		if from == to {
			continue
		}
		if from != NoGroup {
			div.nodes[from] = div.nodes[from].without(was.name)
		}
		if to != NoGroup {
			div.nodes[to] = div.nodes[to].with(is.name)
		}
	}
}

// tidyDivision forgets the division into the groups that a policy had, if none has them any more.
func (s *state) tidyDivision(old *compiledPolicy) {
	if old == nil || s.divisions[old.division] == nil {
		return
	}
	for _, pol := range s.policies {
		if pol.spec.sameDivision(old) {
			return
		}
	}
	delete(s.divisions, old.division)
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
