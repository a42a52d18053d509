package policystore

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/placement-policy/scheduler-plugin/labelselector"
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
	nominated map[*pod]string

	// touched collects the policies whose counts or spec the current operation changes.
	touched []types.NamespacedName
}

func newState() *state {
	return &state{
		policies:   map[types.NamespacedName]*policy{},
		namespaces: map[string]*namespace{},
		nodes:      map[string]*node{},
		workloads:  map[types.UID]*workload{},
		pods:       map[types.UID]*pod{},
		nominated:  map[*pod]string{},
	}
}

// policy is a policy that was set. spec is nil and err says why if it is invalid.
type policy struct {
	key     types.NamespacedName
	spec    *compiledPolicy
	err     error
	cohorts map[string]*cohort // by cohort key; none without qualifying pods
}

// namespace holds what only pods and policies of one namespace share.
type namespace struct {
	name string
	// index finds the valid policies that select a label set.
	index labelselector.Index[*policy]
	// labelSets are the distinct label sets of the namespace's pods, by their key.
	labelSets map[string]*labelSet
}

// labelSet is a set of labels that at least one pod has. Pods that agree on their labels share one, so that what
// follows from labels is worked out once: the pods of a ReplicaSet, however many, have one labelSet.
type labelSet struct {
	namespace *namespace
	key       string
	labels    sortedLabels
	// selectedBy are the policies that select the pods, the governing one first.
	selectedBy []*policy
	// cohortKey tells the cohorts of the governing policy apart.
	cohortKey string
	pods      []*pod // at their labelSetIndex
}

// governing returns the policy that governs the pods with these labels, or nil.
func (l *labelSet) governing() *policy {
	if len(l.selectedBy) == 0 {
		return nil
	}
	return l.selectedBy[0]
}

// cohort is the qualifying pods that count together.
type cohort struct {
	policy     *policy
	key        string
	labels     sortedLabels
	qualifying Set[types.UID]
	managed    Set[types.UID]
	other      int
	// placed tells of how many placed pods each group consists, by their priority.
	placed map[groupPriority]int
	// nominated are the qualifying pods that have a nominated node.
	nominated map[*pod]struct{}
	workloads map[*workload]int // of the qualifying pods, with their number; nil stands for none
}

type groupPriority struct {
	group    Group
	priority int32
}

// node is a node that was added, or one that pods name.
type node struct {
	name   string
	known  bool
	labels sortedLabels
	pods   []*pod // placed here, at their nodeIndex
}

// workload is what controls pods. Its size is what it wants, or negative if that is not known.
type workload struct {
	uid     types.UID
	size    int
	pods    int
	cohorts map[*cohort]struct{} // that count its pods
}

// pod is what is known of a pod, and what it contributes.
type pod struct {
	uid      types.UID
	priority int32
	labelSet *labelSet
	workload *workload // nil if nothing controls the pod

	// The facts. seen: an event has shown the pod; otherwise only AssumePod has. The pod is placed on the observed
	// node, else on the reserved one.
	seen, active       bool
	observed, reserved *node

	// The contribution: where the pod is listed and counted. Undoing it needs nothing else.
	cohort *cohort
	group  Group
	placed *node

	labelSetIndex, nodeIndex int
}

// podFacts is what the store reads from a pod object.
type podFacts struct {
	active    bool
	nodeName  string
	nominated string
	priority  int32
	workload  types.UID
}

func factsOf(obj *v1.Pod) podFacts {
	f := podFacts{active: active(obj), nodeName: obj.Spec.NodeName, nominated: obj.Status.NominatedNodeName}
	if obj.Spec.Priority != nil {
		f.priority = *obj.Spec.Priority
	}
	if owner := metav1.GetControllerOfNoCopy(obj); owner != nil {
		f.workload = owner.UID
	}
	return f
}

// uidOf is the pod's identity. Unit tests may leave the UID out; the name then stands for it.
func uidOf(obj *v1.Pod) types.UID {
	if obj.UID != "" {
		return obj.UID
	}
	return types.UID(obj.Namespace + "/" + obj.Name)
}

// hasPod reports whether the pod object tells nothing new.
func (s *state) hasPod(obj *v1.Pod) bool {
	p := s.pods[uidOf(obj)]
	if p == nil {
		return false
	}
	f := factsOf(obj)
	return p.seen && p.active == f.active && nameOf(p.observed) == f.nodeName && s.nominated[p] == f.nominated &&
		p.priority == f.priority && p.workload.id() == f.workload && p.labelSet.labels.equal(obj.Labels)
}

