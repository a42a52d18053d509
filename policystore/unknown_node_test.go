package policystore_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

// A scheduling cycle may see a node that the store has yet to hear of.

func TestStrictHoldsOnANodeThatIsNotKnownYet(t *testing.T) {
	w := newWorld(t, must(policystore.Strict, "4"))
	m1, o1 := newNode("m1", spot), newNode("o1", nil)
	var refused []string
	for _, name := range w.create(10) {
		if w.AssumePod(w.pods[name], m1) == nil {
			w.reserved[name] = "m1"
		} else {
			refused = append(refused, name)
		}
	}
	w.requireSplit("4/0")
	w.bind()
	w.requireSplit("4/0")
	for _, name := range refused {
		require.NoError(t, w.AssumePod(w.pods[name], o1))
	}
	w.requireSplit("4/6")

	w.addNodes(10, spot, "m1")
	w.addNodes(10, nil, "o1")
	w.requireSplit("4/6")
}

func TestANodesOwnLabelsCountOnceItIsKnown(t *testing.T) {
	w := newWorld(t, must(policystore.Strict, "4"))
	pods := w.create(10)
	require.NoError(t, w.AssumePod(w.pods[pods[0]], newNode("n1", spot)))
	require.NoError(t, w.AssumePod(w.pods[pods[1]], newNode("n1", nil)), "seen in another cycle with other labels")
	w.requireSplit("1/1")

	w.addNodes(10, spot, "n1")
	w.requireSplit("2/0")
	require.NoError(t, w.AssumePod(w.pods[pods[2]], newNode("n1", nil)), "a cycle that is behind")
	w.requireSplit("3/0")

	w.RemoveNode("n1")
	w.requireSplit("0/0")
	require.NoError(t, w.AssumePod(w.pods[pods[3]], newNode("n1", spot)), "a cycle that is behind")
	w.requireSplit("1/0")

	w.addNodes(10, nil, "n1")
	w.requireSplit("0/4")
}

func TestLabelsOfACycleCountForItsPodOnThatNode(t *testing.T) {
	m1 := newNode("m1", spot)
	for name, leave := range map[string]func(w *world, pod string){
		"let go":         func(w *world, pod string) { w.ForgetPod(w.pods[pod]) },
		"bound to other": func(w *world, pod string) { w.update(onNode("n2"), pod) },
		"confirmed on other": func(w *world, pod string) {
			require.True(w.t, w.ConfirmPod(w.pods[pod], "n2"))
		},
		"gone": func(w *world, pod string) { w.remove(pod) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, must(policystore.Strict, "4"))
			pods := w.create(2, onNode("m1"))
			pod := w.create(1)[0]
			require.NoError(t, w.AssumePod(w.pods[pod], m1))
			w.requireSplit("1/0")
			leave(w, pod)
			w.requireSplit("0/0")
			w.update(onNode("m1"), pods...)
			if w.pods[pod] != nil {
				w.update(onNode("m1"), pod) // as another scheduler may have it
			}
			w.requireSplit("0/0")
		})
	}
}

func TestConfirmPod(t *testing.T) {
	w := newCluster(t, must(policystore.Strict, "50%"))
	pod := newPod("pod")
	assert.False(t, w.ConfirmPod(pod, "m1"), "the store does not know the pod")

	names := w.create(2)
	assert.False(t, w.ConfirmPod(w.pods[names[0]], "m1"), "it has no reservation")
	w.requireSplit("0/0")
	require.NoError(t, w.AssumePod(w.pods[names[0]], w.nodes["m1"]))
	assert.True(t, w.ConfirmPod(w.pods[names[0]], "m1"))
	w.requireSplit("1/0")
	assert.True(t, w.ConfirmPod(w.pods[names[0]], "o1"), "somebody else has bound it there")
	w.requireSplit("0/1")
	assert.True(t, w.IsAssumed(w.pods[names[0]]))

	w.update(onNode("o1"), names[0])
	assert.False(t, w.ConfirmPod(w.pods[names[0]], "m1"), "its event has shown where it is")
	w.requireSplit("0/1")

	require.NoError(t, w.AssumePod(w.pods[names[1]], w.nodes["m1"]))
	gone := w.pods[names[1]]
	w.remove(names[1])
	assert.False(t, w.ConfirmPod(gone, "m1"), "it is gone")
	w.requireSplit("0/1")
}
