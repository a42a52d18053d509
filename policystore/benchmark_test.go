package policystore_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/placement-policy/scheduler-plugin/internal/scale"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

// spread returns 1,000 pods made by newPod, of ten workloads that are spread over all of the cluster. At each size that
// many take part in a benchmark in turns, so that what differs between sizes is the size of the store, not of the
// working set.
func spread(c *scale.Cluster, newPod func(i int) *v1.Pod) []*v1.Pod {
	pods := make([]*v1.Pod, 1000)
	for i := range pods {
		pods[i] = newPod(i/100*(c.Pods/10) + i%100)
	}
	return pods
}

// changed returns a copy of each pod with the edits.
func changed(pods []*v1.Pod, edits ...func(*v1.Pod)) []*v1.Pod {
	copies := make([]*v1.Pod, len(pods))
	for i, pod := range pods {
		copies[i] = pod.DeepCopy()
		for _, edit := range edits {
			edit(copies[i])
		}
	}
	return copies
}

// add adds pods to the cluster for the time of the benchmark.
func add(b *testing.B, c *scale.Cluster, pods []*v1.Pod) {
	for _, pod := range pods {
		c.Store.AddPod(pod)
		b.Cleanup(func() { c.Store.RemovePod(pod.UID) })
	}
}

// heartbeat is what a kubelet changes most.
func heartbeat(pod *v1.Pod) {
	pod.ResourceVersion = "2"
	pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
}

// Of a pod that waits in the scheduling queue.
func BenchmarkDecide(b *testing.B) {
	scale.Run(b, func(b *testing.B, c *scale.Cluster) {
		pods := spread(c, c.PendingPod)
		add(b, c, pods)
		for i := 0; b.Loop(); i++ {
			c.Store.Decide(pods[i%len(pods)])
		}
	})
}

// Of a pod whose event has not arrived yet, or that does not exist.
func BenchmarkDecideUntracked(b *testing.B) {
	scale.Run(b, func(b *testing.B, c *scale.Cluster) {
		pods := spread(c, c.PendingPod)
		for i := 0; b.Loop(); i++ {
			c.Store.Decide(pods[i%len(pods)])
		}
	})
}

// Of a pod that waits and that no policy governs.
func BenchmarkDecideUngoverned(b *testing.B) {
	scale.Run(b, func(b *testing.B, c *scale.Cluster) {
		pods := changed(spread(c, c.PendingPod), labelled("app", "db"))
		add(b, c, pods)
		for i := 0; b.Loop(); i++ {
			c.Store.Decide(pods[i%len(pods)])
		}
	})
}

// In a cohort of many pods that are nominated for a node: of a pod that is not, and of one of them. UIDs are random, as
// those of an API server are.
func BenchmarkDecideAmongNominated(b *testing.B) {
	for _, n := range []int{0, 1000, 10_000} {
		var s policystore.Store
		require.NoError(b, s.SetPolicy(must(policystore.Strict, "40%")))
		s.AddNode(newNode("m1", spot))
		s.AddNode(newNode("o1", nil))
		nominated := make([]*v1.Pod, n)
		for i := range nominated {
			nominated[i] = newPod(string(uuid.NewUUID()), nominatedFor([]string{"m1", "o1"}[i%2]))
			s.AddPod(nominated[i])
		}
		pending := newPod("pending")
		s.AddPod(pending)
		for name, pods := range map[string][]*v1.Pod{"pending": {pending}, "nominated": nominated} {
			if len(pods) == 0 {
				continue
			}
			b.Run(fmt.Sprintf("nominated=%d/of=%s", n, name), func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					s.Decide(pods[i%len(pods)])
				}
			})
		}
		if n > 0 {
			b.Run(fmt.Sprintf("nominated=%d/nominate", n), func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					s.RemovePod(nominated[i%n].UID)
					s.AddPod(nominated[i%n])
				}
			})
		}
	}
}

func BenchmarkAssumeAndForgetPod(b *testing.B) {
	scale.Run(b, func(b *testing.B, c *scale.Cluster) {
		pods := spread(c, c.PendingPod)
		add(b, c, pods)
		node := c.Node(2) // of the group that is open
		for i := 0; b.Loop(); i++ {
			if err := c.Store.AssumePod(pods[i%len(pods)], node); err != nil {
				b.Fatal(err)
			}
			c.Store.ForgetPod(pods[i%len(pods)])
		}
	})
}

func BenchmarkAddAndRemovePod(b *testing.B) {
	scale.Run(b, func(b *testing.B, c *scale.Cluster) {
		pods := spread(c, c.PendingPod)
		for i := 0; b.Loop(); i++ {
			c.Store.AddPod(pods[i%len(pods)])
			c.Store.RemovePod(pods[i%len(pods)].UID)
		}
	})
}

