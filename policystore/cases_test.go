package policystore_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

// The scenarios are what users of placement ratios, quotas and topology spread have reported of such tools. Nodes m1
// and m2 are in the target group, o1 is in the other; "4/6" is 4 pods in the target group and 6 in the other.
func TestCases(t *testing.T) {
	strict40, bestEffort40 := must(policystore.Strict, "40%"), must(policystore.BestEffort, "40%")

	// fourOfTen is the state in which many cases start.
	fourOfTen := func(t *testing.T, policies ...policystore.Policy) *world {
		w := newCluster(t, policies...)
		w.create(4, onNode("m1"))
		w.create(6, onNode("o1"))
		return w
	}

	t.Run("A3 pods arrive before their policy", func(t *testing.T) {
		w := fourOfTen(t)
		w.set(strict40)
		w.requireSplit("4/6")
		w.run(10)
		w.requireSplit("8/12")
	})

	t.Run("B1 terminating pods do not count, so their replacements go to the same group", func(t *testing.T) {
		w := fourOfTen(t, strict40)
		w.addNodes(10, spot, "m2")
		w.room["m1"] = 0
		drained := w.on("m1")
		w.update(terminating, drained...)
		w.requireSplit("0/6")
		w.run(4)
		w.requireSplit("4/6")
		w.remove(drained...)
		w.requireSplit("4/6")
	})

	t.Run("B3 finished pods leave the quota", func(t *testing.T) {
		w := newCluster(t, must(policystore.Strict, "3"))
		w.update(finished, w.run(3)...)
		w.requireSplit("0/0")
		w.run(10)
		w.requireSplit("3/7")
	})

	t.Run("B4 a pod that finishes and is then deleted leaves once", func(t *testing.T) {
		w := fourOfTen(t, strict40)
		pod := w.on("m1")[0]
		w.update(finished, pod)
		w.requireSplit("3/6")
		w.remove(pod)
		w.requireSplit("3/6")
	})

	t.Run("B5 a deletion known only from a relist shows the pod as it was last seen", func(t *testing.T) {
		w := fourOfTen(t, strict40)
		pending := w.create(1)[0]
		lastSeen := w.pods[pending]
		w.update(onNode("m1"), pending)
		w.requireSplit("5/6")
		w.RemovePod(lastSeen.UID)
		w.requireSplit("4/6")
	})

	t.Run("B7 a bind that is reported as failed but stored is counted once", func(t *testing.T) {
		w := newCluster(t, strict40)
		w.create(3, onNode("m1"))
		w.create(5, onNode("o1"))
		pods := w.create(2)
		pod := w.pods[pods[0]]
		require.NoError(t, w.AssumePod(pod, newNode("m1", nil)))
		w.requireSplit("4/5")
		w.ForgetPod(pod)
		w.requireSplit("3/5")
		w.update(onNode("m1"), pods[0])
		w.requireSplit("4/5")
		d, _ := w.Decide(w.pods[pods[1]])
		assert.Equal(t, other, d.Preferred)
		assert.False(t, d.Allows(target))
	})

	t.Run("B8 a pod that is deleted while it is reserved leaves nothing", func(t *testing.T) {
		w := newCluster(t, strict40)
		w.create(3, onNode("m1"))
		w.create(6, onNode("o1"))
		name := w.create(1)[0]
		pod := w.pods[name]
		reserve := func() { require.NoError(t, w.AssumePod(pod, newNode("m1", nil))) }
		unreserve := func() { w.ForgetPod(pod) }
		remove := func() { w.RemovePod(pod.UID) }
		for _, order := range [][]func(){
			{reserve, remove, unreserve},
			{reserve, unreserve, remove},
			{remove, reserve, unreserve}, // the delete came while the pod was in its scheduling cycle
		} {
			w.AddPod(pod)
			for _, event := range order {
				event()
			}
			w.requireSplit("3/6")
			info, _ := w.Policy(web)
			assert.Equal(t, 9, info.Cohorts[0].Qualifying)
		}
	})

	t.Run("B9 a pod that fits only in one group leaves its place in the other to the next", func(t *testing.T) {
		w := newCluster(t, strict40)
		w.relabelNode("o1", map[string]string{"gpu": "true"})
		w.create(4, func(pod *v1.Pod) { pod.Spec.NodeSelector = map[string]string{"gpu": "true"} })
		w.create(6)
		assert.Empty(t, w.schedule())
		w.requireSplit("4/6")
	})

	// rollout replaces the policy's pods, in the given order, by those of a new revision.
	rollout := func(w *world, old []string, surge, unavailable int, edits ...func(*v1.Pod)) {
		w.t.Helper()
		size := len(old)
		var fresh []string
		for len(old) > 0 || len(fresh) < size {
			before := fmt.Sprint(old, fresh)
			fresh = append(fresh, w.run(min(size-len(fresh), size+surge-len(fresh)-len(old)), edits...)...)
			available := len(w.on("m1")) + len(w.on("o1"))
			surplus := min(len(old), available-(size-unavailable))
			w.remove(old[:surplus]...)
			old = old[surplus:]
			require.NotEqual(w.t, before, fmt.Sprint(old, fresh), "the rollout is stuck")
		}
	}
	const revision = "pod-template-hash"
	for name, tc := range map[string]struct{ size, want string }{
		"C1 a percentage holds for each revision":       {"40%", "4/6"},
		"C2 an absolute number holds for each revision": {"2", "2/8"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, reversed := range []bool{false, true} { // the old pods of either group go first
				w := newCluster(t, must(policystore.Strict, tc.size))
				w.run(10, labelled(revision, "old"))
				w.requireSplit(tc.want)
				old := slices.Concat(w.on("m1"), w.on("o1"))
				if reversed {
					slices.Reverse(old)
				}
				rollout(w, old, 3, 2, labelled(revision, "new"))
				w.requireSplit(tc.want)
			}
		})
	}

	t.Run("C3 the first pod of a revision may go to the target group if the other is full of old pods", func(t *testing.T) {
		w := newWorld(t, strict40)
		w.addNodes(3, spot, "m1")
		w.addNodes(3, nil, "o1")
		w.run(5, labelled(revision, "old"))
		w.requireSplit("2/3")
		w.SetWorkloadSize("new-rs", 5)
		defer w.RemoveWorkload("new-rs")
		rollout(w, slices.Concat(w.on("o1"), w.on("m1")), 1, 0, labelled(revision, "new"), controlledBy("new-rs"))
		w.requireSplit("2/3")
	})

	t.Run("D1 small numbers are rounded down in the target group", func(t *testing.T) {
		mustNot60 := must(policystore.Strict, "60%")
		mustNot60.Action = policystore.MustNot
		for i, want := range []struct{ must, mustNot string }{
			{"0/1", "0/1"}, {"0/2", "1/1"}, {"1/2", "1/2"}, {"1/3", "2/2"}, {"2/3", "3/2"},
		} {
			w := newCluster(t, strict40)
			w.run(i + 1)
			w.requireSplit(want.must)
			w = newCluster(t, mustNot60)
			w.run(i + 1)
			w.requireSplit(want.mustNot)
		}
	})

	t.Run("N6 a pod that fits one group only takes the place there that another one gives up", func(t *testing.T) {
		bestEffort40 := must(policystore.BestEffort, "40%")
		for _, tc := range []struct {
			policy           policystore.Policy
			restarted, freed string
		}{{strict40, "2/3", "2/3"}, {bestEffort40, "3/3", "2/3"}} {
			w := newWorld(t, tc.policy)
			w.addNodes(10, spot, "m1")
			w.addNodes(10, nil, "o1")
			ofSet, onVolume := controlledBy("db"), func(pod *v1.Pod) { pod.Spec.NodeSelector = spot }
			w.SetWorkloadSize("db", 5)
			defer w.RemoveWorkload("db")
			w.run(3, ofSet, onNode("o1"))
			db := w.run(2, ofSet, onNode("m1"), onVolume)
			w.requireSplit("2/3")

			w.SetWorkloadSize("db", 6)
			w.remove(db[0])
			newer := w.run(1, ofSet)
			w.requireSplit("2/3") // the newer pod is in the target group
			w.run(1, ofSet, onVolume)
			w.requireSplit(tc.restarted)
			w.remove(newer...)
			w.schedule()
			w.bind()
			w.requireSplit(tc.freed)
		}
	})

	for end, fromTarget := range map[string]int{"4/1": 0, "0/5": 4, "2/3": 2} {
		t.Run("D2 a scale-in to "+end+" shows, and is repaired by the next scale-out", func(t *testing.T) {
			w := fourOfTen(t, strict40)
			w.remove(w.on("m1")[:fromTarget]...)
			w.remove(w.on("o1")[:5-fromTarget]...)
			w.requireSplit(end)
			info, _ := w.Policy(web)
			assert.Equal(t, 2, info.Cohorts[0].Target)
			w.run(5)
			w.requireSplit("4/6")
		})
	}

	t.Run("D3 deletion costs, whenever they are written, change nothing that counts", func(t *testing.T) {
		w := fourOfTen(t, strict40)
		told := 0
		defer w.Subscribe(func(types.NamespacedName) { told++ })()
		w.update(func(pod *v1.Pod) {
			pod.Annotations = map[string]string{"controller.kubernetes.io/pod-deletion-cost": "-1"}
		}, w.on("m1")...)
		assert.Zero(t, told)
		w.requireSplit("4/6")
	})

	t.Run("D4 a burst, and small batches, while binds are in flight", func(t *testing.T) {
		w := fourOfTen(t, strict40)
		w.run(90)
		w.requireSplit("40/60")

		w = newCluster(t, strict40)
		for _, batch := range []int{1, 2, 4, 3} {
			w.create(batch)
			w.schedule()
		}
		w.requireSplit("4/6")
		w.bind()
		w.requireSplit("4/6")
	})

	t.Run("E1 a node that is labelled brings its pods into the target group", func(t *testing.T) {
		w := newWorld(t)
		w.addNodes(10, nil, "n1", "n3")
		w.create(2, onNode("n1"))
		w.create(2, onNode("n3"))
		w.relabelNode("n3", spot)
		w.set(must(policystore.Strict, "50%"))
		w.requireSplit("2/2")
		w.run(4)
		w.requireSplit("4/4")
	})

	t.Run("E2 a node that loses its label takes its pods out of the target group", func(t *testing.T) {
		w := fourOfTen(t, strict40)
		w.addNodes(10, spot, "m2")
		w.relabelNode("m1", nil)
		w.requireSplit("0/10")
		w.room["m1"] = 0
		w.run(5)
		w.requireSplit("5/10")
	})

	for name, spotNode := range map[string]bool{
		"E4 all nodes of the target group are cordoned": true,
		"I2 the target group has no node":               false,
	} {
		setup := func(t *testing.T, policy policystore.Policy) *world {
			w := newWorld(t, policy)
			w.addNodes(10, nil, "o1")
			if spotNode {
				w.addNodes(0, spot, "m1")
			}
			w.create(10)
			return w
		}
		t.Run(name+": Strict keeps its share pending", func(t *testing.T) {
			w := setup(t, strict40)
			pending := w.schedule()
			assert.Len(t, pending, 4)
			w.requireSplit("0/6")
			d, _ := w.Decide(w.pods[pending[0]])
			assert.Equal(t, "placement policy default/web: group other full (6 of 6 pods; 10 qualify)", d.Reason(other))
			w.addNodes(10, spot, "m2")
			w.schedule()
			w.requireSplit("4/6")
		})
		t.Run(name+": BestEffort uses the other", func(t *testing.T) {
			w := setup(t, bestEffort40)
			assert.Empty(t, w.schedule())
			w.requireSplit("0/10")
		})
	}

	t.Run("F1 an edited target holds at once", func(t *testing.T) {
		w := fourOfTen(t, strict40)
		w.set(must(policystore.Strict, "80%"))
		w.run(10)
		w.requireSplit("14/6")
	})

	t.Run("F2 a policy that is deleted and made again counts what runs", func(t *testing.T) {
		w := fourOfTen(t, strict40)
		w.RemovePolicy(web)
		w.set(strict40)
		w.run(10)
		w.requireSplit("8/12")
	})

	t.Run("F3 of several policies that select a pod the heaviest holds", func(t *testing.T) {
		light, heavy := must(policystore.Strict, "40%"), must(policystore.Strict, "80%")
		light.Name, light.Weight, heavy.Weight = "light", 100, 500
		w := newCluster(t, light, heavy)
		w.run(10)
		w.requireSplit("8/2")
	})

	t.Run("F5 pods of another namespace do not count", func(t *testing.T) {
		w := newCluster(t, strict40)
		w.create(10, inNamespace("elsewhere"), onNode("o1"))
		w.run(10)
		w.requireSplit("4/6")
	})

	t.Run("F6 pods that are relabelled leave the policy", func(t *testing.T) {
		w := fourOfTen(t, strict40)
		w.update(labelled("app", "debug"), w.on("m1")[:2]...)
		w.requireSplit("2/6")
		w.run(2)
		w.requireSplit("4/6")
	})

	t.Run("F7 pods that are older than the policy count", func(t *testing.T) {
		w := newCluster(t)
		w.create(10, onNode("o1"))
		w.set(strict40)
		w.run(10)
		w.requireSplit("8/12")
	})

	t.Run("G1 pods count on nodes that are full", func(t *testing.T) {
		w := newCluster(t, bestEffort40)
		w.create(4, onNode("m1"))
		w.room["m1"] = 4
		w.addNodes(8, spot, "m2")
		w.run(6)
		w.requireSplit("4/6")
	})

	t.Run("K3 what is left out means BestEffort and Must", func(t *testing.T) {
		w := fourOfTen(t, must("", "40%"))
		d, _ := w.Decide(w.pods[w.create(1)[0]])
		assert.Equal(t, other, d.Preferred)
		assert.Equal(t, other, d.GroupOf(nil))
		assert.True(t, d.Allows(target), "full, but not Strict")
	})

	t.Run("K4 matchExpressions are honoured", func(t *testing.T) {
		policy := strict40
		policy.PodSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "In", Values: []string{"web"}}}}
		policy.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "pool", Operator: "Exists"}}}
		w := newCluster(t, policy)
		w.create(10, labelled("app", "api"), onNode("o1"))
		w.run(10)
		w.requireSplit("4/6")
	})

	t.Run("L4 everything at once", func(t *testing.T) {
		w := newCluster(t)
		w.create(10)
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				policy := must(policystore.Strict, "40%")
				policy.Name, policy.Weight = fmt.Sprint("policy-", i%5), int32(i%3)
				for _, pod := range w.pods {
					_ = w.SetPolicy(policy)
					if d, governed := w.Decide(pod); governed && d.Allows(target) {
						_ = w.AssumePod(pod, newNode("m1", nil)) // another may have been faster
					}
					w.UpdatePod(nil, pod)
					for _, key := range w.Policies() {
						info, _ := w.Policy(key)
						for _, cohort := range info.Cohorts {
							assert.LessOrEqual(t, cohort.Managed+cohort.Other, cohort.Qualifying)
							for uid := range cohort.ManagedPods.All() {
								cohort.QualifyingPods.Has(uid)
							}
						}
					}
					w.ForgetPod(pod)
					w.RemovePod(pod.UID)
					w.RemovePolicy(policy.NamespacedName)
				}
			})
		}
		wg.Wait()
	})
}
