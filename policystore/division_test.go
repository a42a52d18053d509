package policystore_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

// That the nodes are the right ones after each event is for the oracle to check.
func TestNodesInComeInSetsOfAboutEqualSize(t *testing.T) {
	for nodes, want := range map[int][]int{0: nil, 1: {1}, 500: {500}, 501: {250, 251}, 1200: {400, 400, 400}} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			w := newWorld(t, must(policystore.BestEffort, "40%"))
			for i := range nodes {
				w.addNodes(1, spot, fmt.Sprint("m", i))
			}
			d, _ := w.Decide(newPod("pod"))
			var sizes []int
			for _, names := range w.NodesIn(d, target) {
				sizes = append(sizes, names.Len())
			}
			assert.Equal(t, want, sizes)
			assert.Empty(t, w.NodesIn(d, other))
			assert.Empty(t, w.NodesIn(policystore.Decision{}, target), "no policy governs the pod")
		})
	}
}

// Nodes come, change group and go one by one. What was handed out before stays as it is, as somebody may be reading it.
func TestNodesInStayBalancedWhenNodesChange(t *testing.T) {
	w := newWorld(t, must(policystore.BestEffort, "40%"))
	d, _ := w.Decide(newPod("pod"))
	in := map[policystore.Group]sets.Set[string]{target: {}, other: {}}
	check := func() {
		t.Helper()
		for group, want := range in {
			got := sets.Set[string]{}
			nodes := w.NodesIn(d, group)
			for _, names := range nodes {
				got = got.Union(names)
				require.LessOrEqual(t, names.Len(), 500)
				require.Truef(t, names.Len() >= 125 || len(nodes) == 1, "%d nodes in one of %d sets", names.Len(), len(nodes))
			}
			require.Equal(t, want, got)
		}
	}
	check()
	type handedOut struct{ shared, before sets.Set[string] }
	var seen []handedOut
	step := func(i int) {
		if i%100 != 0 {
			return
		}
		check()
		for _, names := range slices.Concat(w.NodesIn(d, target), w.NodesIn(d, other)) {
			seen = append(seen, handedOut{names, names.Clone()})
		}
	}
	name := func(i int) string { return fmt.Sprint("n", i) }
	for i := range 1700 {
		w.addNodes(1, spot, name(i))
		in[target].Insert(name(i))
		step(i)
	}
	for i := range 1500 {
		w.relabelNode(name(i), nil)
		in[target].Delete(name(i))
		in[other].Insert(name(i))
		step(i)
	}
	for i := range 1700 {
		w.RemoveNode(w.nodes[name(i)].Name)
		in[target].Delete(name(i))
		in[other].Delete(name(i))
		step(i)
	}
	check()
	for _, s := range seen {
		require.Equal(t, s.before, s.shared)
	}
}

// Only what changes the division makes another one.
func TestNodesInAreShared(t *testing.T) {
	w := newCluster(t, must(policystore.Strict, "40%"))
	other := must(policystore.BestEffort, "20%")
	other.Name, other.PodSelector = "other", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}
	w.set(other)
	d, _ := w.Decide(newPod("pod"))
	before := w.NodesIn(d, target)
	same := func(d policystore.Decision, g policystore.Group, what string) {
		nodes := w.NodesIn(d, g)
		require.Len(t, nodes, 1, what)
		assert.Equal(t, reflect.ValueOf(before[0]).Pointer(), reflect.ValueOf(nodes[0]).Pointer(), what)
	}
	ofOther, _ := w.Decide(newPod("pod", labelled("app", "db")))
	same(ofOther, target, "another policy")
	w.set(canary())
	w.RemovePolicy(canary().NamespacedName)
	w.RemovePolicy(other.NamespacedName)
	same(d, target, "other policies come and go")
	w.set(must(policystore.Strict, "50%"))
	same(d, target, "an edit")
	w.relabelNode("m1", map[string]string{"pool": "spot", "zone": "a"})
	w.relabelNode("o1", map[string]string{"zone": "a"})
	same(d, target, "an unrelated label")
	w.addNodes(1, nil, "o2")
	same(d, target, "a node of the other group")
	assert.Zero(t, testing.AllocsPerRun(100, func() { w.NodesIn(d, target) }))

	w.RemovePolicy(web)
	assert.Empty(t, w.NodesIn(d, target), "the policy is gone")
}

// However many ways of dividing the nodes there are, whoever asks is told; only the last hundred are remembered.
func TestNodesInForgetsTheDivisionThatWasNotAskedForTheLongestTime(t *testing.T) {
	w := newCluster(t)
	var decisions []policystore.Decision
	for i := range 101 {
		app := map[string]string{"app": fmt.Sprint("app-", i)}
		p := must(policystore.BestEffort, "40%")
		p.Name = app["app"]
		p.PodSelector, p.NodeSelector = &metav1.LabelSelector{MatchLabels: app}, &metav1.LabelSelector{MatchLabels: app}
		w.set(p)
		d, _ := w.Decide(newPod("pod", labelled("app", app["app"])))
		decisions = append(decisions, d)
	}
	asked := func(i int) uintptr {
		nodes := w.NodesIn(decisions[i], other)
		require.Len(t, nodes, 1)
		return reflect.ValueOf(nodes[0]).Pointer()
	}
	first, second := asked(0), asked(1)
	for i := range decisions[2:] {
		asked(2 + i)
		assert.Equal(t, first, asked(0), "it was asked for all the time")
	}
	assert.NotEqual(t, second, asked(1))
}

// Nodes may change much more often than anybody asks.
func TestNodesInAfterManyChanges(t *testing.T) {
	for changes := range 120 {
		w := newWorld(t, must(policystore.BestEffort, "40%"))
		w.addNodes(1, spot, "m0", "m1", "m2")
		d, _ := w.Decide(newPod("pod"))
		require.Len(t, w.NodesIn(d, target), 1)
		for i := range changes {
			w.relabelNode(fmt.Sprint("m", i%3), []map[string]string{spot, nil}[i/3%2])
		}
		for group := range d.Groups() {
			want := sets.Set[string]{}
			for name, node := range w.nodes {
				if d.GroupOf(node.Labels) == group {
					want.Insert(name)
				}
			}
			got := sets.Set[string]{}
			for _, names := range w.NodesIn(d, group) {
				got = got.Union(names)
			}
			require.Equal(t, want, got, "after %d changes", changes)
		}
	}
}
