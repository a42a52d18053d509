package policystore

import v1 "k8s.io/api/core/v1"

// decide takes the decision for the pod, as tracked if it is tracked, else as given.
func (s *state) decide(obj *v1.Pod) (d Decision, governed bool) {
	p := s.pods[uidOf(obj)]
	var pol *policy
	var labels flatLabels
	var w *workload
	var priority int32
	if p != nil {
		pol, labels = p.labelSet.governing(), p.labelSet.cohortLabels
		w, priority = p.workload, p.priority
	} else if pol = s.governingFor(obj); pol != nil {
		f := factsOf(obj)
		labels = pick(obj.Labels, pol.spec.MatchLabelKeys)
		w, priority = s.workloads[f.workload], f.priority
	}
	if pol == nil {
		return Decision{}, false
	}
	d = Decision{Policy: pol.key, spec: pol.spec, labels: labels, priority: priority}
	inside := p != nil && p.cohort != nil
	var c *cohort
	if inside {
		c = p.cohort
	} else if c = pol.cohorts[labels]; c == nil {
		d.Qualifying = 1
		d.Size = max(1, w.wants())
		d.conclude()
		return d, true
	}

	d.Qualifying, d.Managed, d.Other = c.qualifying.Len(), c.managed.Len(), c.other
	if inside {
		d.count(p.group, -1)
	} else {
		d.Qualifying++
	}
	d.Size = d.Qualifying
	if len(c.workloads) == 1 && (inside || c.workloads[w] > 0) {
		d.Size = max(d.Size, w.wants())
	}
	for q, g := range c.nominated {
		if g != NoGroup && s.holdsAgainst(q, p, priority) {
			d.count(g, +1)
			d.added = append(d.added, placement{q.uid, g})
		}
	}
	d.conclude()
	return d, true
}

// holdsAgainst reports whether the nominated pod q holds its place against p, which may be nil if it is not tracked: a
// nomination stands against pods of equal or lower priority. Of two nominated pods of equal priority only one holds its
// place against the other, so that they cannot block each other.
func (s *state) holdsAgainst(q, p *pod, priority int32) bool {
	switch {
	case q == p:
		return false
	case q.priority != priority:
		return q.priority > priority
	default:
		return p == nil || s.nominated[p] == "" || q.uid < p.uid
	}
}
