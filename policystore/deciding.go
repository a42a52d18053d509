package policystore

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// decide takes the decision for the pod, as tracked if it is tracked, else as given.
func (s *state) decide(obj *v1.Pod) (d Decision, governed bool) {
	p := s.pods[uidOf(obj)]
	var pol *policy
	var labels flatLabels
	var controller types.UID
	var priority int32
	if p != nil {
		pol, labels = p.labelSet.governing(), p.labelSet.cohortLabels
		controller, priority = p.workload.id(), p.priority
	} else if pol = s.governingFor(obj); pol != nil {
		f := factsOf(obj)
		labels = pick(obj.Labels, pol.spec.MatchLabelKeys)
		controller, priority = f.workload, f.priority
	}
	if pol == nil {
		return Decision{}, false
	}
	d = Decision{Policy: pol.key, spec: pol.spec, labels: labels, pod: uidOf(obj), priority: priority}
	c := pol.cohorts[labels]
	if c == nil {
		d.Qualifying = 1
		d.Size = max(1, s.workloads[controller].wants())
		d.conclude()
		return d, true
	}

	d.Qualifying, d.placed = c.qualifying.Len(), c.counts
	if p != nil && p.cohort != nil {
		d.count(p.group, -1)
	} else {
		d.Qualifying++
	}
	d.Size = max(d.Qualifying, c.wants(controller, s.workloads[controller]))
	s.countNominees(&d, c, p)
	d.conclude()
	return d, true
}

// countNominees counts the nominated pods that hold a place against the decision's pod, which is p, or nil if it is not
// tracked.
func (s *state) countNominees(d *Decision, c *cohort, p *pod) {
	rival := p != nil && s.nominated[p] != nil
	for at, nominees := range c.nominees {
		switch {
		case at.priority < d.priority:
		case at.priority == d.priority && rival:
			d.count(at.group, nominees.before(p))
		default:
			d.count(at.group, len(nominees))
		}
	}
}

// holdsAgainst reports whether the nominated pod q holds its place against the decision's pod: a nomination stands
// against pods of equal or lower priority. Of two nominated pods of equal priority only one holds its place against the
// other, so that they cannot block each other.
func (s *state) holdsAgainst(q *pod, d Decision) bool {
	p := s.pods[d.pod]
	rival := p != nil && s.nominated[p] != nil
	return q.priority > d.priority || q.priority == d.priority && (!rival || q.uid < p.uid)
}

// whyNotGoverned says why no policy governs the pod, as tracked if it is tracked, else as given; empty if one does.
func (s *state) whyNotGoverned(obj *v1.Pod) string {
	if _, governed := s.decide(obj); governed {
		return ""
	}
	if s.selecting(obj) == nil {
		return "no valid policy selects it"
	}
	return "a DaemonSet controls it, which has decided on its node"
}
