package policystore_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

// canary is a policy that takes some pods away from the policy web.
func canary() policystore.Policy {
	p := must(policystore.Strict, "50%")
	p.Name, p.Weight = "canary", 100
	p.PodSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"canary": "true"}}
	return p
}

// permutations calls visit with each order of the numbers below n.
func permutations(n int, visit func(order []int)) {
	order := make([]int, 0, n)
	var extend func()
	extend = func() {
		if len(order) == n {
			visit(order)
			return
		}
		for i := range n {
			if !slices.Contains(order, i) {
				order = append(order, i)
				extend()
				order = order[:len(order)-1]
			}
		}
	}
	extend()
}

// The store must come to the same view in whatever order objects arrive, and to nothing in whatever order they go.
func TestOrderOfArrival(t *testing.T) {
	m1, o1 := newNode("m1", spot), newNode("o1", nil)
	managed := newPod("managed", onNode("m1"), controlledBy("rs"))
	pending := newPod("pending", controlledBy("rs"))
	both := newPod("both", onNode("o1"), labelled("canary", "true"))
	objects := []struct{ add, remove func(*policystore.Store) }{
		{func(s *policystore.Store) { _ = s.SetPolicy(must(policystore.Strict, "40%")) }, func(s *policystore.Store) { s.RemovePolicy(web) }},
		{func(s *policystore.Store) { _ = s.SetPolicy(canary()) }, func(s *policystore.Store) { s.RemovePolicy(canary().NamespacedName) }},
		{func(s *policystore.Store) { s.AddNode(m1); s.AddNode(o1) }, func(s *policystore.Store) { s.RemoveNode(m1.Name); s.RemoveNode(o1.Name) }},
		{func(s *policystore.Store) { s.AddPod(managed); s.AddPod(pending) }, func(s *policystore.Store) { s.RemovePod(pending.UID); s.RemovePod(managed.UID) }},
		{func(s *policystore.Store) { s.AddPod(both) }, func(s *policystore.Store) { s.RemovePod(both.UID) }},
		{func(s *policystore.Store) { s.SetWorkloadSize("rs", 5) }, func(s *policystore.Store) { s.RemoveWorkload("rs") }},
	}

	view := func(s *policystore.Store) (infos []policystore.PolicyInfo) {
		for _, key := range s.Policies() {
			info, _ := s.Policy(key)
			infos = append(infos, info)
		}
		return infos
	}

	reference := policystore.New()
	for _, object := range objects {
		object.add(reference)
	}
	want := view(reference)
	type counts struct{ qualifying, size, target, managed, other int }
	var got []counts
	for _, info := range want {
		c := info.Cohorts[0]
		got = append(got, counts{c.Qualifying, c.Size, c.Target, c.Managed, c.Other})
	}
	require.Equal(t, []counts{{1, 1, 0, 0, 1}, {2, 5, 2, 1, 0}}, got)

	permutations(len(objects), func(order []int) {
		s := policystore.New()
		for _, i := range order {
			objects[i].add(s)
		}
		require.Equal(t, want, view(s), order)
		for _, i := range order {
			objects[i].remove(s)
		}
		policystore.RequireEmpty(t, s)
	})
}

