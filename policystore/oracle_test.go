package policystore

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
)

// oracle says what a Store must answer. It keeps nothing but facts, and works out each answer from all of them, by the
// definitions and without a thought for speed. It shares only types with the store.
type oracle struct {
	policies map[types.NamespacedName]oraclePolicy
	nodes    map[string]labels.Set // the known ones
	sizes    map[types.UID]int     // what workloads want
	// pods are the known pods: as the last event showed them or, as long as none has, as AssumePod was given them when
	// it made them known.
	pods         map[types.UID]*v1.Pod
	unseen       sets.Set[types.UID] // those that no event has shown
	reservations map[types.UID]string
	// assumed has the pods that were reserved for a node which was not known and is not to this day, with the node as
	// the scheduling cycle saw it.
	assumed map[types.UID]*v1.Node
}

func newOracle() *oracle {
	return &oracle{
		policies:     map[types.NamespacedName]oraclePolicy{},
		nodes:        map[string]labels.Set{},
		sizes:        map[types.UID]int{},
		pods:         map[types.UID]*v1.Pod{},
		unseen:       sets.New[types.UID](),
		reservations: map[types.UID]string{},
		assumed:      map[types.UID]*v1.Node{},
	}
}

// observe notes a pod's event. A bound pod needs no reservation any more, wherever it was. A pod that is none of the
// store's business is forgotten.
func (o *oracle) observe(pod *v1.Pod) {
	if pod.UID == "" || isDaemon(pod) {
		o.remove(pod)
		return
	}
	boundTo := o.boundTo(pod.UID)
	o.pods[pod.UID] = endedStill(gatesGone(pod, o.pods[pod.UID]), o.pods[pod.UID])
	o.unseen.Delete(pod.UID)
	if pod.Spec.NodeName != "" {
		delete(o.reservations, pod.UID)
	} else if boundTo != "" {
		o.pods[pod.UID] = o.pods[pod.UID].DeepCopy()
		o.pods[pod.UID].Spec.NodeName = boundTo
	}
	o.tidyAssumed(pod)
}

func (o *oracle) remove(pod *v1.Pod) {
	delete(o.pods, pod.UID)
	o.unseen.Delete(pod.UID)
	delete(o.reservations, pod.UID)
	delete(o.assumed, pod.UID)
}

// setNode notes a node. What scheduling cycles saw of it before means nothing any more.
func (o *oracle) setNode(node *v1.Node) {
	o.nodes[node.Name] = node.Labels
	maps.DeleteFunc(o.assumed, func(_ types.UID, seen *v1.Node) bool { return seen.Name == node.Name })
}

// assume notes a reservation. That of a bound pod means nothing.
func (o *oracle) assume(pod *v1.Pod, node *v1.Node) {
	if o.pods[pod.UID] == nil && isDaemon(pod) {
		return
	}
	if o.pods[pod.UID] == nil {
		o.pods[pod.UID] = pod
		o.unseen.Insert(pod.UID)
	}
	if o.boundTo(pod.UID) == "" {
		o.pods[pod.UID] = gatesGone(o.pods[pod.UID], pod)
		o.reservations[pod.UID] = node.Name
		delete(o.assumed, pod.UID)
		if _, known := o.nodes[node.Name]; !known {
			o.assumed[pod.UID] = node
		}
	}
}

// gatesGone returns the pod without its scheduling gates if it was seen without them: they never come back.
func gatesGone(pod, seen *v1.Pod) *v1.Pod {
	if seen == nil || len(seen.Spec.SchedulingGates) > 0 || len(pod.Spec.SchedulingGates) == 0 {
		return pod
	}
	pod = pod.DeepCopy()
	pod.Spec.SchedulingGates = nil
	return pod
}

// endedStill returns the pod as finished or being deleted if it was seen so: it never comes back.
func endedStill(pod, seen *v1.Pod) *v1.Pod {
	if seen == nil || !hasEnded(seen) || hasEnded(pod) {
		return pod
	}
	pod = pod.DeepCopy()
	pod.Status.Phase, pod.DeletionTimestamp = seen.Status.Phase, seen.DeletionTimestamp
	return pod
}

