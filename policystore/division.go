package policystore

import "k8s.io/apimachinery/pkg/util/sets"

const (
	// nodeSetSize is how many nodes the sets of Store.NodesIn have at most.
	nodeSetSize = 500
	// maxDivisions bounds the memory for them. Clusters have few different node selectors.
	maxDivisions = 100
)

// division is the names of the known nodes by group. It is immutable.
type division map[Group][]sets.Set[string]

// divisionKey tells divisions apart: many policies divide the nodes in the same way.
type divisionKey struct {
	nodeSelector string
	action       Action
}

// NodesIn returns the names of the known nodes in a group of the decision's policy, in sets of about equal size, of at most 500
// each. The sets are shared: they must not be changed. It returns none if no policy governs the pod; and if more than 100 node
// selectors were asked for since nodes or policies changed last, which is as many as it remembers.
func (s *Store) NodesIn(d Decision, g Group) []sets.Set[string] {
	if d.spec == nil {
		return nil
	}
	key := divisionKey{d.spec.nodeSelector.String(), d.spec.Action}
	s.mu.RLock()
	div, full := s.state.divisions[key], len(s.state.divisions) >= maxDivisions
	s.mu.RUnlock()
	if div == nil && !full {
		s.update(func(st *state) {
			div = st.divide(d.spec)
			st.divisions[key] = div
		})
	}
	return div[g]
}

// divide works out the division of all known nodes.
func (s *state) divide(spec *compiledPolicy) division {
	names := map[Group][]string{}
	for _, n := range s.nodes {
		if n.known {
			g := spec.groupOf(&n.labels)
			names[g] = append(names[g], n.name)
		}
	}
	div := division{}
	for g, names := range names {
		n := (len(names) + nodeSetSize - 1) / nodeSetSize
		for i := range n {
			div[g] = append(div[g], sets.New(names[i*len(names)/n:(i+1)*len(names)/n]...))
		}
	}
	return div
}