// A handler may see an event twice: after a relist, say. The second time nothing may change, and nobody need be told.
func TestEventsTwice(t *testing.T) {
	m1, o1 := newNode("m1", spot), newNode("o1", nil)
	pod := func(edits ...func(*v1.Pod)) *v1.Pod { return newPod("pod", append(edits, controlledBy("rs"))...) }
	next := newPod("next")

	once, twice := policystore.New(), policystore.New()
	var told []types.NamespacedName
	twice.Subscribe(func(key types.NamespacedName) { told = append(told, key) })
	for _, event := range []struct {
		name string
		do   func(*policystore.Store)
	}{
		{"SetWorkloadSize", func(s *policystore.Store) { s.SetWorkloadSize("rs", 5) }},
		{"SetPolicy", func(s *policystore.Store) { _ = s.SetPolicy(must(policystore.Strict, "40%")) }},
		{"AddNode", func(s *policystore.Store) { s.AddNode(m1); s.AddNode(o1) }},
		{"AssumePod of an unknown pod", func(s *policystore.Store) { _ = s.AssumePod(pod(), newNode("m1", nil)) }},
		{"AddPod", func(s *policystore.Store) { s.AddPod(pod()) }},
		{"UpdatePod, bound", func(s *policystore.Store) { s.UpdatePod(pod(), pod(onNode("m1"))) }},
		{"ForgetPod of a bound pod", func(s *policystore.Store) { s.ForgetPod(pod()) }},
		{"AssumePod of a bound pod", func(s *policystore.Store) { _ = s.AssumePod(pod(), newNode("o1", nil)) }},
		{"AddPod of another", func(s *policystore.Store) { s.AddPod(next) }},
		{"AssumePod", func(s *policystore.Store) { _ = s.AssumePod(next, newNode("o1", nil)) }},
		{"ForgetPod", func(s *policystore.Store) { s.ForgetPod(next) }},
		{"UpdateNode", func(s *policystore.Store) { s.UpdateNode(newNode("m1", nil)) }},
		{"RemoveNode", func(s *policystore.Store) { s.RemoveNode(o1.Name) }},
		{"UpdatePod, relabelled", func(s *policystore.Store) { s.UpdatePod(nil, pod(onNode("m1"), labelled("app", "debug"))) }},
		{"UpdatePod, finished", func(s *policystore.Store) { s.UpdatePod(nil, pod(onNode("m1"), finished)) }},
		{"RemovePod", func(s *policystore.Store) { s.RemovePod(pod().UID); s.RemovePod(next.UID) }},
		{"RemoveWorkload", func(s *policystore.Store) { s.RemoveWorkload("rs") }},
		{"RemovePolicy", func(s *policystore.Store) { s.RemovePolicy(web) }},
		{"RemoveNode of the last", func(s *policystore.Store) { s.RemoveNode(m1.Name) }},
	} {
		event.do(once)
		event.do(twice)
		told = nil
		event.do(twice)
		if event.name != "SetPolicy" {
			require.Empty(t, told, event.name)
		}
		want, wantOK := once.Policy(web)
		got, gotOK := twice.Policy(web)
		require.Equal(t, wantOK, gotOK, event.name)
		require.Equal(t, want, got, event.name)
	}
	policystore.RequireEmpty(t, twice)
}

// A cohort lives as long as one of its pods qualifies, and the sets that were handed out with it.
func TestSetsAreLiveAsLongAsAPodQualifies(t *testing.T) {
	for name, change := range map[string]func(*v1.Pod){
		"its priority changes":       priority(10),
		"its workload changes":       controlledBy("rs"),
		"it is nominated":            nominatedFor("m1"),
		"it gets a label":            labelled("new", ""),
		"it changes group":           onNode("o1"),
		"several of these":           func(pod *v1.Pod) { priority(10)(pod); nominatedFor("m1")(pod); labelled("new", "")(pod) },
		"it leaves the cohort empty": labelled("pod-template-hash", "new"),
	} {
		w := newCluster(t, must(policystore.Strict, "100%"))
		pod := w.create(1, onNode("m1"))[0]
		info, _ := w.Policy(web)
		before := info.Cohorts[0]
		w.update(change, pod)
		info, _ = w.Policy(web)
		after := info.Cohorts[0]
		if len(after.Labels) > 0 {
			assert.Zero(t, before.QualifyingPods.Len(), name)
			continue
		}
		assert.Same(t, after.QualifyingPods, before.QualifyingPods, name)
		assert.Same(t, after.ManagedPods, before.ManagedPods, name)
		assert.Equal(t, 1, before.QualifyingPods.Len(), name)
		assert.Equal(t, after.Managed, before.ManagedPods.Len(), name)
	}
}