func hasEnded(pod *v1.Pod) bool {
	finished := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
	return finished || pod.DeletionTimestamp != nil
}

// isDaemon reports whether a DaemonSet controls the pod.
func isDaemon(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.OwnerReferences, func(owner metav1.OwnerReference) bool {
		return owner.APIVersion == "apps/v1" && owner.Kind == "DaemonSet" && owner.Controller != nil && *owner.Controller
	})
}

func (o *oracle) forget(pod *v1.Pod) {
	delete(o.reservations, pod.UID)
	if o.unseen.Has(pod.UID) {
		o.remove(pod)
	}
	o.tidyAssumed(pod)
}

// confirm moves a reservation to where the pod is bound.
func (o *oracle) confirm(pod *v1.Pod, nodeName string) {
	if o.reservations[pod.UID] != "" {
		o.reservations[pod.UID] = nodeName
		o.tidyAssumed(pod)
	}
}

// tidyAssumed drops what a scheduling cycle saw of a node on which the pod is not placed any more.
func (o *oracle) tidyAssumed(pod *v1.Pod) {
	if seen := o.assumed[pod.UID]; seen != nil && seen.Name != o.placedOn(pod.UID) {
		delete(o.assumed, pod.UID)
	}
}

// known returns what is known of the pod, else the pod as it is given.
func (o *oracle) known(pod *v1.Pod) *v1.Pod {
	if known := o.pods[pod.UID]; known != nil {
		return known
	}
	return pod
}

// boundTo returns the node that events have shown the pod on. What AssumePod is given tells nothing about that: the
// scheduler writes the node into its copy of the pod before it reserves.
func (o *oracle) boundTo(pod types.UID) string {
	if o.pods[pod] == nil || o.unseen.Has(pod) {
		return ""
	}
	return o.pods[pod].Spec.NodeName
}

// placedOn returns the node that the pod is bound to, else the one that is reserved for it.
func (o *oracle) placedOn(pod types.UID) string {
	if node := o.boundTo(pod); node != "" {
		return node
	}
	return o.reservations[pod]
}

// oraclePolicy is a policy with its defaults.
type oraclePolicy struct {
	Policy
	valid       bool
	podSelector labels.Selector
	groups      []oracleGroup
}

// oracleGroup is a group of nodes that no earlier group has.
type oracleGroup struct {
	name string
	groupSize
	has func(node labels.Set) bool
}

func newOraclePolicy(p Policy) oraclePolicy {
	if p.EnforcementMode == "" {
		p.EnforcementMode = BestEffort
	}
	if p.MatchLabelKeys == nil {
		p.MatchLabelKeys = []string{"pod-template-hash", "rollouts-pod-template-hash"}
	}
	podSelector, podErr := metav1.LabelSelectorAsSelector(p.PodSelector)
	groups, valid := oracleGroups(p)
	badKey := func(key string) bool { return len(validation.IsQualifiedName(key)) > 0 }
	return oraclePolicy{
		Policy: p,
		valid: valid && p.Weight >= 0 &&
			(p.EnforcementMode == Strict || p.EnforcementMode == BestEffort) &&
			p.PodSelector != nil && podErr == nil &&
			!slices.ContainsFunc(p.MatchLabelKeys, badKey),
		podSelector: podSelector,
		groups:      groups,
	}
}

