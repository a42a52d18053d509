package policystore

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// check compares all that the store tells with the oracle, and then its inside. strangers are pods to decide about
// beside those that the store knows.
func (x *tandem) check(strangers ...*v1.Pod) {
	x.checkPolicies()
	decided := map[types.UID]oracleDecision{}
	for _, uid := range sets.List(sets.KeySet(x.oracle.pods)) {
		pod := x.oracle.pods[uid]
		// The store goes by what it knows of the pod, not by what it is given.
		asked := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, Namespace: pod.Namespace}}
		if got, want := x.store.IsAssumed(asked), x.oracle.reservations[uid] != ""; got != want {
			x.t.Fatalf("IsAssumed(%s): %v, want %v", uid, got, want)
		}
		now := x.checkDecision(asked)
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
		view := viewOf(c.Labels, qualifying, c.Size, c.Quota, managed, c.Placed)
		rest := len(c.Quota) - 1
		if len(qualifying) != c.Qualifying || len(managed) != c.Managed ||
			c.Target != c.Size-c.Quota[rest] || c.Other != c.Placed[rest] {
			view += fmt.Sprintf(", but by number %+v", c)
		}
		cohorts = append(cohorts, view)
	}
	slices.Sort(cohorts)
	return strings.Join(append(cohorts, overruledView(info.OverruledBy)), "\n")
}

func (x *tandem) checkDecision(pod *v1.Pod) oracleDecision {
	d, governed := x.store.Decide(pod)
	want := x.oracle.decide(pod, nil)
	if got := spellOut(d, governed); got != want {
		x.t.Fatalf("decision for pod %s:\n%+v\nwant:\n%+v", pod.UID, got, want)
	}
	if !governed {
		return want
	}
	if !d.Allows(d.Preferred) || d.Preferred == NoGroup {
		x.t.Fatalf("pod %s is not allowed where it is preferred: %+v", pod.UID, want)
	}
	x.checkCouldEvict(pod, d, moved{})
	x.checkNodes(d)
	x.checkSimulation(pod, d, want)
	return want
}

func (x *tandem) checkCouldEvict(pod *v1.Pod, d Decision, evicted moved) {
	for group := range d.Groups() {
		if !d.Allows(group) && x.store.CouldEvict(d, group) != x.oracle.couldEvict(pod, group, evicted) {
			x.t.Fatalf("pod %s could evict in group %d, when %v are: %t, says the store of %+v", pod.UID, group, evicted, x.store.CouldEvict(d, group), d)
		}
	}
}

func (x *tandem) checkNodes(d Decision) {
	want := map[Group]sets.Set[string]{NoGroup: {}}
	for group := range d.Groups() {
		want[group] = sets.Set[string]{}
	}
	for name, labels := range x.oracle.nodes {
		want[d.GroupOf(labels)].Insert(name)
	}
	delete(want, NoGroup)
	for group, want := range want {
		got, listed := sets.Set[string]{}, 0
		all := x.store.NodesIn(d, group)
		for _, names := range all {
			got.Insert(names.UnsortedList()...)
			listed += names.Len()
		}
		if !got.Equal(want) || listed != got.Len() || len(all) > listed {
			x.t.Fatalf("NodesIn group %d of policy %s: %v, want %v in disjoint sets, none empty", group, d.Policy, all, want)
		}
	}
}

