package policystore_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

func ofDaemonSet(pod *v1.Pod) {
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", UID: "ds", Controller: ptr.To(true)}}
}

// What a pod has come to stays, whatever older object of it is shown.
func TestAnOlderObjectUndoesNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		newer func(*v1.Pod)
		want  string
	}{
		"bound":       {onNode("m1"), "1/0"},
		"terminating": {func(pod *v1.Pod) { onNode("m1")(pod); terminating(pod) }, "0/0"},
		"finished":    {func(pod *v1.Pod) { onNode("m1")(pod); finished(pod) }, "0/0"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCluster(t, must(policystore.Strict, "100%"))
			pod := w.create(1)[0]
			for _, older := range []func(*v1.Pod){func(*v1.Pod) {}, gated, labelled("new", "")} {
				w.AddPod(newPod(pod, tc.newer))
				w.requireSplit(tc.want)
				w.AddPod(newPod(pod, older))
				w.requireSplit(tc.want)
				if tc.want == "0/0" {
					w.AddPod(newPod(pod, onNode("m1")))
					w.requireSplit(tc.want)
				}
			}
		})
	}
}

// A pod that was released for debugging keeps its labels, and loses its controller.
func TestAPodWithoutControllerDoesNotHideWhatTheOthersWorkloadWants(t *testing.T) {
	w := newWorld(t, must(policystore.Strict, "40%"))
	w.addNodes(3, spot, "m1")
	w.addNodes(3, nil, "o1")
	w.run(2, controlledBy("old"), labelled("pod-template-hash", "old"))
	w.run(1, onNode("o1"), labelled("pod-template-hash", "new"))
	w.requireSplit("0/3")
	w.SetWorkloadSize("new", 5)
	defer w.RemoveWorkload("new")
	w.run(1, controlledBy("new"), labelled("pod-template-hash", "new"))
	w.requireSplit("1/3")
}

func TestPodsOfDaemonSetsAreNotGoverned(t *testing.T) {
	everything := must(policystore.Strict, "40%")
	everything.PodSelector = &metav1.LabelSelector{}
	w := newCluster(t, everything)
	governed := w.create(5)
	daemons := w.create(5, ofDaemonSet, onNode("m1"))
	w.requireSplit("0/0")
	for _, name := range []string{daemons[0], "a pod that the store has not seen"} {
		pod := newPod(name, ofDaemonSet)
		_, is := w.Decide(pod)
		assert.False(t, is)
		assert.Equal(t, "a DaemonSet controls it, which has decided on its node", w.WhyNotGoverned(pod))
		require.NoError(t, w.AssumePod(pod, w.nodes["m1"]))
		require.NoError(t, w.ForceAssumePod(pod, w.nodes["m1"]))
		assert.False(t, w.IsAssumed(pod))
		w.requireSplit("0/0")
	}
	d, _ := w.Decide(w.pods[governed[0]])
	assert.Equal(t, []int{5, 2}, []int{d.Size, d.Quota(target)})

	w.update(func(pod *v1.Pod) { pod.OwnerReferences = nil }, daemons[:2]...) // the DaemonSet was deleted without them
	w.requireSplit("2/0")
	w.update(ofDaemonSet, daemons[0]) // one is adopted by another
	w.requireSplit("1/0")

	ofAnotherGroup := newPod("pod", ofDaemonSet)
	ofAnotherGroup.OwnerReferences[0].APIVersion = "apps.example.com/v1"
	_, is := w.Decide(ofAnotherGroup)
	assert.True(t, is)
}

func TestWhyAPodIsNotGoverned(t *testing.T) {
	w := newCluster(t, must(policystore.Strict, "40%"))
	assert.Empty(t, w.WhyNotGoverned(newPod("pod")))
	assert.Empty(t, w.WhyNotGoverned(w.pods[w.create(1)[0]]))
	for name, pod := range map[string]*v1.Pod{
		"other labels":               newPod("pod", labelled("app", "db")),
		"another namespace":          newPod("pod", inNamespace("other")),
		"other labels, and a daemon": newPod("pod", labelled("app", "db"), ofDaemonSet),
	} {
		assert.Equal(t, "no valid policy selects it", w.WhyNotGoverned(pod), name)
	}
}

func TestIdentityOfPods(t *testing.T) {
	anonymous := func(pod *v1.Pod) { pod.Name, pod.UID = "", "" }
	named := func(pod *v1.Pod) { pod.UID = "" }

	t.Run("a pod without UID and name has none", func(t *testing.T) {
		w := newCluster(t, must(policystore.Strict, "40%"))
		pod := newPod("", anonymous)
		w.AddPod(pod)
		w.UpdatePod(nil, pod)
		for _, err := range []error{w.AssumePod(pod, w.nodes["m1"]), w.ForceAssumePod(pod, w.nodes["m1"])} {
			assert.EqualError(t, err, `reserving a node for a pod of namespace "default": the pod has neither UID nor name`)
		}
		assert.False(t, w.ConfirmPod(pod, "m1"))
		assert.False(t, w.ForgetPod(pod))
		assert.False(t, w.IsAssumed(pod))
		info, _ := w.Policy(web)
		assert.Empty(t, info.Cohorts)

		w.create(4)
		for range 2 {
			d, governed := w.Decide(pod)
			assert.True(t, governed)
			assert.Equal(t, 5, d.Size, "as one that is yet to come")
		}
	})

	t.Run("a pod without UID has its namespace and name", func(t *testing.T) {
		w := newCluster(t, must(policystore.Strict, "100%"))
		for _, name := range []string{"a", "b"} {
			require.NoError(t, w.AssumePod(newPod(name, named), w.nodes["m1"]))
			require.NoError(t, w.AssumePod(newPod(name, named), w.nodes["m1"]))
		}
		w.requireSplit("2/0")
		w.ForgetPod(newPod("a", named))
		w.ForgetPod(newPod("b", named))
	})
}