func TestPoliciesComeInOrder(t *testing.T) {
	w := newWorld(t)
	want := []types.NamespacedName{{Namespace: "a", Name: "p"}, {Namespace: "a", Name: "q"}, {Namespace: "a-b", Name: "p"}, {Namespace: "b", Name: "a"}}
	for _, key := range slices.Backward(want) {
		w.RejectPolicy(key, assert.AnError)
	}
	assert.Equal(t, want, w.Policies())
}

// A StatefulSet reuses its pods' names, and an informer may show the old pod's end and the new one's start as one update.
func TestReplacedPod(t *testing.T) {
	w := newWorld(t, must(policystore.Strict, "100%"))
	w.addNodes(10, spot, "m1")
	name := w.create(1, onNode("m1"))[0]
	old, replacement := w.pods[name], newPod(name)
	replacement.UID = "replacement"
	w.pods[name] = replacement
	w.UpdatePod(old, replacement)

	info, _ := w.Policy(web)
	require.Len(t, info.Cohorts, 1)
	assert.Equal(t, []types.UID{"replacement"}, slices.Collect(info.Cohorts[0].QualifyingPods.All()))
	w.requireSplit("0/0")

	w.RemovePod(old.UID) // comes late
	require.NoError(t, w.AssumePod(replacement, newNode("m1", nil)))
	w.requireSplit("1/0")
}

// A delete event may come without its object: then only the name is known. What other pods have it, or had it, must stay.
func TestRemovePodNamed(t *testing.T) {
	w := newCluster(t, must(policystore.Strict, "40%"))
	w.create(2, onNode("m1"))
	name := w.create(1, labelled("more", "labels"), onNode("o1"))[0]
	elsewhere := newPod(name, inNamespace("elsewhere"))
	elsewhere.UID = "elsewhere"
	w.pods["elsewhere"] = elsewhere
	w.AddPod(elsewhere)
	next := newPod(name)
	next.UID = "next"
	w.pods["next"] = next
	require.NoError(t, w.AssumePod(next, newNode("o1", nil)), "a pod that is made again may be reserved before its event")
	w.requireSplit("2/2")

	w.RemovePodNamed(types.NamespacedName{Namespace: "default", Name: name})
	w.requireSplit("2/1")
	assert.True(t, w.IsAssumed(next))
	w.RemovePodNamed(types.NamespacedName{Namespace: "default", Name: name})
	w.RemovePodNamed(types.NamespacedName{Namespace: "nowhere", Name: name})
	w.requireSplit("2/1")
	w.ForgetPod(next)
	assert.Empty(t, w.Compare(policystore.Cluster{
		Policies: []policystore.Policy{must(policystore.Strict, "40%")},
		Nodes:    slices.Collect(maps.Values(w.nodes)),
		Pods:     []*v1.Pod{w.pods["web-001"], w.pods["web-002"], elsewhere},
	}), "only the pod of that name and namespace went")
}