// checkSimulation evicts one of the other pods in a simulation, and puts it on a node of either group. The pod itself
// can be neither evicted nor placed.
func (x *tandem) checkSimulation(pod *v1.Pod, d Decision, want oracleDecision) {
	must := func(d Decision, want oracleDecision, what string, args ...any) {
		if got := spellOut(d, true); got != want {
			x.t.Fatalf("decision for pod %s %s:\n%+v\nwant:\n%+v", pod.UID, fmt.Sprintf(what, args...), got, want)
		}
	}
	must(x.store.WithoutPod(d, pod), want, "without itself")
	must(x.store.WithPod(d, pod, map[string]string{"pool": "spot"}), want, "with itself")
	others := sets.List(sets.KeySet(x.oracle.pods).Delete(pod.UID))
	if len(others) == 0 {
		return
	}
	next, _ := slices.BinarySearch(others, pod.UID)
	victim := x.oracle.pods[others[next%len(others)]]
	without := x.oracle.decide(pod, moved{victim.UID: NoGroup})
	evicted := x.store.WithoutPod(d, victim)
	must(evicted, without, "without %s", victim.UID)
	x.checkCouldEvict(pod, evicted, moved{victim.UID: NoGroup})
	hadPlace := without != want
	canGetOne := x.oracle.placedIn(x.oracle.policies[want.policy], victim.UID) == NoGroup && victim.Status.NominatedNodeName == ""
	for _, labels := range []map[string]string{{"pool": "spot"}, nil, {"pool": "od"}} {
		with := moved{victim.UID: d.GroupOf(labels)}
		switch {
		case hadPlace:
			must(x.store.WithPod(d, victim, labels), want, "with %s, which it counts", victim.UID)
			must(x.store.WithPod(evicted, victim, labels), x.oracle.decide(pod, with), "when %s is back on %v", victim.UID, labels)
		case canGetOne:
			must(x.store.WithPod(d, victim, labels), x.oracle.decide(pod, with), "with %s on %v", victim.UID, labels)
			must(x.store.WithoutPod(x.store.WithPod(d, victim, labels), victim), want, "when %s has gone again", victim.UID)
		}
	}
}

func spellOut(d Decision, governed bool) oracleDecision {
	if !governed {
		return oracleDecision{}
	}
	spelt := oracleDecision{
		policy: d.Policy, mode: d.EnforcementMode(), qualifying: d.Qualifying, size: d.Size, preferred: d.Preferred,
	}
	spelt.allows[NoGroup] = d.Allows(NoGroup)
	for g := range d.Groups() {
		spelt.quota[g], spelt.placed[g], spelt.allows[g] = d.Quota(g), d.Placed(g), d.Allows(g)
	}
	return spelt
}

