package policystore_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

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
			infos = append(infos, frozen(s.Policy(key)))
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
		require.Equal(t, frozen(once.Policy(web)), frozen(twice.Policy(web)), event.name)
	}
	policystore.RequireEmpty(t, twice)
}

// frozen makes what is told of a policy comparable: the live sets become sets of what is in them now.
func frozen(info policystore.PolicyInfo, _ bool) policystore.PolicyInfo {
	for i := range info.Cohorts {
		c := &info.Cohorts[i]
		c.QualifyingPods = policystore.NewSet(slices.Sorted(c.QualifyingPods.All())...)
		c.ManagedPods = policystore.NewSet(slices.Sorted(c.ManagedPods.All())...)
	}
	return info
}

// The sets that were handed out go on whatever becomes of the pods and of the policy.
func TestSetsAreLive(t *testing.T) {
	w := newCluster(t, must(policystore.Strict, "100%"))
	name := w.create(1, onNode("m1"), labelled("pod-template-hash", "x"))[0]
	pod := w.pods[name]
	info, _ := w.Policy(web)
	qualifying, managed := info.Cohorts[0].QualifyingPods, info.Cohorts[0].ManagedPods
	for _, step := range []struct {
		event               string
		do                  func()
		qualifying, managed []types.UID
	}{
		{"at first", func() {}, []types.UID{pod.UID}, []types.UID{pod.UID}},
		{"it changes in what it counts by", func() {
			w.update(func(pod *v1.Pod) {
				priority(10)(pod)
				controlledBy("rs")(pod)
				nominatedFor("m1")(pod)
				labelled("new", "")(pod)
			}, name)
		}, []types.UID{pod.UID}, []types.UID{pod.UID}},
		{"it changes cohort", func() { w.update(labelled("pod-template-hash", "y"), name) }, nil, nil},
		{"it comes back", func() { w.update(labelled("pod-template-hash", "x"), name) }, []types.UID{pod.UID}, []types.UID{pod.UID}},
		{"the last pod is replaced", func() { w.RemovePod(pod.UID); w.AddPod(pod) }, []types.UID{pod.UID}, []types.UID{pod.UID}},
		{"the node changes group", func() { w.relabelNode("m1", nil) }, []types.UID{pod.UID}, nil},
		{"the policy breaks", func() { w.RejectPolicy(web, nil) }, nil, nil},
		{"it is mended", func() { w.set(must(policystore.Strict, "50%")) }, []types.UID{pod.UID}, nil},
	} {
		step.do()
		assert.Equal(t, step.qualifying, slices.Collect(qualifying.All()), step.event)
		assert.Equal(t, step.managed, slices.Collect(managed.All()), step.event)
		assert.Equal(t, len(step.qualifying), qualifying.Len(), step.event)
		assert.Equal(t, len(step.managed), managed.Len(), step.event)
		assert.Equal(t, len(step.managed) > 0, managed.Has(pod.UID), step.event)
	}
	_, writable := qualifying.(interface{ Delete(types.UID) bool })
	assert.False(t, writable, "what is handed out must not let others write to the store")
}

// What was passed in or handed out may be changed: it is not what the store goes by.
func TestPoliciesAreCopied(t *testing.T) {
	p := must(policystore.Strict, "40%")
	p.MatchLabelKeys = []string{"a", "b"}
	p.NodeSelector = p.NodeSelector.DeepCopy() // others use its labels
	q := policystore.Policy{
		NamespacedName: types.NamespacedName{Namespace: "default", Name: "groups"},
		PodSelector:    &metav1.LabelSelector{MatchLabels: map[string]string{"app": "groups"}},
		Groups: []policystore.NodeGroup{
			{Name: "spot", NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "spot"}}, Share: "50%", Max: ptr.To(int32(3))},
			{Name: "rest"},
		},
	}
	spoil := func(p policystore.Policy) {
		for i := range p.MatchLabelKeys {
			p.MatchLabelKeys[i] = "spoiled"
		}
		for i := range p.Groups {
			if g := &p.Groups[i]; g.Max != nil {
				*g.Max = 0
				g.NodeSelector.MatchLabels["pool"] = "spoiled"
			}
			p.Groups[i].Name = "spoiled"
		}
		if p.TargetSize != nil {
			*p.TargetSize = intstr.FromInt32(99)
			p.NodeSelector.MatchLabels["pool"] = "spoiled"
		}
		p.PodSelector.MatchLabels["app"] = "spoiled"
	}
	for _, p := range []policystore.Policy{p, q} {
		w := newCluster(t, p)
		before, _ := w.Policy(p.NamespacedName)
		want := before.Policy
		spoil(p)
		spoil(want)
		again, _ := w.Policy(p.NamespacedName)
		text := fmt.Sprintf("%+v %+v %+v", again.Policy, again.Policy.PodSelector, again.Policy.NodeSelector)
		assert.NotContains(t, text, "spoiled")
		for _, info := range w.Snapshot() {
			spoil(info.Policy)
		}
		again, _ = w.Policy(p.NamespacedName)
		assert.NotContains(t, fmt.Sprintf("%+v", again.Policy), "spoiled")
		if p.TargetSize != nil {
			assert.Equal(t, "40%", again.Policy.TargetSize.String())
		} else {
			assert.EqualValues(t, 3, *again.Policy.Groups[0].Max)
			assert.Equal(t, spot, again.Policy.Groups[0].NodeSelector.MatchLabels)
		}
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

// A StatefulSet reuses its pods' names, and an informer may show the old pod's end and the new one's start as one
// update.
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

// A delete event may come without its object: then only the name is known. What other pods have it, or had it, must
// stay.
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