func TestTheZeroStoreIsEmptyAndReady(t *testing.T) {
	uses := map[string]func(s *policystore.Store){
		"Decide":         func(s *policystore.Store) { s.Decide(newPod("pod")) },
		"WhyNotGoverned": func(s *policystore.Store) { s.WhyNotGoverned(newPod("pod")) },
		"Policy":         func(s *policystore.Store) { s.Policy(web) },
		"Policies":       func(s *policystore.Store) { s.Policies() },
		"IsAssumed":      func(s *policystore.Store) { s.IsAssumed(newPod("pod")) },
		"ForgetPod":      func(s *policystore.Store) { s.ForgetPod(newPod("pod")) },
		"ConfirmPod":     func(s *policystore.Store) { s.ConfirmPod(newPod("pod"), "m1") },
		"RemovePod":      func(s *policystore.Store) { s.RemovePod("pod") },
		"RemovePodNamed": func(s *policystore.Store) { s.RemovePodNamed(web) },
		"RemoveNode":     func(s *policystore.Store) { s.RemoveNode("m1") },
		"RemovePolicy":   func(s *policystore.Store) { s.RemovePolicy(web) },
		"RemoveWorkload": func(s *policystore.Store) { s.RemoveWorkload("rs") },
		"Compare":        func(s *policystore.Store) { assert.Empty(t, s.Compare(policystore.Cluster{})) },
		"NodesIn":        func(s *policystore.Store) { s.NodesIn(policystore.Decision{}, policystore.Target) },
		"CouldEvict":     func(s *policystore.Store) { s.CouldEvict(policystore.Decision{}, policystore.Target) },
		"LowerPriority":  func(s *policystore.Store) { s.LowerPriority(policystore.Decision{}) },
		"WithPod":        func(s *policystore.Store) { s.WithPod(policystore.Decision{}, newPod("pod"), nil) },
		"WithoutPod":     func(s *policystore.Store) { s.WithoutPod(policystore.Decision{}, newPod("pod")) },
		"a node without a name": func(s *policystore.Store) {
			s.AddNode(&v1.Node{})
			s.UpdateNode(&v1.Node{})
		},
		"a pod that is nothing":         func(s *policystore.Store) { s.AddPod(&v1.Pod{}) },
		"the size of nothing":           func(s *policystore.Store) { s.SetWorkloadSize("", 5) },
		"a subscriber that is none":     func(s *policystore.Store) { s.Subscribe(nil)() },
		"a policy that is rejected":     func(s *policystore.Store) { s.RejectPolicy(web, nil); s.RemovePolicy(web) },
		"a pod that comes, stays, goes": func(s *policystore.Store) { s.AddPod(newPod("pod")); s.RemovePod("pod") },
	}
	for name, use := range uses {
		t.Run(name, func(t *testing.T) {
			var s policystore.Store
			use(&s)
			var told []types.NamespacedName
			s.Subscribe(nil)
			s.Subscribe(func(key types.NamespacedName) { told = append(told, key) })
			require.NoError(t, s.SetPolicy(must(policystore.Strict, "40%")))
			assert.Equal(t, []types.NamespacedName{web}, told)
			s.RemovePolicy(web)
			policystore.RequireEmpty(t, &s)
		})
	}
}

// Of nominated pods of equal priority only the first by UID holds its place against the others, so that they do not
// block each other; each holds it against pods that are not nominated.
func TestNominatedPodsHoldTheirPlaces(t *testing.T) {
	w := newCluster(t, must(policystore.Strict, "100"))
	nominated := w.create(100, nominatedFor("m1"), priority(10))
	high := w.create(3, nominatedFor("m1"), priority(20))
	low := w.create(3, nominatedFor("m1"), priority(5))
	holds := func(pod *v1.Pod) string {
		d, _ := w.Decide(pod)
		return fmt.Sprintf("%d/%d", d.Placed(target), d.Placed(other))
	}
	assert.True(t, slices.IsSorted(nominated))
	for i, name := range nominated {
		require.Equal(t, fmt.Sprintf("%d/0", 3+i), holds(w.pods[name]), name)
	}
	assert.Equal(t, "103/0", holds(newPod("pod", priority(10))))
	assert.Equal(t, "106/0", holds(newPod("pod")))
	assert.Equal(t, "2/0", holds(w.pods[high[2]]))
	assert.Equal(t, "105/0", holds(w.pods[low[2]]))

	w.update(onNode("o1"), nominated[50]) // it has a place
	assert.Equal(t, "53/1", holds(w.pods[nominated[51]]))
	assert.Equal(t, "53/0", holds(w.pods[nominated[50]]))
	w.update(nominatedFor(""), nominated[40])
	assert.Equal(t, "52/1", holds(w.pods[nominated[51]]))
	assert.Equal(t, "101/1", holds(w.pods[nominated[40]]), "it is nominated no more")
	w.update(priority(20), nominated[99])
	assert.Equal(t, "53/1", holds(w.pods[nominated[51]]))
	w.relabelNode("m1", nil)
	assert.Equal(t, "0/54", holds(w.pods[nominated[51]]))
}
