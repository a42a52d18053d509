package policystore

import (
	"hash/maphash"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// pod is what is known of a pod, and what it contributes.
type pod struct {
	uid      types.UID
	priority int32
	labelSet *labelSet
	workload *workload // nil if nothing controls the pod

	// The facts. seen: an event has shown the pod; otherwise only AssumePod has. ended: it is finished or being
	// deleted. gated: all that was seen of it, by events and by AssumePod, had scheduling gates. The pod is placed on
	// the observed node, else on the reserved one. A pod that has ended, has lost its gates or was observed on a node
	// stays so.
	seen, ended, gated bool
	observed, reserved *node

	// The contribution: where the pod is listed and counted. Undoing it needs nothing else.
	cohort  *cohort
	group   Group
	managed bool
	held    Group // in which it holds a place as a nominated pod
	placed  *node

	labelSetIndex, nodeIndex int

	nameHash uint64
}

// active reports whether the pod counts.
func (p *pod) active() bool { return !p.ended && !p.gated }

// podFacts is what the store reads from a pod object.
type podFacts struct {
	ended, gated bool
	nodeName     string
	nominated    string
	priority     int32
	workload     types.UID
}

func factsOf(obj *v1.Pod) podFacts {
	f := podFacts{ended: ended(obj), gated: gated(obj), nodeName: obj.Spec.NodeName, nominated: obj.Status.NominatedNodeName}
	if obj.Spec.Priority != nil {
		f.priority = *obj.Spec.Priority
	}
	if owner := metav1.GetControllerOfNoCopy(obj); owner != nil {
		f.workload = owner.UID
	}
	return f
}

// uidOf is the pod's identity: its UID or, if it has none, as in unit tests, its namespace and name. A pod without
// either, as at admission, has no identity, which is empty: it is none of the tracked ones.
func uidOf(obj *v1.Pod) types.UID {
	if obj.UID == "" && obj.Name != "" {
		return types.UID(obj.Namespace + "/" + obj.Name)
	}
	return obj.UID
}

// ofDaemonSet reports whether a DaemonSet controls the pod, which has decided on its node. No policy governs such a
// pod.
func ofDaemonSet(obj *v1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(obj)
	return owner != nil && owner.Kind == "DaemonSet" && strings.HasPrefix(owner.APIVersion, "apps/")
}

// untracked reports whether the store keeps nothing of what the object shows.
func untracked(obj *v1.Pod) bool { return uidOf(obj) == "" || ofDaemonSet(obj) }

// ended reports whether the pod is finished or being deleted.
func ended(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed || pod.DeletionTimestamp != nil
}

// gated reports whether scheduling gates hold the pod back.
func gated(pod *v1.Pod) bool { return len(pod.Spec.SchedulingGates) > 0 }

// hasPod reports whether the pod object tells nothing new.
func (s *state) hasPod(obj *v1.Pod) bool {
	p := s.pods[uidOf(obj)]
	if p == nil || ofDaemonSet(obj) {
		return p == nil && untracked(obj)
	}
	f := factsOf(obj)
	return p.seen && (p.ended || !f.ended) && (!p.gated || f.gated) && (f.nodeName == "" || f.nodeName == nameOf(p.observed)) &&
		nameOf(s.nominated[p]) == f.nominated && p.priority == f.priority && p.workload.id() == f.workload && p.labelSet.labels.equal(obj.Labels)
}

func (s *state) observePod(obj *v1.Pod) {
	if untracked(obj) {
		s.removePod(uidOf(obj)) // a DaemonSet may adopt it
		return
	}
	p := s.pods[uidOf(obj)]
	if p == nil {
		p = s.addPod(obj)
	}
	f := factsOf(obj)
	was := p.cohort
	if !p.labelSet.labels.equal(obj.Labels) {
		s.setLabelSet(p, s.labelSetFor(obj))
	}
	if p.workload.id() != f.workload || p.priority != f.priority || nameOf(s.nominated[p]) != f.nominated {
		s.leaveCohort(p) // which counts the pod by these
		s.setWorkload(p, f.workload)
		s.setNominated(p, f.nominated)
		p.priority = f.priority
	}
	p.seen = true
	p.ended, p.gated = p.ended || f.ended, p.gated && f.gated
	if f.nodeName != "" {
		p.observed, p.reserved = s.nodeFor(f.nodeName), nil // bound: the reservation has ended, wherever it was
	}
	s.settle(p)
	s.tidyCohort(was)
}

// addPod makes the record of a pod that is not tracked yet.
func (s *state) addPod(obj *v1.Pod) *pod {
	f := factsOf(obj)
	p := &pod{uid: uidOf(obj), nameHash: nameHash(obj.Name), ended: f.ended, gated: f.gated, priority: f.priority}
	s.pods[p.uid] = p
	s.setLabelSet(p, s.labelSetFor(obj))
	s.setWorkload(p, f.workload)
	s.setNominated(p, f.nominated)
	return p
}

// nameSeed makes it impossible to choose names whose hashes are the same.
var nameSeed = maphash.MakeSeed()

// nameHash stands for a pod's name, which is seldom needed and would take as much memory as all else of a pod. That two
// pods of a namespace share one is as unlikely as that they share a UID.
func nameHash(name string) uint64 { return maphash.String(nameSeed, name) }

// podsNamed returns the UIDs of the pods of that name that events have shown.
func (s *state) podsNamed(key types.NamespacedName) (uids []types.UID) {
	ns := s.namespaces[key.Namespace]
	if ns == nil {
		return nil
	}
	hash := nameHash(key.Name)
	for _, l := range ns.labelSets {
		for _, p := range l.pods {
			if p.nameHash == hash && p.seen {
				uids = append(uids, p.uid)
			}
		}
	}
	return uids
}

func (s *state) removePod(uid types.UID) {
	p := s.pods[uid]
	if p == nil {
		return
	}
	p.ended, p.observed, p.reserved = true, nil, nil
	s.settle(p)
	s.setWorkload(p, "")
	s.setNominated(p, "")
	s.setLabelSet(p, nil)
	delete(s.pods, uid)
}

// assumePod reserves the node for the pod, unless the pod is going to count there and a Strict policy has used up its
// group's quota.
func (s *state) assumePod(obj *v1.Pod, node *v1.Node) error {
	counts := !ended(obj) && !gated(obj)
	if p := s.pods[uidOf(obj)]; p != nil {
		counts = !p.ended && !(p.gated && gated(obj)) && p.observed == nil
	}
	if counts {
		if d, governed := s.decide(obj); governed {
			g := d.GroupOf(node.Labels)
			if n := s.nodes[node.Name]; n != nil && n.known {
				g = d.spec.groupOf(&n.labels)
			}
			if !d.Allows(g) {
				return &QuotaError{Decision: d, Group: g}
			}
		}
	}
	s.reserve(obj, node)
	return nil
}

// reserve reserves the node for the pod. A pod that is bound needs none. The scheduler may know before the store does
// that the pod has lost its gates.
func (s *state) reserve(obj *v1.Pod, node *v1.Node) {
	p := s.pods[uidOf(obj)]
	if p == nil && ofDaemonSet(obj) {
		return
	}
	if p == nil {
		p = s.addPod(obj)
	}
	if p.observed == nil {
		p.gated = p.gated && gated(obj)
		p.reserved = s.nodeFor(node.Name)
		s.setPlaced(p, p.reserved)
		p.reserved.lookedLike(p, node.Labels)
		s.settle(p)
	}
}

// confirmPod moves the reservation, if there is one, to the node.
func (s *state) confirmPod(uid types.UID, nodeName string) (reserved bool) {
	p := s.pods[uid]
	if p == nil || p.reserved == nil {
		return false
	}
	if nodeName != "" {
		p.reserved = s.nodeFor(nodeName)
		s.settle(p)
	}
	return true
}

func (s *state) forgetPod(uid types.UID) (reserved bool) {
	p := s.pods[uid]
	if p == nil {
		return false
	}
	reserved = p.reserved != nil
	if p.seen {
		p.reserved = nil
		s.settle(p)
	} else {
		s.removePod(uid)
	}
	return reserved
}

// settle brings what the pod contributes in line with the facts.
func (s *state) settle(p *pod) {
	node := p.observed
	if node == nil {
		node = p.reserved
	}
	s.setPlaced(p, node)

	var c *cohort
	if pol := p.labelSet.governing(); pol != nil && p.active() {
		c = pol.cohortFor(p.labelSet)
	}
	group := NoGroup
	if c != nil && node != nil {
		if labels := node.labelsFor(p); labels != nil {
			group = c.policy.spec.groupOf(labels)
		}
	}
	if c != p.cohort {
		was := p.cohort
		s.leaveCohort(p)
		s.enterCohort(p, c)
		s.tidyCohort(was)
	}
	if group != p.group || c != nil && c.policy.spec.manages(group) != p.managed {
		p.setGroup(group)
		s.touch(c.policy)
	}
	s.holdPlace(p)
}

// setNominated notes the pod's nominated node; an empty name stands for none. The pod must not be in a cohort.
func (s *state) setNominated(p *pod, nodeName string) {
	if old := s.nominated[p]; old != nil {
		delete(old.nominees, p)
		delete(s.nominated, p)
		s.tidyNode(old)
	}
	if n := s.nodeFor(nodeName); n != nil {
		if n.nominees == nil {
			n.nominees = map[*pod]struct{}{}
		}
		n.nominees[p] = struct{}{}
		s.nominated[p] = n
	}
}

// setPlaced lists the pod under the node that it is placed on, which may be nil.
func (s *state) setPlaced(p *pod, n *node) {
	if n == p.placed {
		return
	}
	if old := p.placed; old != nil {
		delete(old.assumed, p)
		old.pods = swapRemove(old.pods, p.nodeIndex, func(moved *pod) { moved.nodeIndex = p.nodeIndex })
		s.tidyNode(old)
	}
	p.placed = n
	if n != nil {
		p.nodeIndex = len(n.pods)
		n.pods = append(n.pods, p)
	}
}

// swapRemove removes the i-th pod by moving the last one there, which moved is told.
func swapRemove(pods []*pod, i int, moved func(*pod)) []*pod {
	last := len(pods) - 1
	pods[i] = pods[last]
	moved(pods[i])
	pods[last] = nil
	return pods[:last]
}
