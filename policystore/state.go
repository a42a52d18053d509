package policystore

import (
	"k8s.io/apimachinery/pkg/types"
)

// state is the store without its lock: all facts, and what follows from them. A fact is changed first; settle then
// brings each pod's contribution in line with it. So no event ever needs to know what an earlier one did.
type state struct {
	policies   map[types.NamespacedName]*policy
	namespaces map[string]*namespace
	nodes      map[string]*node
	workloads  map[types.UID]*workload
	pods       map[types.UID]*pod
	// nominated has the nominated node of the pods that have one: few, and for a short time.
	nominated map[*pod]*node

	// touched collects the policies whose counts or spec the current operation changes, and changed what it changes of
	// nodes.
	touched []*policy
	changed []nodeChange
}

// init makes the zero state ready to be written to. It can be read as it is.
func (s *state) init() {
	if s.pods != nil {
		return
	}
	s.policies = map[types.NamespacedName]*policy{}
	s.namespaces = map[string]*namespace{}
	s.nodes = map[string]*node{}
	s.workloads = map[types.UID]*workload{}
	s.pods = map[types.UID]*pod{}
	s.nominated = map[*pod]*node{}
}

func (s *state) touch(p *policy) {
	if !p.touched {
		p.touched = true
		s.touched = append(s.touched, p)
	}
}