func (s *state) observePod(obj *v1.Pod) {
	p := s.pods[uidOf(obj)]
	if p == nil {
		p = s.addPod(obj)
	}
	f := factsOf(obj)
	if !p.labelSet.labels.equal(obj.Labels) {
		s.setLabelSet(p, s.labelSetFor(obj))
	}
	if p.workload.id() != f.workload || p.priority != f.priority || s.nominated[p] != f.nominated {
		s.leaveCohort(p) // which counts the pod by these
		s.setWorkload(p, f.workload)
		s.setNominated(p, f.nominated)
		p.priority = f.priority
	}
	p.seen = true
	p.active = f.active
	p.observed = s.nodeFor(f.nodeName)
	if p.observed != nil {
		p.reserved = nil // bound: the reservation has ended, wherever it was
	}
	s.settle(p)
}

// addPod makes the record of a pod that is not tracked yet.
func (s *state) addPod(obj *v1.Pod) *pod {
	f := factsOf(obj)
	p := &pod{uid: uidOf(obj), active: f.active, priority: f.priority}
	s.pods[p.uid] = p
	s.setLabelSet(p, s.labelSetFor(obj))
	s.setWorkload(p, f.workload)
	s.setNominated(p, f.nominated)
	return p
}

func (s *state) removePod(uid types.UID) {
	p := s.pods[uid]
	if p == nil {
		return
	}
	p.active, p.observed, p.reserved = false, nil, nil
	s.settle(p)
	s.setWorkload(p, "")
	s.setNominated(p, "")
	s.setLabelSet(p, nil)
	delete(s.pods, uid)
}

// assumePod reserves the node for the pod, unless the pod counts and a Strict policy has used up its group's quota. A
// node that is not known yet is in no group, so nothing can be said against it.
func (s *state) assumePod(obj *v1.Pod, nodeName string) error {
	p := s.pods[uidOf(obj)]
	if p != nil && p.observed != nil {
		return nil // bound already, which is what counts
	}
	counts := active(obj)
	if p != nil {
		counts = p.active
	}
	if n := s.nodes[nodeName]; counts && n != nil && n.known {
		if d, governed := s.decide(obj); governed {
			if g := d.spec.groupOf(n.labels); !d.Allows(g) {
				return &QuotaError{Decision: d, Group: g}
			}
		}
	}
	if p == nil {
		p = s.addPod(obj)
	}
	p.reserved = s.nodeFor(nodeName)
	s.settle(p)
	return nil
}

func (s *state) forgetPod(uid types.UID) {
	p := s.pods[uid]
	switch {
	case p == nil:
	case p.seen:
		p.reserved = nil
		s.settle(p)
	default:
		s.removePod(uid)
	}
}

// settle brings what the pod contributes in line with the facts.
func (s *state) settle(p *pod) {
	node := p.observed
	if node == nil {
		node = p.reserved
	}
	moved := node != p.placed
	if moved {
		s.setPlaced(p, node)
	}

	var c *cohort
	if pol := p.labelSet.governing(); pol != nil && p.active {
		c = pol.cohortFor(p.labelSet)
	}
	group := NoGroup
	if c != nil && node != nil && node.known {
		group = c.policy.spec.groupOf(node.labels)
	}
	if c == p.cohort && group == p.group {
		if moved && c != nil && s.nominated[p] != "" {
			s.touch(c.policy) // a placed pod holds no other place
		}
		return
	}
	if c != p.cohort {
		s.leaveCohort(p)
		s.enterCohort(p, c)
	}
	if c != nil {
		p.setGroup(group)
		s.touch(c.policy)
	}
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
		c.nominated[p] = struct{}{}
	}
}

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
	if c.qualifying.Len() == 0 {
		delete(c.policy.cohorts, c.key)
	}
	s.touch(c.policy)
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

func (s *state) touch(p *policy) {
	if !slices.Contains(s.touched, p.key) {
		s.touched = append(s.touched, p.key)
	}
}

// cohortFor returns the cohort of the pods with the given labels, which the policy governs.
func (p *policy) cohortFor(l *labelSet) *cohort {
	c := p.cohorts[l.cohortKey]
	if c == nil {
		c = &cohort{
			policy:    p,
			key:       l.cohortKey,
			labels:    l.labels.only(p.spec.MatchLabelKeys),
			placed:    map[groupPriority]int{},
			nominated: map[*pod]struct{}{},
			workloads: map[*workload]int{},
		}
		p.cohorts[l.cohortKey] = c
	}
	return c
}