// oracleGroups returns the groups of the policy, in either form.
func oracleGroups(p Policy) (groups []oracleGroup, valid bool) {
	anything := func(labels.Set) bool { return true }
	if p.Groups == nil {
		selector, err := metav1.LabelSelectorAsSelector(p.NodeSelector)
		size := cmp.Or(p.TargetSize, ptr.To(intstr.FromString("100%")))
		target := groupSize{base: int(size.IntVal), max: noMax}
		if size.Type == intstr.String {
			target.share, _ = percentOf(*size)
		}
		has := func(node labels.Set) bool { return selector.Matches(node) == (p.Action != MustNot) }
		return []oracleGroup{{"target", target, has}, {"other", groupSize{max: noMax}, anything}},
			p.NodeSelector != nil && err == nil && validSize(*size) && slices.Contains([]Action{"", Must, MustNot}, p.Action)
	}
	valid = p.NodeSelector == nil && p.Action == "" && p.TargetSize == nil && len(p.Groups) > 0 && len(p.Groups) <= 8
	names, shares := sets.New[string](), 0
	for i, g := range p.Groups {
		last := i == len(p.Groups)-1
		selector, err := metav1.LabelSelectorAsSelector(g.NodeSelector)
		share, shareErr := percentOf(intstr.FromString(g.Share))
		has := func(node labels.Set) bool { return selector.Matches(node) }
		group := oracleGroup{g.Name, groupSize{int(g.Base), share, noMax}, has}
		if g.NodeSelector == nil {
			group.has = anything
		}
		if g.Max != nil {
			group.max = int(*g.Max)
		}
		groups = append(groups, group)
		names.Insert(g.Name)
		shares += share
		valid = valid && g.Base >= 0 && group.max >= 0 && err == nil && (g.Share == "" || shareErr == nil) &&
			(last && g.Share == "" && g.Max == nil || !last && g.NodeSelector != nil)
	}
	return groups, valid && names.Len() == len(p.Groups) && !names.Has("") && shares <= 100
}

func validSize(size intstr.IntOrString) bool {
	if size.Type == intstr.Int {
		return size.IntVal >= 0
	}
	percent, err := percentOf(size)
	return err == nil && percent >= 0 && percent <= 100 && strings.HasSuffix(size.StrVal, "%")
}

func percentOf(size intstr.IntOrString) (int, error) {
	return strconv.Atoi(strings.TrimSuffix(size.StrVal, "%"))
}

// last returns the group that takes the rest.
func (p oraclePolicy) last() Group { return Group(len(p.groups)) }

// counts is Q(n): how many of the first n slots belong to each group.
func (p oraclePolicy) counts(n int) (q [MaxGroups + 1]int) {
	var sizes []groupSize
	for _, g := range p.groups {
		sizes = append(sizes, g.groupSize)
	}
	slots := newSlotBySlot(sizes)
	for range n {
		q[1+slots.next()]++
	}
	return q
}

// selects reports whether the policy selects the pod, though another one may govern it.
func (p oraclePolicy) selects(pod *v1.Pod) bool {
	return p.valid && p.Namespace == pod.Namespace && p.podSelector.Matches(labels.Set(pod.Labels))
}

func (p oraclePolicy) outranks(q oraclePolicy) bool {
	switch {
	case p.Weight != q.Weight:
		return p.Weight > q.Weight
	case p.EnforcementMode != q.EnforcementMode:
		return p.EnforcementMode == Strict
	default:
		return p.Name < q.Name
	}
}

// cohortOf returns the labels that tell the pod's cohort from others of the policy.
func (p oraclePolicy) cohortOf(pod *v1.Pod) map[string]string {
	cohort := map[string]string{}
	for _, key := range p.MatchLabelKeys {
		if value, ok := pod.Labels[key]; ok {
			cohort[key] = value
		}
	}
	return cohort
}

