package policystore

import (
	v1 "k8s.io/api/core/v1"
)

// node is a node that was added, or one that pods name.
type node struct {
	name   string
	known  bool
	labels flatLabels
	pods   []*pod // placed here, at their nodeIndex
	// assumed has, of a node that is not known, the labels that it had in the scheduling cycles of pods which are
	// placed here.
	assumed map[*pod]*flatLabels
	// nominees are the pods that are nominated for it.
	nominees map[*pod]struct{}
}

// lookedLike notes the labels that the node, if it is not known, had in the scheduling cycle of the pod, which is
// placed here.
func (n *node) lookedLike(p *pod, labels map[string]string) {
	if n.known {
		return
	}
	if n.assumed == nil {
		n.assumed = map[*pod]*flatLabels{}
	}
	flat := flatten(labels)
	n.assumed[p] = &flat
}

// labelsFor returns the labels by which a pod that is placed here counts, or nil if there are none.
func (n *node) labelsFor(p *pod) *flatLabels {
	if n.known {
		return &n.labels
	}
	return n.assumed[p]
}

func (s *state) nodeFor(name string) *node {
	if name == "" {
		return nil
	}
	n := s.nodes[name]
	if n == nil {
		n = &node{name: name}
		s.nodes[name] = n
	}
	return n
}

func (s *state) tidyNode(n *node) {
	if !n.known && len(n.pods) == 0 && len(n.nominees) == 0 {
		delete(s.nodes, n.name)
	}
}

// hasNode reports whether the node object tells nothing new.
func (s *state) hasNode(obj *v1.Node) bool {
	n := s.nodes[obj.Name]
	return n != nil && n.known && n.labels.equal(obj.Labels)
}

func (s *state) setNode(name string, labels map[string]string) {
	n := s.nodeFor(name)
	was := n.look()
	n.known, n.labels, n.assumed = true, flatten(labels), nil
	s.changed = append(s.changed, nodeChange{name, was, n.look()})
	for _, p := range n.pods {
		s.settle(p)
	}
	s.holdPlaces(n)
}

func (s *state) removeNode(name string) {
	n := s.nodes[name]
	if n == nil {
		return
	}
	was := n.look()
	n.known, n.labels = false, flatLabels{}
	s.changed = append(s.changed, nodeChange{name, was, n.look()})
	for _, p := range n.pods {
		s.settle(p)
	}
	s.holdPlaces(n)
	s.tidyNode(n)
}

func (n *node) look() nodeLook { return nodeLook{n.known, n.labels} }

// holdPlaces follows a node's change for the pods that are nominated for it.
func (s *state) holdPlaces(n *node) {
	for p := range n.nominees {
		s.holdPlace(p)
	}
}

func nameOf(n *node) string {
	if n == nil {
		return ""
	}
	return n.name
}
