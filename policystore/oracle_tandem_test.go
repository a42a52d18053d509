package policystore

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"pgregory.net/rapid"
)

// tandem is a store and an oracle that get the same calls.
type tandem struct {
	t      rapid.TB
	store  *Store
	oracle *oracle
	log    func(format string, args ...any)

	// told are the policies that the subscriber was told of since the last check. seen is what the policies were then,
	// without those that were set since, which it must be told of in any case; decided are the decisions for the active
	// pods.
	told    Set[types.NamespacedName]
	seen    map[types.NamespacedName]string
	decided map[types.UID]oracleDecision
}

func newTandem(t rapid.TB, store *Store) *tandem {
	x := &tandem{t: t, store: store, oracle: newOracle(), log: func(string, ...any) {}}
	store.Subscribe(func(policy types.NamespacedName) {
		store.Policy(policy) // a subscriber may read the store
		x.told.Insert(policy)
	})
	return x
}

func (x *tandem) setPolicy(p Policy) {
	x.log("SetPolicy %s", policyInWords(p))
	x.oracle.policies[p.NamespacedName] = newOraclePolicy(p)
	delete(x.seen, p.NamespacedName)
	_ = x.store.SetPolicy(p)
}

func (x *tandem) rejectPolicy(key types.NamespacedName) {
	x.log("RejectPolicy %s", key)
	x.oracle.policies[key] = oraclePolicy{}
	delete(x.seen, key)
	x.store.RejectPolicy(key, errors.New("targetSize is a list"))
}

func (x *tandem) removePolicy(key types.NamespacedName) {
	x.log("RemovePolicy %s", key)
	delete(x.oracle.policies, key)
	x.store.RemovePolicy(key)
}

func (x *tandem) addNode(n *v1.Node) {
	x.log("AddNode %s %v", n.Name, n.Labels)
	x.oracle.nodes[n.Name] = n.Labels
	x.store.AddNode(n)
}

func (x *tandem) updateNode(n *v1.Node) {
	x.log("UpdateNode %s %v", n.Name, n.Labels)
	x.oracle.nodes[n.Name] = n.Labels
	x.store.UpdateNode(n)
}

func (x *tandem) removeNode(n *v1.Node) {
	x.log("RemoveNode %s", n.Name)
	delete(x.oracle.nodes, n.Name)
	x.store.RemoveNode(n)
}

func (x *tandem) setSize(workload types.UID, size int) {
	x.log("SetWorkloadSize %s %d", workload, size)
	x.oracle.sizes[workload] = size
	x.store.SetWorkloadSize(workload, size)
}

func (x *tandem) removeSize(workload types.UID) {
	x.log("RemoveWorkload %s", workload)
	delete(x.oracle.sizes, workload)
	x.store.RemoveWorkload(workload)
}

func (x *tandem) addPod(pod *v1.Pod) {
	x.log("AddPod %s", podInWords{pod})
	x.oracle.observe(pod)
	x.store.AddPod(pod)
}

// updatePod tells of a change. old may be nil, or another pod that had the same name.
func (x *tandem) updatePod(old, pod *v1.Pod) {
	x.log("UpdatePod %s to %s", podInWords{old}, podInWords{pod})
	if old != nil && old.UID != pod.UID {
		x.oracle.remove(old)
	}
	x.oracle.observe(pod)
	x.store.UpdatePod(old, pod)
}

func (x *tandem) removePod(pod *v1.Pod) {
	x.log("RemovePod %s", podInWords{pod})
	x.oracle.remove(pod)
	x.store.RemovePod(pod)
}

// assume reserves if the store lets it, and returns what it says.
func (x *tandem) assume(pod *v1.Pod, nodeName string) error {
	err := x.store.AssumePod(pod, nodeName)
	x.log("AssumePod %s on %s: %v", podInWords{pod}, nodeName, err)
	if err == nil {
		x.oracle.assume(pod, nodeName)
	}
	return err
}

func (x *tandem) forget(pod *v1.Pod) {
	x.log("ForgetPod %s", podInWords{pod})
	x.oracle.forget(pod)
	x.store.ForgetPod(pod)
}