// checkInside looks for what no method shows: records of what is gone, and lists that differ from what is listed.
func (x *tandem) checkInside() {
	st, o := &x.store.state, x.oracle
	must := func(ok bool, what string, args ...any) {
		if !ok {
			x.t.Fatalf("inside the store: "+what, args...)
		}
	}

	// There is a record of all that the facts speak of, and of nothing else.
	nodes, namespaces, workloads, nominated := sets.KeySet(o.nodes), sets.New[string](), sets.KeySet(o.sizes), 0
	for uid, pod := range o.pods {
		nodes.Insert(o.placedOn(uid), pod.Status.NominatedNodeName)
		namespaces.Insert(pod.Namespace)
		workloads.Insert(controllerOf(pod))
		if pod.Status.NominatedNodeName != "" {
			nominated++
		}
	}
	valid := map[string]int{} // policies by namespace
	for key, p := range o.policies {
		if p.valid {
			namespaces.Insert(key.Namespace)
			valid[key.Namespace]++
		}
	}
	must(sets.KeySet(st.pods).Equal(sets.KeySet(o.pods)), "pods: %v", st.pods)
	must(sets.KeySet(st.nodes).Equal(nodes.Delete("")), "nodes: %v, want %v", st.nodes, nodes)
	must(sets.KeySet(st.workloads).Equal(workloads.Delete("")), "workloads: %v, want %v", st.workloads, workloads)
	must(sets.KeySet(st.namespaces).Equal(namespaces), "namespaces: %v, want %v", st.namespaces, namespaces)
	must(len(st.nominated) == nominated, "nominated: %v", st.nominated)
	for p, n := range st.nominated {
		_, listed := n.nominees[p]
		must(listed && n.name == o.pods[p.uid].Status.NominatedNodeName, "pod %s: nominated for %s", p.uid, n.name)
	}
	must(len(st.touched)+len(st.changed) == 0, "left between two operations: %v, %v", st.touched, st.changed)

	// Each pod is listed where it belongs.
	labelSetPods, nodePods, workloadPods, cohorts := map[*labelSet]int{}, map[*node]int{}, map[*workload]int{}, map[*cohort]*cohort{}
	for uid, p := range st.pods {
		must(p.uid == uid && (p.seen || p.reserved != nil), "pod %s: nothing is known of it", uid)
		l := p.labelSet
		labelSetPods[l]++
		must(st.namespaces[l.namespace.name] == l.namespace && l.namespace.labelSets[l.labels] == l && l.pods[p.labelSetIndex] == p, "pod %s: labels", uid)
		if n := p.placed; n != nil {
			nodePods[n]++
			must(st.nodes[n.name] == n && n.pods[p.nodeIndex] == p, "pod %s: node", uid)
		}
		if w := p.workload; w != nil {
			workloadPods[w]++
			must(st.workloads[w.uid] == w, "pod %s: workload", uid)
		}
		if c := p.cohort; c != nil {
			must(st.policies[c.policy.key] == c.policy && c.policy.cohorts[c.labels] == c, "pod %s: cohort", uid)
			want := cohorts[c]
			if want == nil {
				want = &cohort{nominees: map[groupPriority]nominees{}}
				cohorts[c] = want
			}
			if p.workload != nil {
				want.workloads.add(p.workload, +1)
			}
			if p.group != NoGroup {
				want.placed.add(groupPriority{p.group, p.priority}, +1)
			}
			if node := o.pods[uid].Status.NominatedNodeName; node != "" && p.placed == nil {
				if g := o.groupOf(o.policies[c.policy.key], node); g != NoGroup {
					at := groupPriority{g, p.priority}
					want.nominees[at] = want.nominees[at].with(p)
				}
			}
		}
	}

	// Nothing more is listed.
	for name, ns := range st.namespaces {
		must(ns.index.Len() == valid[name], "namespace %s: %d policies in the index, want %d", name, ns.index.Len(), valid[name])
		for key, l := range ns.labelSets {
			must(l.labels == key && len(l.pods) > 0 && len(l.pods) == labelSetPods[l], "labels %q: pods %v", key, l.pods)
			var got, want []types.NamespacedName
			for _, p := range l.selectedBy {
				got = append(got, p.key)
			}
			for _, p := range o.selecting(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: name, Labels: l.labels.toMap()}}) {
				want = append(want, p.NamespacedName)
			}
			must(slices.Equal(got, want), "labels %q: selected by %v, want %v", key, got, want)
		}
	}
	for name, n := range st.nodes {
		must(len(n.pods) == nodePods[n], "node %s: pods %v", name, n.pods)
		for p := range n.assumed {
			must(o.assumed[p.uid] != nil && o.assumed[p.uid].Name == name, "node %s: labels that pod %s has seen", name, p.uid)
		}
		for p := range n.nominees {
			must(st.nominated[p] == n, "node %s: %s is not nominated for it", name, p.uid)
		}
	}
	for uid, w := range st.workloads {
		must(w.pods == workloadPods[w], "workload %s: %d pods, want %d", uid, w.pods, workloadPods[w])
		for c, pods := range w.cohorts.all {
			must(maps.Collect(c.workloads.all)[w] == pods && cohorts[c] != nil, "workload %s: cohort %q", uid, c.labels)
		}
	}
	for key, p := range st.policies {
		for _, c := range p.cohorts {
			want := cohorts[c]
			must(want != nil, "policy %s: cohort %q has no pods", key, c.labels)
			must(c.workloads.equal(want.workloads) && c.placed.equal(want.placed) && maps.EqualFunc(c.nominees, want.nominees, slices.Equal[nominees]),
				"policy %s: cohort %q: %v, want %v", key, c.labels, c, want)
			for w, pods := range c.workloads.all {
				must(maps.Collect(w.cohorts.all)[c] == pods, "policy %s: cohort %q is not known to workload %s", key, c.labels, w.uid)
			}
		}
	}
}

func (t *tally[K]) equal(o tally[K]) bool {
	return maps.Equal(maps.Collect(t.all), maps.Collect(o.all))
}