// setPolicy sets a policy that is valid (err is nil) or invalid (spec is nil).
func (s *state) setPolicy(key types.NamespacedName, spec *compiledPolicy, err error) {
	pol := s.policies[key]
	if pol == nil {
		pol = &policy{key: key, cohorts: map[string]*cohort{}}
		s.policies[key] = pol
	}
	old := pol.spec
	pol.spec, pol.err = spec, err
	s.touch(pol)
	if spec != nil && spec.sameGrouping(old) {
		return
	}
	s.regroup(pol)
}

func (s *state) removePolicy(key types.NamespacedName) {
	pol := s.policies[key]
	if pol == nil {
		return
	}
	s.touch(pol)
	pol.spec = nil
	s.regroup(pol)
	delete(s.policies, key)
}

// regroup works out anew which pods of its namespace the policy selects, governs and counts where.
func (s *state) regroup(pol *policy) {
	ns := s.namespaceFor(pol.key.Namespace)
	if pol.spec == nil {
		ns.index.Delete(pol)
	} else {
		ns.index.Set(pol, pol.spec.podSelector)
	}
	for _, l := range ns.labelSets {
		was := l.governing()
		l.selectedBy = slices.DeleteFunc(l.selectedBy, func(o *policy) bool { return o == pol })
		if pol.spec != nil && pol.spec.podSelector.Matches(l.labels) {
			i, _ := slices.BinarySearchFunc(l.selectedBy, pol, comparePolicies)
			l.selectedBy = slices.Insert(l.selectedBy, i, pol)
		}
		if was == pol || l.governing() == pol {
			l.setCohortKey()
			for _, p := range l.pods {
				s.settle(p)
			}
		}
	}
	s.tidyNamespace(ns)
}

func comparePolicies(a, b *policy) int { return compareRank(a.spec, b.spec) }

func (l *labelSet) setCohortKey() {
	l.cohortKey = ""
	if pol := l.governing(); pol != nil {
		l.cohortKey = l.labels.only(pol.spec.MatchLabelKeys).key()
	}
}

func (s *state) namespaceFor(name string) *namespace {
	ns := s.namespaces[name]
	if ns == nil {
		ns = &namespace{name: name, labelSets: map[string]*labelSet{}}
		s.namespaces[name] = ns
	}
	return ns
}

func (s *state) tidyNamespace(ns *namespace) {
	if len(ns.labelSets) == 0 && ns.index.Len() == 0 {
		delete(s.namespaces, ns.name)
	}
}

func (s *state) labelSetFor(obj *v1.Pod) *labelSet {
	ns := s.namespaceFor(obj.Namespace)
	labels := sortLabels(obj.Labels)
	key := labels.key()
	l := ns.labelSets[key]
	if l == nil {
		l = &labelSet{
			namespace:  ns,
			key:        key,
			labels:     labels,
			selectedBy: slices.SortedFunc(ns.index.Matching(obj.Labels), comparePolicies),
		}
		l.setCohortKey()
		ns.labelSets[key] = l
	}
	return l
}

// setLabelSet lists the pod under the label set, which nil takes away. It leaves the contribution to settle.
func (s *state) setLabelSet(p *pod, l *labelSet) {
	if old := p.labelSet; old != nil {
		old.pods = swapRemove(old.pods, p.labelSetIndex, func(moved *pod) { moved.labelSetIndex = p.labelSetIndex })
		if len(old.pods) == 0 {
			delete(old.namespace.labelSets, old.key)
			s.tidyNamespace(old.namespace)
		}
	}
	p.labelSet = l
	if l != nil {
		p.labelSetIndex = len(l.pods)
		l.pods = append(l.pods, p)
	}
}