// mustAssume is assume, checked against the oracle.
func (x *tandem) mustAssume(pod *v1.Pod, nodeName string) {
	x.t.Helper()
	refuses := x.oracle.refuses(pod, nodeName)
	err := x.assume(pod, nodeName)
	if quota := (*QuotaError)(nil); errors.As(err, &quota) != refuses || (err != nil) != refuses {
		x.t.Fatalf("AssumePod %s on %s: the error is %v; the oracle refuses: %t", podInWords{pod}, nodeName, err, refuses)
	}
}

// check compares all that the store tells with the oracle, and then its inside. strangers are pods to decide about
// beside those that the store knows.
func (x *tandem) check(strangers ...*v1.Pod) {
	x.t.Helper()
	x.checkPolicies()
	decided := map[types.UID]oracleDecision{}
	for _, uid := range sets.List(sets.KeySet(x.oracle.pods)) {
		pod := x.oracle.pods[uid]
		// The store goes by what it knows of the pod, not by what it is given.
		now := x.checkDecision(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, Namespace: pod.Namespace}})
		if !isActive(pod) {
			continue
		}
		decided[uid] = now
		if was, ok := x.decided[uid]; ok && was != now && !x.told.Has(was.policy) && !x.told.Has(now.policy) {
			x.t.Fatalf("the decision for pod %s changed and nobody was told. It was:\n%+v\nand is:\n%+v", uid, was, now)
		}
	}
	for _, pod := range strangers {
		x.checkDecision(pod)
	}
	x.checkInside()
	x.decided = decided
	for key := range x.told.All() {
		x.told.Delete(key)
	}
}

func (x *tandem) checkPolicies() {
	x.t.Helper()
	keys := sets.KeySet(x.oracle.policies)
	if got := sets.New(x.store.Policies()...); !got.Equal(keys) {
		x.t.Fatalf("Policies: %v, want %v", got, keys)
	}
	seen := map[types.NamespacedName]string{}
	for key := range keys.Union(sets.KeySet(x.seen)) {
		now := x.oracle.view(key)
		if got := storeView(x.store, key); got != now {
			x.t.Fatalf("policy %s:\n%s\nwant:\n%s", key, got, now)
		}
		if was, ok := x.seen[key]; (!ok || was != now) && !x.told.Has(key) {
			x.t.Fatalf("policy %s changed and nobody was told. It was:\n%s\nand is:\n%s", key, was, now)
		}
		seen[key] = now
	}
	x.seen = seen
}

// storeView is what the store says of a policy, in the words of the oracle.
func storeView(s *Store, key types.NamespacedName) string {
	info, ok := s.Policy(key)
	switch {
	case !ok:
		return "absent"
	case info.Err != nil:
		return "invalid"
	}
	var cohorts []string
	for _, c := range info.Cohorts {
		qualifying, managed := slices.Collect(c.QualifyingPods.All()), slices.Collect(c.ManagedPods.All())
		view := viewOf(c.Labels, qualifying, c.Size, c.Target, managed, c.Other)
		if len(qualifying) != c.Qualifying || len(managed) != c.Managed {
			view += fmt.Sprintf(", but by number %d qualifying, %d managed", c.Qualifying, c.Managed)
		}
		cohorts = append(cohorts, view)
	}
	slices.Sort(cohorts)
	return strings.Join(cohorts, "\n")
}

func (x *tandem) checkDecision(pod *v1.Pod) oracleDecision {
	x.t.Helper()
	d, governed := x.store.Decide(pod)
	want := x.oracle.decide(pod)
	if got := spellOut(d, governed); got != want {
		x.t.Fatalf("decision for pod %s:\n%+v\nwant:\n%+v", pod.UID, got, want)
	}
	if !governed {
		return want
	}
	if !d.Allows(Target) && !d.Allows(Other) {
		x.t.Fatalf("pod %s is allowed nowhere: %+v", pod.UID, want)
	}
	for _, group := range []Group{Target, Other} {
		if !d.Allows(group) && x.store.CouldEvict(d, group) != x.oracle.couldEvict(pod, group) {
			x.t.Fatalf("pod %s could evict in the %s group: %t, says the store of %+v", pod.UID, group, x.store.CouldEvict(d, group), want)
		}
	}

	// Evict one of the other pods in a simulation, and bring it back.
	uids := sets.List(sets.KeySet(x.oracle.pods).Delete(pod.UID))
	if len(uids) == 0 {
		return want
	}
	i, _ := slices.BinarySearch(uids, pod.UID)
	victim := x.oracle.pods[uids[i%len(uids)]]
	without := x.oracle.decide(pod, victim.UID)
	simulated := x.store.WithoutPod(d, victim)
	if got := spellOut(simulated, true); got != without {
		x.t.Fatalf("decision for pod %s without %s:\n%+v\nwant:\n%+v", pod.UID, victim.UID, got, without)
	}
	if without == want {
		return want // it was not placed, to begin with
	}
	if got := spellOut(x.store.WithPod(simulated, victim, nil), true); got != want {
		x.t.Fatalf("decision for pod %s when %s is back:\n%+v\nwant:\n%+v", pod.UID, victim.UID, got, want)
	}
	return want
}