// Each operation tells of the policies whose spec or counts it has changed, each once; and of no others.
func TestSubscribe(t *testing.T) {
	w := newWorld(t)
	var told []string
	cancel := w.Subscribe(func(key types.NamespacedName) {
		w.Policy(key) // the lock must be free
		told = append(told, key.Name)
	})
	pod := func(edits ...func(*v1.Pod)) *v1.Pod { return newPod("pod", append(edits, controlledBy("rs"))...) }
	canaryPod := func(edits ...func(*v1.Pod)) *v1.Pod {
		return newPod("canary", append(edits, labelled("canary", "true"))...)
	}
	last := newPod("last")
	nothing := []string(nil)

	for _, step := range []struct {
		event string
		do    func()
		want  []string
	}{
		{"a node comes without pods", func() { w.AddNode(newNode("m1", spot)) }, nothing},
		{"a policy comes", func() { w.set(must(policystore.Strict, "50%")) }, []string{"web"}},
		{"a pod comes that no policy selects", func() { w.AddPod(newPod("api", labelled("app", "api"))) }, nothing},
		{"a pod comes", func() { w.AddPod(pod()) }, []string{"web"}},
		{"its status changes", func() { w.AddPod(pod(func(pod *v1.Pod) { pod.Status.Phase = v1.PodRunning })) }, nothing},
		{"it gets an unrelated label", func() { w.AddPod(pod(labelled("new", ""))) }, nothing},
		{"its workload tells its size", func() { w.SetWorkloadSize("rs", 2) }, []string{"web"}},
		{"another workload tells its size", func() { w.SetWorkloadSize("other", 2) }, nothing},
		{"a place is reserved", func() { require.NoError(t, w.AssumePod(pod(), newNode("m1", nil))) }, []string{"web"}},
		{"a second one is refused", func() { require.Error(t, w.AssumePod(newPod("second", controlledBy("rs")), newNode("m1", nil))) }, nothing},
		{"the place is given back", func() { w.ForgetPod(pod()) }, []string{"web"}},
		{"a pod is bound", func() { w.AddPod(pod(onNode("m1"))) }, []string{"web"}},
		{"a pod comes", func() { w.AddPod(canaryPod(onNode("m1"))) }, []string{"web"}},
		{"a policy takes it away", func() { w.set(canary()) }, []string{"canary", "web"}},
		{"the policy is edited", func() { p := canary(); p.TargetSize = nil; w.set(p) }, []string{"canary"}},
		{"an unrelated label of a node changes", func() { w.UpdateNode(newNode("m1", map[string]string{"pool": "spot", "new": ""})) }, nothing},
		{"a node changes group with the pods of both", func() { w.UpdateNode(newNode("m1", nil)) }, []string{"canary", "web"}},
		{"the node goes", func() { w.RemoveNode("m1") }, []string{"canary", "web"}},
		{"a pod is relabelled from one to the other", func() { w.AddPod(newPod("canary")) }, []string{"canary", "web"}},
		{"a pod completes", func() { w.AddPod(newPod("canary", finished)) }, []string{"web"}},
		{"it is deleted", func() { w.RemovePod("canary") }, nothing},
		{"a pod is deleted", func() { w.RemovePod(pod().UID) }, []string{"web"}},
		{"the workload that it had changes its size", func() { w.SetWorkloadSize("rs", 3) }, nothing},
		{"a policy becomes unreadable", func() { w.RejectPolicy(web, assert.AnError) }, []string{"web"}},
		{"policies go", func() { w.RemovePolicy(web); w.RemovePolicy(canary().NamespacedName) }, []string{"canary", "web"}},
		{"the subscription has ended", func() { cancel(); w.set(must(policystore.Strict, "50%")); w.AddPod(last) }, nothing},
	} {
		told = nil
		step.do()
		slices.Sort(told)
		require.Equal(t, step.want, told, step.event)
	}

	w.RemovePod(last.UID)
	w.RemovePod("api")
	w.RemoveWorkload("rs")
	w.RemoveWorkload("other")
}