// setPlaced lists the pod under the node that it is placed on, which may be nil.
func (s *state) setPlaced(p *pod, n *node) {
	if old := p.placed; old != nil {
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
	if !n.known && len(n.pods) == 0 {
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
	n.known, n.labels = true, sortLabels(labels)
	for _, p := range n.pods {
		s.settle(p)
	}
	s.touchHolders(name)
}

func (s *state) removeNode(name string) {
	n := s.nodes[name]
	if n == nil {
		return
	}
	n.known, n.labels = false, nil
	for _, p := range n.pods {
		s.settle(p)
	}
	s.touchHolders(name)
	s.tidyNode(n)
}

// touchHolders touches the policies of the pods that are nominated for the node, when its group has changed.
func (s *state) touchHolders(nodeName string) {
	for p, nominated := range s.nominated {
		if nominated == nodeName && p.cohort != nil {
			s.touch(p.cohort.policy)
		}
	}
}

func (w *workload) id() types.UID {
	if w == nil {
		return ""
	}
	return w.uid
}

func (s *state) workloadFor(uid types.UID) *workload {
	w := s.workloads[uid]
	if w == nil {
		w = &workload{uid: uid, size: -1, cohorts: map[*cohort]struct{}{}}
		s.workloads[uid] = w
	}
	return w
}

// setWorkload notes what controls the pod; an empty uid stands for nothing. The pod must not be in a cohort.
func (s *state) setWorkload(p *pod, uid types.UID) {
	if w := p.workload; w != nil {
		w.pods--
		s.tidyWorkload(w)
	}
	p.workload = nil
	if uid != "" {
		p.workload = s.workloadFor(uid)
		p.workload.pods++
	}
}

// setNominated notes the pod's nominated node; an empty name stands for none. The pod must not be in a cohort.
func (s *state) setNominated(p *pod, nodeName string) {
	if nodeName == "" {
		delete(s.nominated, p)
	} else {
		s.nominated[p] = nodeName
	}
}

func (s *state) tidyWorkload(w *workload) {
	if w.pods == 0 && w.size < 0 {
		delete(s.workloads, w.uid)
	}
}

// hasWorkloadSize reports whether the size is nothing new.
func (s *state) hasWorkloadSize(uid types.UID, size int) bool {
	w := s.workloads[uid]
	return w != nil && w.size == size
}

// setWorkloadSize notes the size that a workload wants; a negative one is not known.
func (s *state) setWorkloadSize(uid types.UID, size int) {
	w := s.workloadFor(uid)
	w.size = size
	for c := range w.cohorts {
		s.touch(c.policy)
	}
	s.tidyWorkload(w)
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

// decide takes the decision for the pod, as tracked if it is tracked, else as given.
func (s *state) decide(obj *v1.Pod) (d Decision, governed bool) {
	p := s.pods[uidOf(obj)]
	var pol *policy
	var c *cohort
	var w *workload
	var priority int32
	switch {
	case p == nil:
		f := factsOf(obj)
		if pol = s.governingFor(obj); pol != nil {
			c = pol.cohorts[sortLabels(obj.Labels).only(pol.spec.MatchLabelKeys).key()]
		}
		w, priority = s.workloads[f.workload], f.priority
	case p.cohort != nil:
		c, w, priority = p.cohort, p.workload, p.priority
		pol = c.policy
	default:
		if pol = p.labelSet.governing(); pol != nil {
			c = pol.cohorts[p.labelSet.cohortKey]
		}
		w, priority = p.workload, p.priority
	}
	if pol == nil {
		return Decision{}, false
	}
	d = Decision{Policy: pol.key, spec: pol.spec, cohort: c, priority: priority}
	if c == nil {
		d.Qualifying = 1
		d.Size = max(1, w.wants())
		d.conclude()
		return d, true
	}

	d.Qualifying, d.Managed, d.Other = c.qualifying.Len(), c.managed.Len(), c.other
	inside := p != nil && p.cohort == c
	if inside {
		d.count(p.group, -1)
	} else {
		d.Qualifying++
	}
	d.Size = d.Qualifying
	if len(c.workloads) == 1 && (inside || c.workloads[w] > 0) {
		d.Size = max(d.Size, w.wants())
	}
	for q := range c.nominated {
		if g := s.groupHeld(q); g != NoGroup && s.holdsAgainst(q, p, priority) {
			d.count(g, +1)
			d.added = append(d.added, placement{q.uid, g})
		}
	}
	d.conclude()
	return d, true
}

// groupHeld returns the group in which a nominated pod holds a place, until it is placed itself.
func (s *state) groupHeld(q *pod) Group {
	n := s.nodes[s.nominated[q]]
	if q.placed != nil || n == nil || !n.known {
		return NoGroup
	}
	return q.cohort.policy.spec.groupOf(n.labels)
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

// wants returns the workload's size, or 0 if it is not known.
func (w *workload) wants() int {
	if w == nil {
		return 0
	}
	return max(0, w.size)
}

// governingFor returns the policy that governs a pod that is not tracked, or nil.
func (s *state) governingFor(obj *v1.Pod) *policy {
	ns := s.namespaces[obj.Namespace]
	if ns == nil {
		return nil
	}
	var best *policy
	for pol := range ns.index.Matching(obj.Labels) {
		if best == nil || comparePolicies(pol, best) < 0 {
			best = pol
		}
	}
	return best
}

func nameOf(n *node) string {
	if n == nil {
		return ""
	}
	return n.name
}