// selecting returns the policies that select the pod, the one that governs it first.
func (o *oracle) selecting(pod *v1.Pod) []oraclePolicy {
	var all []oraclePolicy
	for _, p := range o.policies {
		if p.selects(pod) {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(p, q oraclePolicy) int {
		if p.outranks(q) {
			return -1
		}
		return 1
	})
	return all
}

func (o *oracle) governing(pod *v1.Pod) (p oraclePolicy, governed bool) {
	selecting := o.selecting(pod)
	if len(selecting) == 0 || isDaemon(pod) {
		return oraclePolicy{}, false
	}
	return selecting[0], true
}

func isActive(pod *v1.Pod) bool {
	gated := len(pod.Spec.SchedulingGates) > 0
	return !hasEnded(pod) && !gated
}

// qualifying returns the pods of a cohort that count.
func (o *oracle) qualifying(p oraclePolicy, cohort map[string]string) []*v1.Pod {
	var pods []*v1.Pod
	for _, pod := range o.pods {
		if !isActive(pod) || !maps.Equal(p.cohortOf(pod), cohort) {
			continue
		}
		if governing, governed := o.governing(pod); governed && governing.NamespacedName == p.NamespacedName {
			pods = append(pods, pod)
		}
	}
	return pods
}

// groupOf returns the group that a node is in. One that is not known is in none.
func (o *oracle) groupOf(p oraclePolicy, nodeName string) Group {
	node, known := o.nodes[nodeName]
	if !known {
		return NoGroup
	}
	return p.groupOf(node)
}

func (p oraclePolicy) groupOf(node labels.Set) Group {
	return Group(1 + slices.IndexFunc(p.groups, func(g oracleGroup) bool { return g.has(node) }))
}

// placedIn returns the group in which the pod counts: that of its node or, if that is not known, of the node as the
// pod's scheduling cycle saw it.
func (o *oracle) placedIn(p oraclePolicy, pod types.UID) Group {
	if seen := o.assumed[pod]; seen != nil {
		return p.groupOf(seen.Labels)
	}
	return o.groupOf(p, o.placedOn(pod))
}

// heldBy returns the group in which a nominated pod holds a place against the pod: unless it is placed or of lower
// priority. Of two nominated pods of equal priority only one, by UID, holds its place against the other.
func (o *oracle) heldBy(nominated *v1.Pod, p oraclePolicy, pod *v1.Pod) Group {
	lower := priorityOf(nominated) < priorityOf(pod)
	equal := priorityOf(nominated) == priorityOf(pod)
	rival := o.pods[pod.UID] != nil && pod.Status.NominatedNodeName != ""
	if o.placedOn(nominated.UID) != "" || lower || equal && rival && pod.UID < nominated.UID {
		return NoGroup
	}
	return o.groupOf(p, nominated.Status.NominatedNodeName)
}

func priorityOf(pod *v1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

// size is N: how many pods there are or, if that is more, how many the workload wants that controls all of them that
// have a controller.
func (o *oracle) size(pods []*v1.Pod) int {
	workloads := sets.New[types.UID]()
	for _, pod := range pods {
		workloads.Insert(controllerOf(pod))
	}
	workloads.Delete("")
	if workloads.Len() != 1 {
		return len(pods)
	}
	return max(len(pods), o.sizes[workloads.UnsortedList()[0]])
}

// controllerOf returns the UID of the pod's controller, or "".
func controllerOf(pod *v1.Pod) types.UID {
	for _, owner := range pod.OwnerReferences {
		if owner.Controller != nil && *owner.Controller {
			return owner.UID
		}
	}
	return ""
}

// oracleDecision is a Decision spelt out, so that two can be compared. The zero value is that of a pod that no policy
// governs.
type oracleDecision struct {
	policy           types.NamespacedName
	mode             EnforcementMode
	qualifying, size int
	quota, placed    [MaxGroups + 1]int // by Group
	allows           [MaxGroups + 1]bool
	preferred        Group
}

// moved are pods that a simulation has in another group than the cluster, evicted ones in NoGroup.
type moved map[types.UID]Group

// decide takes the decision for a pod, as if others had been moved. Evicted ones are still to be counted.
func (o *oracle) decide(pod *v1.Pod, moved moved) oracleDecision {
	pod = o.known(pod)
	p, governed := o.governing(pod)
	if !governed {
		return oracleDecision{}
	}
	others := slices.DeleteFunc(o.qualifying(p, p.cohortOf(pod)), func(other *v1.Pod) bool { return other.UID == pod.UID })
	var in [MaxGroups + 1]int // by Group
	for _, other := range others {
		if group, ok := moved[other.UID]; ok {
			in[group]++
		} else {
			in[o.placedIn(p, other.UID)]++
			in[o.heldBy(other, p, pod)]++
		}
	}
	in[NoGroup] = 0
	placed := 0
	for _, n := range in {
		placed += n
	}
	n := o.size(append(others, pod))
	d := oracleDecision{
		policy:     p.NamespacedName,
		mode:       p.EnforcementMode,
		qualifying: len(others) + 1,
		size:       n,
		quota:      p.counts(n),
		placed:     in,
	}
	d.allows[NoGroup] = p.EnforcementMode == BestEffort
	next := p.counts(placed + 1)
	lacks := func(g Group) int { return next[g] - in[g] }
	for g := p.last(); g > NoGroup; g-- {
		d.allows[g] = p.EnforcementMode == BestEffort || in[g] < d.quota[g]
		if lacks(g) >= lacks(d.preferred) {
			d.preferred = g
		}
	}
	return d
}

// couldEvict reports whether the group would be open to the pod without the placed pods of lower priority, and those
// that are evicted already.
func (o *oracle) couldEvict(pod *v1.Pod, group Group, evicted moved) bool {
	lower := maps.Clone(evicted)
	for uid, other := range o.pods {
		if o.placedOn(uid) != "" && priorityOf(other) < priorityOf(o.known(pod)) {
			lower[uid] = NoGroup
		}
	}
	return o.decide(pod, lower).allows[group]
}

// refuses reports whether AssumePod must return a QuotaError: the pod counts and is not bound, and its policy does not
// allow the group of the node, which is given as the scheduling cycle sees it.
func (o *oracle) refuses(pod *v1.Pod, node *v1.Node) bool {
	pod = gatesGone(o.known(pod), pod)
	p, governed := o.governing(pod)
	if !governed || !isActive(pod) || o.boundTo(pod.UID) != "" {
		return false
	}
	group := p.groupOf(node.Labels)
	if _, known := o.nodes[node.Name]; known {
		group = o.groupOf(p, node.Name)
	}
	return !o.decide(pod, nil).allows[group]
}

// view is what PolicyInfo must say of a policy: a line for each cohort, and one for the policies that overrule it.
func (o *oracle) view(key types.NamespacedName) string {
	p, ok := o.policies[key]
	switch {
	case !ok:
		return "absent"
	case !p.valid:
		return "invalid"
	}
	var cohorts []string
	for _, pod := range o.pods {
		cohort := p.cohortOf(pod)
		pods := o.qualifying(p, cohort)
		if len(pods) == 0 {
			continue
		}
		in := map[Group][]types.UID{}
		var qualifying []types.UID
		for _, pod := range pods {
			qualifying = append(qualifying, pod.UID)
			group := o.placedIn(p, pod.UID)
			in[group] = append(in[group], pod.UID)
		}
		n := o.size(pods)
		var managed []types.UID
		var placed, quota []int
		counts := p.counts(n)
		for g := Group(1); g <= p.last(); g++ {
			placed, quota = append(placed, len(in[g])), append(quota, counts[g])
			if g < p.last() {
				managed = append(managed, in[g]...)
			}
		}
		cohorts = append(cohorts, viewOf(cohort, qualifying, n, quota, managed, placed))
	}
	slices.Sort(cohorts)
	return strings.Join(append(slices.Compact(cohorts), overruledView(o.overruledBy(p))), "\n")
}

// overruledBy returns how many pods the policy selects, but another one governs, by that one.
func (o *oracle) overruledBy(p oraclePolicy) map[types.NamespacedName]int {
	by := map[types.NamespacedName]int{}
	for _, pod := range o.pods {
		if governing, _ := o.governing(pod); p.selects(pod) && governing.NamespacedName != p.NamespacedName {
			by[governing.NamespacedName]++
		}
	}
	return by
}

func overruledView(by map[types.NamespacedName]int) string { return fmt.Sprintf("overruled by %v", by) }

func viewOf(
	cohort map[string]string, qualifying []types.UID, size int, quota []int, managed []types.UID, placed []int,
) string {
	slices.Sort(qualifying)
	slices.Sort(managed)
	return fmt.Sprintf("%v: qualifying %v, size %d, quota %v, managed %v, placed %v",
		cohort, qualifying, size, quota, managed, placed)
}
