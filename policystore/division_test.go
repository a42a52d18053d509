package policystore_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

func TestNodesInRemembersAHundredNodeSelectors(t *testing.T) {
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
	for _, d := range decisions[:100] {
		assert.Len(t, w.NodesIn(d, other), 1)
	}
	assert.Empty(t, w.NodesIn(decisions[100], other))
	assert.Len(t, w.NodesIn(decisions[99], other), 1)

	w.addNodes(1, nil, "o2")
	assert.Len(t, w.NodesIn(decisions[100], other), 1)
}