// Updates that change what counts: the pod ends, and does not.
func BenchmarkUpdatePodRelevant(b *testing.B) {
	scale.Run(b, func(b *testing.B, c *scale.Cluster) {
		before := spread(c, c.Pod)
		after := changed(before, terminating)
		for i := 0; b.Loop(); i++ {
			c.Store.UpdatePod(before[i%len(before)], after[i%len(before)])
			if i%len(before) == len(before)-1 {
				before, after = after, before
			}
		}
		for _, pod := range spread(c, c.Pod) {
			c.Store.AddPod(pod)
		}
	})
}

func BenchmarkUpdatePodIrrelevant(b *testing.B) {
	scale.Run(b, func(b *testing.B, c *scale.Cluster) {
		before := spread(c, c.Pod)
		after := changed(before, heartbeat)
		for i := 0; b.Loop(); i++ {
			c.Store.UpdatePod(before[i%len(before)], after[i%len(before)])
		}
	})
}

// A policy comes to govern its share of the pods, and loses them.
func BenchmarkSetAndRemovePolicy(b *testing.B) {
	scale.Run(b, func(b *testing.B, c *scale.Cluster) {
		policy := c.Policy(0)
		for b.Loop() {
			c.Store.RemovePolicy(policy.NamespacedName)
			if err := c.Store.SetPolicy(policy); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// A policy is resized, which moves no pod.
func BenchmarkResizePolicy(b *testing.B) {
	scale.Run(b, func(b *testing.B, c *scale.Cluster) {
		policy, resized := c.Policy(0), c.Policy(0)
		resized.TargetSize = nil
		for b.Loop() {
			if err := c.Store.SetPolicy(resized); err != nil {
				b.Fatal(err)
			}
			if err := c.Store.SetPolicy(policy); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// A node changes group, with 110 pods.
func BenchmarkRelabelNode(b *testing.B) {
	scale.Run(b, func(b *testing.B, c *scale.Cluster) {
		before := newNode("relabelled", c.Node(2).Labels)
		after := newNode("relabelled", c.Node(0).Labels)
		c.Store.AddNode(before)
		b.Cleanup(func() { c.Store.RemoveNode(before.Name) })
		add(b, c, changed(spread(c, c.PendingPod)[:110], onNode("relabelled")))
		for b.Loop() {
			c.Store.UpdateNode(after)
			c.Store.UpdateNode(before)
		}
	})
}

// B/pod is what a store holds that has learnt of a whole cluster, per pod. It shares no memory with anything else here;
// in a scheduler it shares strings with the informers' objects, until updates replace these.
func BenchmarkMemory(b *testing.B) {
	for _, kind := range []string{"ReplicaSets", "StatefulSets"} {
		for _, pods := range scale.Pods() {
			b.Run(fmt.Sprintf("%s/pods=%d", kind, pods), func(b *testing.B) {
				bytes := 0
				for b.Loop() {
					before := heap()
					c := &scale.Cluster{Pods: pods, Policies: 1, StatefulSets: kind == "StatefulSets", Store: policystore.New()}
					c.Load()
					bytes += heap() - before
					runtime.KeepAlive(c)
				}
				b.ReportMetric(float64(bytes)/float64(b.N)/float64(pods), "B/pod")
				b.ReportMetric(0, "ns/op") // it would be the time that garbage collection takes
			})
		}
	}
}

// heap returns how many bytes are in use.
func heap() int {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}

// Goroutines read a set and now and then write to it.
func BenchmarkSet(b *testing.B) {
	for _, size := range scale.Pods() {
		for _, writes := range []int{0, 10, 50} {
			b.Run(fmt.Sprintf("items=%d/writes=%d%%", size, writes), func(b *testing.B) {
				b.ReportAllocs()
				var s policystore.Set[types.UID]
				uids := make([]types.UID, size)
				for i := range uids {
					uids[i] = types.UID(fmt.Sprintf("a56cb8d8-7e5f-4a39-9c1d-%012d", i))
					s.Insert(uids[i])
				}
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					for i := 0; pb.Next(); i++ {
						uid := uids[i%1000*(size/1000)]
						switch {
						case i%100 >= writes:
							s.Has(uid)
						case i%2 == 0:
							s.Delete(uid)
						default:
							s.Insert(uid)
						}
					}
				})
			})
		}
	}
}

func TestIrrelevantUpdatesDoNotAllocate(t *testing.T) {
	w := newCluster(t, must(policystore.Strict, "40%"))
	w.run(10, controlledBy("rs"))
	old := w.pods["web-001"]
	pod := old.DeepCopy()
	heartbeat(pod)
	assert.Zero(t, testing.AllocsPerRun(100, func() { w.UpdatePod(old, pod) }), "pod")

	node := w.nodes["m1"].DeepCopy()
	node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	assert.Zero(t, testing.AllocsPerRun(100, func() { w.UpdateNode(node) }), "node")

	w.SetWorkloadSize("rs", 10)
	assert.Zero(t, testing.AllocsPerRun(100, func() { w.SetWorkloadSize("rs", 10) }), "workload")
	w.RemoveWorkload("rs")
}
