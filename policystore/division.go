package policystore

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
)

const (
	// nodeSetSize is how many nodes the sets of Store.NodesIn have at most.
	nodeSetSize = 500
	// maxDivisions bounds the memory for them. Clusters have few different node selectors.
	maxDivisions = 100
	// maxNodeChanges is after how many changes of nodes it is cheaper to divide all of them anew than to follow.
	maxNodeChanges = 25
)

// divisions are the last ones that were asked for. They follow the nodes when they are asked for again, not at each
// event of a node: so an event takes the same time however many there are, and holds up nobody who decides.
type divisions struct {
	mu    sync.Mutex // guards the rest, also of the divisions
	byKey map[string]*division
	asked int // how often any was
}

// division is the names of the known nodes in each group. Many policies divide the nodes in the same way.
type division struct {
	by    *nodeGroups
	nodes [MaxGroups + 1]nodeSets // by group
	seen  int                     // how many of all changes of nodes it has followed
	asked int                     // when it was asked for last
}

// nodeSets are disjoint sets of names, none empty. They are immutable, since they are handed out.
type nodeSets []sets.Set[string]

// nodeChange is what has changed of a node: whether it is known, or its labels.
type nodeChange struct {
	name    string
	was, is nodeLook
}

type nodeLook struct {
	known  bool
	labels flatLabels
}

// nodeLog has the last changes of nodes. What is in it stays as it is.
type nodeLog struct {
	changes []nodeChange
	dropped int // how many there were before these
}

func (l *nodeLog) add(c nodeChange) {
	if len(l.changes) == 2*maxNodeChanges {
		l.changes = slices.Clone(l.changes[maxNodeChanges:])
		l.dropped += maxNodeChanges
	}
	l.changes = append(l.changes, c)
}

func (l *nodeLog) count() int { return l.dropped + len(l.changes) }

// NodesIn returns the names of the known nodes in a group of the decision's policy, in sets of at most 500 each, none
// of them empty and all of about equal size. They are shared: they must not be changed, and stay as they are when nodes
// change. It returns none if the policy is gone or has other groups since, or if no policy governs the pod. It
// remembers the last 100 ways in which it was asked to divide the nodes: another one costs a look at all nodes, about a
// millisecond for 5,000.
func (s *Store) NodesIn(d Decision, g Group) []sets.Set[string] {
	if g == NoGroup || g > d.spec.groups().last() {
		return nil
	}
	s.divisions.mu.Lock()
	defer s.divisions.mu.Unlock()
	div := s.divisions.of(d.spec)
	changes, anew, ok := s.newsFor(div, d)
	switch {
	case !ok:
		return nil
	case anew:
		div.divide(changes)
	default:
		for _, c := range changes {
			div.follow(c)
		}
	}
	return div.nodes[g]
}

// of returns the division into the policy's groups, which may be a new one in place of the one that was not asked for
// the longest time.
func (ds *divisions) of(spec *compiledPolicy) *division {
	div := ds.byKey[spec.division]
	if div == nil {
		if ds.byKey == nil {
			ds.byKey = map[string]*division{}
		}
		if len(ds.byKey) == maxDivisions {
			oldest := ""
			for key, div := range ds.byKey {
				if oldest == "" || div.asked < ds.byKey[oldest].asked {
					oldest = key
				}
			}
			delete(ds.byKey, oldest)
		}
		div = &division{by: &spec.nodeGroups, seen: -1}
		ds.byKey[spec.division] = div
	}
	ds.asked++
	div.asked = ds.asked
	return div
}

// newsFor returns the changes that the division is yet to follow or, if it is new or too many have changed, all nodes
// anew. ok is false if the policy does not divide the nodes as in the decision any more.
func (s *Store) newsFor(div *division, d Decision) (changes []nodeChange, anew, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if pol := s.state.policies[d.Policy]; pol == nil || !pol.spec.sameDivision(d.spec) {
		return nil, false, false
	}
	log := &s.nodeLog
	if anew = div.seen < log.dropped; anew {
		changes = make([]nodeChange, 0, len(s.state.nodes))
		for _, n := range s.state.nodes {
			changes = append(changes, nodeChange{name: n.name, is: n.look()})
		}
	} else {
		changes = log.changes[div.seen-log.dropped:]
	}
	div.seen = log.count()
	return changes, anew, true
}

// groupOf returns the group that a node is in; NoGroup too if the node is not known.
func (div *division) groupOf(n nodeLook) Group {
	if !n.known {
		return NoGroup
	}
	return div.by.groupOf(&n.labels)
}

// divide divides the nodes anew.
func (div *division) divide(nodes []nodeChange) {
	var names [MaxGroups + 1][]string
	for _, n := range nodes {
		g := div.groupOf(n.is)
		names[g] = append(names[g], n.name)
	}
	for g := range div.by.all() {
		div.nodes[g] = spread(names[g])
	}
}

// follow follows a node that has changed.
func (div *division) follow(c nodeChange) {
	from, to := div.groupOf(c.was), div.groupOf(c.is)
	if from == to {
		return
	}
	if from != NoGroup {
		div.nodes[from] = div.nodes[from].without(c.name)
	}
	if to != NoGroup {
		div.nodes[to] = div.nodes[to].with(c.name)
	}
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

// without returns the sets without a name that is in one of them. If few are left in that one, all are spread anew:
// after that it takes many more until there are few again.
func (l nodeSets) without(name string) nodeSets {
	i := slices.IndexFunc(l, func(set sets.Set[string]) bool { return set.Has(name) })
	l = slices.Clone(l)
	l[i] = l[i].Clone().Delete(name)
	if l[i].Len() < nodeSetSize/4 {
		return spread(l.names())
	}
	return l
}
