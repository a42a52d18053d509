package policystore

import (
	"cmp"
	"encoding/binary"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// cohort is the qualifying pods that count together.
type cohort struct {
	policy     *policy
	labels     flatLabels // that the pods agree on
	qualifying Set[types.UID]
	managed    Set[types.UID] // those that the policy manages
	counts     perGroup       // of the placed pods
	// placed tells of how many placed pods each group consists, by their priority.
	placed tally[groupPriority]
	// nominees are the qualifying pods that hold a place as nominated pods, by the group of this place; none empty. It
	// is nil as long as there are none, as mostly.
	nominees  map[groupPriority]nominees
	workloads tally[*workload] // that control qualifying pods, with the number of these
}

// cohort returns the cohort, or nil if no pod of it qualifies.
func (s *state) cohort(id CohortID) *cohort {
	pol := s.policies[id.policy]
	if pol == nil {
		return nil
	}
	return pol.cohorts[id.labels]
}

type groupPriority struct {
	group    Group
	priority int32
}

func (s *state) enterCohort(p *pod, c *cohort) {
	if c == nil {
		return
	}
	p.cohort = c
	c.qualifying.Insert(p.uid)
	if p.workload != nil {
		c.workloads.add(p.workload, +1)
		p.workload.cohorts.add(c, +1)
	}
	s.touch(c.policy)
}

// leaveCohort takes the pod out of its cohort. Call tidyCohort when the pod is where it belongs: it may come back.
func (s *state) leaveCohort(p *pod) {
	c := p.cohort
	if c == nil {
		return
	}
	p.setGroup(NoGroup)
	p.hold(NoGroup)
	p.cohort = nil
	c.qualifying.Delete(p.uid)
	if p.workload != nil {
		c.workloads.add(p.workload, -1)
		p.workload.cohorts.add(c, -1)
	}
	s.touch(c.policy)
}

// tidyCohort forgets the cohort, which may be nil, if no pod of it qualifies any more.
func (s *state) tidyCohort(c *cohort) {
	if c != nil && c.qualifying.Len() == 0 {
		delete(c.policy.cohorts, c.labels)
	}
}

// holdPlace brings the place that a nominated pod holds in line with the facts.
func (s *state) holdPlace(p *pod) {
	c, n := p.cohort, s.nominated[p]
	if c == nil || n == nil {
		return
	}
	g := NoGroup
	if p.placed == nil && n.known {
		g = c.policy.spec.groupOf(&n.labels)
	}
	if g != p.held {
		p.hold(g)
		s.touch(c.policy)
	}
}

// hold notes the group in which the nominated pod holds a place, within its cohort.
func (p *pod) hold(g Group) {
	c := p.cohort
	if was := (groupPriority{p.held, p.priority}); p.held != NoGroup {
		if c.nominees[was] = c.nominees[was].without(p); len(c.nominees[was]) == 0 {
			delete(c.nominees, was)
		}
	}
	p.held = g
	if is := (groupPriority{g, p.priority}); g != NoGroup {
		if c.nominees == nil {
			c.nominees = map[groupPriority]nominees{}
		}
		c.nominees[is] = c.nominees[is].with(p)
	}
}

// nominees are nominated pods in the order of their UIDs: those before a pod hold their places against it.
type nominees []nominee

type nominee struct {
	*pod
	uidStart uint64 // tells most pods apart without a look at them
}

func nomineeOf(p *pod) nominee {
	var start [8]byte
	copy(start[:], p.uid)
	return nominee{p, binary.BigEndian.Uint64(start[:])}
}

// before returns how many of l are before p.
func (l nominees) before(p *pod) int {
	i, _ := slices.BinarySearchFunc(l, nomineeOf(p), func(a, b nominee) int {
		if a.uidStart != b.uidStart {
			return cmp.Compare(a.uidStart, b.uidStart)
		}
		return cmp.Compare(a.uid, b.uid)
	})
	return i
}

func (l nominees) with(p *pod) nominees { return slices.Insert(l, l.before(p), nomineeOf(p)) }

func (l nominees) without(p *pod) nominees {
	i := l.before(p)
	return slices.Delete(l, i, i+1)
}

// setGroup counts the pod in the group, within its cohort.
func (p *pod) setGroup(g Group) {
	c := p.cohort
	if p.group != NoGroup {
		c.counts[p.group]--
		c.placed.add(groupPriority{p.group, p.priority}, -1)
	}
	if p.managed {
		c.managed.Delete(p.uid)
	}
	p.group, p.managed = g, c.policy.spec.groups().manages(g)
	if g != NoGroup {
		c.counts[g]++
		c.placed.add(groupPriority{g, p.priority}, +1)
	}
	if p.managed {
		c.managed.Insert(p.uid)
	}
}

// cohortFor returns the cohort of the pods with the given labels, which the policy governs.
func (p *policy) cohortFor(l *labelSet) *cohort {
	c := p.cohorts[l.cohortLabels]
	if c == nil {
		c = &cohort{policy: p, labels: l.cohortLabels}
		p.cohorts[l.cohortLabels] = c
	}
	return c
}

// size is N: how many pods qualify, or what the workload wants that controls all that have a controller, if that is
// more. A pod that nothing controls, such as one that was released for debugging, says nothing of the workload.
func (c *cohort) size() int { return max(c.qualifying.Len(), c.wants("", nil)) }

// wants returns how many pods the workload wants that controls all of the cohort's that have a controller and, if it
// has one, a pod that joins; 0 if there is no such workload or it is not known. joining is what is known of that pod's
// controller.
func (c *cohort) wants(controller types.UID, joining *workload) int {
	switch c.workloads.kinds() {
	case 0:
		return joining.wants()
	case 1:
		for only := range c.workloads.all {
			if controller == "" || controller == only.uid {
				return only.wants()
			}
		}
	}
	return 0
}