func spellOut(d Decision, governed bool) oracleDecision {
	if !governed {
		return oracleDecision{}
	}
	return oracleDecision{
		policy: d.Policy, mode: d.EnforcementMode(),
		qualifying: d.Qualifying, size: d.Size, target: d.Target, managed: d.Managed, other: d.Other,
		preferred: d.Preferred, allowsTarget: d.Allows(Target), allowsOther: d.Allows(Other),
	}
}

// checkInside looks for what no method shows: records of what is gone, and lists that differ from what is listed.
func (x *tandem) checkInside() {
	x.t.Helper()
	st, o := x.store.state, x.oracle
	fail := func(what string, args ...any) {
		x.t.Helper()
		x.t.Fatalf("inside the store: "+what, args...)
	}

	// There is a record for all that facts speak of, and for nothing else.
	nodes, namespaces, workloads := sets.KeySet(o.nodes), sets.New[string](), sets.KeySet(o.sizes)
	for uid, pod := range o.pods {
		nodes.Insert(o.placedOn(uid))
		namespaces.Insert(pod.Namespace)
		workloads.Insert(controllerOf(pod))
	}
	for p := range st.nominated {
		if st.pods[p.uid] != p {
			fail("pod %s: nominated, but not known", p.uid)
		}
	}
	for key, p := range o.policies {
		if p.valid {
			namespaces.Insert(key.Namespace)
		}
	}
	nodes.Delete("")
	workloads.Delete("")
	if got := sets.KeySet(st.pods); !got.Equal(sets.KeySet(o.pods)) {
		fail("pods %v, want %v", got, sets.KeySet(o.pods))
	}
	if got := sets.KeySet(st.nodes); !got.Equal(nodes) {
		fail("nodes %v, want %v", got, nodes)
	}
	if got := sets.KeySet(st.namespaces); !got.Equal(namespaces) {
		fail("namespaces %v, want %v", got, namespaces)
	}
	if got := sets.KeySet(st.workloads); !got.Equal(workloads) {
		fail("workloads %v, want %v", got, workloads)
	}
	if len(st.touched) > 0 {
		fail("touched %v between two operations", st.touched)
	}

	// Each pod stands in the lists of what it has to do with.
	labelSetPods, nodePods, workloadPods, cohorts := map[*labelSet]int{}, map[*node]int{}, map[*workload]int{}, map[*cohort]*cohort{}
	for uid, p := range st.pods {
		if p.uid != uid || !p.seen && p.reserved == nil {
			fail("pod %s: nothing is known of it", uid)
		}
		l := p.labelSet
		labelSetPods[l]++
		if st.namespaces[l.namespace.name] != l.namespace || l.namespace.labelSets[l.key] != l || l.pods[p.labelSetIndex] != p {
			fail("pod %s: not listed under its labels", uid)
		}
		if n := p.placed; n != nil {
			nodePods[n]++
			if st.nodes[n.name] != n || n.pods[p.nodeIndex] != p {
				fail("pod %s: not listed under its node", uid)
			}
		}
		if w := p.workload; w != nil {
			workloadPods[w]++
			if st.workloads[w.uid] != w {
				fail("pod %s: its workload has no record", uid)
			}
		}
		if c := p.cohort; c != nil {
			if st.policies[c.policy.key] != c.policy || c.policy.cohorts[c.key] != c {
				fail("pod %s: its cohort has no record", uid)
			}
			want := cohorts[c]
			if want == nil {
				want = &cohort{placed: map[groupPriority]int{}, nominated: map[*pod]struct{}{}, workloads: map[*workload]int{}}
				cohorts[c] = want
			}
			want.workloads[p.workload]++
			if p.group != NoGroup {
				want.placed[groupPriority{p.group, p.priority}]++
			}
			if st.nominated[p] != "" {
				want.nominated[p] = struct{}{}
			}
		}
	}

	// No list holds more.
	for name, ns := range st.namespaces {
		valid := 0
		for key, p := range o.policies {
			if p.valid && key.Namespace == name {
				valid++
			}
		}
		if ns.index.Len() != valid {
			fail("namespace %s: %d policies in the index, want %d", name, ns.index.Len(), valid)
		}
		for key, l := range ns.labelSets {
			if len(l.pods) == 0 || len(l.pods) != labelSetPods[l] || l.key != key {
				fail("labels %q: %d pods listed, %d have them", key, len(l.pods), labelSetPods[l])
			}
			var got, want []types.NamespacedName
			for _, p := range l.selectedBy {
				got = append(got, p.key)
			}
			for _, p := range o.selecting(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: name, Labels: l.labels.toMap()}}) {
				want = append(want, p.NamespacedName)
			}
			if !slices.Equal(got, want) {
				fail("labels %q: selected by %v, want %v", key, got, want)
			}
		}
	}
	for name, n := range st.nodes {
		if len(n.pods) != nodePods[n] {
			fail("node %s: %d pods listed, %d are there", name, len(n.pods), nodePods[n])
		}
	}
	for uid, w := range st.workloads {
		if w.pods != workloadPods[w] {
			fail("workload %s: %d pods, want %d", uid, w.pods, workloadPods[w])
		}
		for c := range w.cohorts {
			if cohorts[c] == nil || cohorts[c].workloads[w] == 0 {
				fail("workload %s: cohort %q has none of its pods", uid, c.key)
			}
		}
	}
	for key, p := range st.policies {
		for _, c := range p.cohorts {
			want := cohorts[c]
			if want == nil {
				fail("policy %s: cohort %q without pods", key, c.key)
			}
			if !maps.Equal(c.workloads, want.workloads) || !maps.Equal(c.placed, want.placed) || !maps.Equal(c.nominated, want.nominated) {
				fail("policy %s: cohort %q counts %v %v %v, want %v %v %v", key, c.key,
					c.workloads, c.placed, c.nominated, want.workloads, want.placed, want.nominated)
			}
			for w := range c.workloads {
				if w == nil {
					continue
				}
				if _, ok := w.cohorts[c]; !ok {
					fail("policy %s: workload %s does not know a cohort of its pods", key, w.uid)
				}
			}
		}
	}
}