func TestAssumePod(t *testing.T) {
	t.Run("again, for another node: the pod's own place counts as free", func(t *testing.T) {
		w := newWorld(t, must(policystore.Strict, "1"))
		w.addNodes(10, spot, "m1", "m2")
		w.addNodes(10, nil, "o1")
		w.create(1, onNode("o1"))
		pod := w.pods[w.create(1)[0]]
		for _, step := range []struct{ node, want string }{{"m1", "1/1"}, {"m2", "1/1"}, {"m1", "1/1"}} {
			require.NoError(t, w.AssumePod(pod, newNode(step.node, nil)))
			w.requireSplit(step.want)
		}
		require.Error(t, w.AssumePod(pod, newNode("o1", nil)))
		w.requireSplit("1/1")
	})

	t.Run("before AddPod: the pod qualifies from then on", func(t *testing.T) {
		w := newWorld(t, must(policystore.Strict, "100%"))
		w.addNodes(10, spot, "m1")
		pod := newPod("pod")
		qualifying := func() (n int) {
			info, _ := w.Policy(web)
			for _, cohort := range info.Cohorts {
				n += cohort.Qualifying
			}
			return n
		}
		require.NoError(t, w.AssumePod(pod, newNode("m1", nil)))
		assert.Equal(t, 1, qualifying())
		w.AddPod(pod)
		w.ForgetPod(pod)
		assert.Equal(t, 1, qualifying(), "its event came")

		w.RemovePod(pod.UID)
		require.NoError(t, w.AssumePod(pod, newNode("m1", nil)))
		w.ForgetPod(pod)
		assert.Zero(t, qualifying(), "its event did not come")
	})

	t.Run("for no node", func(t *testing.T) {
		w := newWorld(t, must(policystore.Strict, "100%"))
		for _, node := range []*v1.Node{nil, {}, newNode("", spot)} {
			assert.ErrorContains(t, w.AssumePod(newPod("pod"), node), "default/pod: the node has no name")
			assert.ErrorContains(t, w.ForceAssumePod(newPod("pod"), node), "default/pod: the node has no name")
		}
	})
}

// What a workload wants raises the size of a cohort that it controls alone.
func TestWantedSize(t *testing.T) {
	rs, other, unknown, orphan := controlledBy("rs"), controlledBy("other"), controlledBy("unknown"), controlledBy("")
	type pods = []func(*v1.Pod)
	for name, tc := range map[string]struct {
		size int // that rs wants
		pods pods
		next func(*v1.Pod) // the pod to decide about
		// The sizes of the cohort without and with the next pod.
		without, with int
	}{
		"more than there are":        {10, pods{rs, rs}, rs, 10, 10},
		"fewer than there are":       {2, pods{rs, rs}, rs, 2, 3},
		"none, being scaled down":    {0, pods{rs, rs}, rs, 2, 3},
		"the first pod":              {10, nil, rs, 0, 10},
		"the first pod of no one":    {10, nil, orphan, 0, 1},
		"another's pod is there":     {10, pods{rs, other}, rs, 2, 3},
		"no one's pod is there":      {10, pods{rs, orphan}, rs, 10, 10},
		"another's pod comes":        {10, pods{rs, rs}, other, 10, 3},
		"no one's pod comes":         {10, pods{rs, rs}, orphan, 10, 10},
		"only no one's pod is there": {10, pods{orphan}, rs, 1, 10},
		"two workloads' pods are":    {10, pods{rs, other}, orphan, 2, 3},
		"what is wanted is unknown":  {10, pods{unknown}, unknown, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, must(policystore.Strict, "40%"))
			w.SetWorkloadSize("rs", tc.size)
			w.SetWorkloadSize("other", 20)
			defer w.RemoveWorkload("rs")
			defer w.RemoveWorkload("other")
			var names []string
			for range tc.pods {
				names = append(names, w.create(1)...)
			}
			for i, controller := range tc.pods {
				w.update(controller, names[i]) // adopts the pod
			}
			size := func() int {
				info, _ := w.Policy(web)
				if len(info.Cohorts) == 0 {
					return 0
				}
				require.Equal(t, info.Quota(target, info.Cohorts[0].Size), info.Cohorts[0].Target)
				return info.Cohorts[0].Size
			}
			assert.Equal(t, tc.without, size())
			d, _ := w.Decide(newPod("next", tc.next))
			assert.Equal(t, tc.with, d.Size, "before its event")
			next := w.pods[w.create(1, tc.next)[0]]
			d, _ = w.Decide(next)
			assert.Equal(t, tc.with, d.Size, "after its event")
			assert.Equal(t, tc.with, size())
		})
	}
}
