package policystore

import (
	"k8s.io/apimachinery/pkg/types"
)

// cohort is the qualifying pods that count together.
type cohort struct {
	policy     *policy
	labels     flatLabels // that the pods agree on
	qualifying Set[types.UID]
	managed    Set[types.UID]
	other      int
	// placed tells of how many placed pods each group consists, by their priority.
	placed map[groupPriority]int
	// nominated are the qualifying pods that have a nominated node, each with the group in which it holds a place; NoGroup if
	// it holds none.
	nominated map[*pod]Group
	workloads map[*workload]int // of the qualifying pods, with their number; nil stands for none
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
	c.workloads[p.workload]++
	if p.workload != nil {
		p.workload.cohorts[c] = struct{}{}
	}
	if s.nominated[p] != "" {
		c.nominated[p] = NoGroup
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
	p.cohort = nil
	c.qualifying.Delete(p.uid)
	delete(c.nominated, p)
	if c.workloads[p.workload]--; c.workloads[p.workload] == 0 {
		delete(c.workloads, p.workload)
		if p.workload != nil {
			delete(p.workload.cohorts, c)
		}
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
	c := p.cohort
	if c == nil || s.nominated[p] == "" {
		return
	}
	g := NoGroup
	if n := s.nodes[s.nominated[p]]; p.placed == nil && n != nil && n.known {
		g = c.policy.spec.groupOf(&n.labels)
	}
	if g != c.nominated[p] {
		c.nominated[p] = g
		s.touch(c.policy)
	}
}

// setGroup counts the pod in the group, within its cohort.
func (p *pod) setGroup(g Group) {
	c := p.cohort
	switch p.group {
	case Target:
		c.managed.Delete(p.uid)
	case Other:
		c.other--
	}
	if p.group != NoGroup {
		key := groupPriority{p.group, p.priority}
		if c.placed[key]--; c.placed[key] == 0 {
			delete(c.placed, key)
		}
	}
	p.group = g
	switch g {
	case Target:
		c.managed.Insert(p.uid)
	case Other:
		c.other++
	}
	if g != NoGroup {
		c.placed[groupPriority{g, p.priority}]++
	}
}

// cohortFor returns the cohort of the pods with the given labels, which the policy governs.
func (p *policy) cohortFor(l *labelSet) *cohort {
	c := p.cohorts[l.cohortLabels]
	if c == nil {
		c = &cohort{
			policy:    p,
			labels:    l.cohortLabels,
			placed:    map[groupPriority]int{},
			nominated: map[*pod]Group{},
			workloads: map[*workload]int{},
		}
		p.cohorts[l.cohortLabels] = c
	}
	return c
}

// size is N: how many pods qualify, or what the workload that controls all of them wants, if that is more.
func (c *cohort) size() int {
	size := c.qualifying.Len()
	if len(c.workloads) == 1 {
		for w := range c.workloads {
			size = max(size, w.wants())
		}
	}
	return size
}