// podInWords prints what of a pod matters to a store.
type podInWords struct{ *v1.Pod }

func (p podInWords) String() string {
	if p.Pod == nil {
		return "nil"
	}
	words := []string{string(p.UID), fmt.Sprint(p.Labels)}
	if owner := controllerOf(p.Pod); owner != "" {
		words = append(words, "of", string(owner))
	}
	if p.Spec.Priority != nil {
		words = append(words, "priority", fmt.Sprint(*p.Spec.Priority))
	}
	if p.Status.NominatedNodeName != "" {
		words = append(words, "nominated for", p.Status.NominatedNodeName)
	}
	if p.Spec.NodeName != "" {
		words = append(words, "on", p.Spec.NodeName)
	}
	if p.Status.Phase != "" {
		words = append(words, string(p.Status.Phase))
	}
	if p.DeletionTimestamp != nil {
		words = append(words, "terminating")
	}
	if len(p.Spec.SchedulingGates) > 0 {
		words = append(words, "gated")
	}
	return strings.Join(words, " ")
}

type policyInWords Policy

func (p policyInWords) String() string {
	return fmt.Sprintf("%s weight=%d mode=%q pods=%s nodes=%s keys=%q action=%q size=%s", p.NamespacedName, p.Weight, p.EnforcementMode,
		metav1.FormatLabelSelector(p.PodSelector), metav1.FormatLabelSelector(p.NodeSelector), p.MatchLabelKeys, p.Action, p.TargetSize)
}
