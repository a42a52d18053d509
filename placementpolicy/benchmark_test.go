package placementpolicy

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	framework "github.com/placement-policy/scheduler-plugin/internal/fwktest"
	"github.com/placement-policy/scheduler-plugin/internal/scale"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

// runAtScale runs the benchmark on a plugin with a store of each size.
func runAtScale(b *testing.B, benchmark func(b *testing.B, w *world, c *scale.Cluster)) {
	scale.Run(b, func(b *testing.B, c *scale.Cluster) {
		w := newUnsyncedWorldOn(b, c.Store)
		w.sync()
		benchmark(b, w, c)
	})
}

// pendingPod is a pod of the cluster's first application, whose target group is full.
func (w *world) pendingPod(c *scale.Cluster) *v1.Pod {
	pod := c.PendingPod(0)
	w.pods.set(pod)
	w.t.Cleanup(func() { w.pods.remove(pod) })
	return pod
}

func nodeInfoOf(node *v1.Node) fwk.NodeInfo {
	info := framework.NewNodeInfo()
	info.SetNode(node)
	return info
}

func TestFilterAndScoreDoNotAllocate(t *testing.T) {
	for name, policy := range map[string]string{"both groups are open": strict40, "one group is open": strict0, "nodes may be in no group": strictThree} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.setPolicy("web-on-spot", policy)
			pod := w.addPods(10)[0]
			node := w.nodeInfo("o1")
			state, _ := w.preFilter(pod)
			require.True(t, w.PreScore(w.ctx, state, pod, nil).IsSuccess())
			assert.Zero(t, testing.AllocsPerRun(100, func() { w.Filter(w.ctx, state, pod, node) }))
			assert.Zero(t, testing.AllocsPerRun(100, func() { _, _ = w.Score(w.ctx, state, pod, node) }))
		})
	}
}

func BenchmarkPreFilter(b *testing.B) {
	runAtScale(b, func(b *testing.B, w *world, c *scale.Cluster) {
		pod := w.pendingPod(c)
		for b.Loop() {
			w.PreFilter(w.ctx, framework.NewCycleState(), pod, nil)
		}
	})
}

func BenchmarkPreFilterUngoverned(b *testing.B) {
	runAtScale(b, func(b *testing.B, w *world, c *scale.Cluster) {
		pod := w.pendingPod(c)
		pod = pod.DeepCopy()
		pod.Labels["app"] = "db"
		w.pods.set(pod)
		for b.Loop() {
			w.PreFilter(w.ctx, framework.NewCycleState(), pod, nil)
		}
	})
}

// The part of PreFilter that is the scheduler's: a new cycle state, and one value written to it.
func BenchmarkCycleStateWrite(b *testing.B) {
	b.ReportAllocs()
	data := &preScoreState{}
	for b.Loop() {
		framework.NewCycleState().Write(preFilterStateKey, data)
	}
}

// The part of Filter and Score that is the scheduler's: a value read from the cycle state.
func BenchmarkCycleStateRead(b *testing.B) {
	b.ReportAllocs()
	state := framework.NewCycleState()
	state.Write(preFilterStateKey, &preScoreState{})
	for b.Loop() {
		_, _ = state.Read(preFilterStateKey)
	}
}

// Of the whole state, with the plugin's part: the scheduler clones it for each node with nominated pods or possible
// victims.
func BenchmarkCycleStateClone(b *testing.B) {
	runAtScale(b, func(b *testing.B, w *world, c *scale.Cluster) {
		state, _ := w.preFilter(w.pendingPod(c))
		for b.Loop() {
			state.Clone()
		}
	})
}

func BenchmarkFilterPerNode(b *testing.B) {
	for name, i := range map[string]int{"closed": 0, "allowed": 2} {
		b.Run(name, func(b *testing.B) {
			runAtScale(b, func(b *testing.B, w *world, c *scale.Cluster) {
				pod, node := w.pendingPod(c), nodeInfoOf(c.Node(i))
				state, _ := w.preFilter(pod)
				require.Equal(b, name == "allowed", w.Filter(w.ctx, state, pod, node).IsSuccess())
				for b.Loop() {
					w.Filter(w.ctx, state, pod, node)
				}
			})
		})
	}
}

// Of a policy with so many groups, one of which is closed: on a node of the last one, for which all selectors are
// asked.
func BenchmarkGroups(b *testing.B) {
	for _, groups := range []int{2, policystore.MaxGroups} {
		w := newWorld(b)
		spec := `{enforcementMode: Strict, podSelector: {matchLabels: {app: web}}, groups: [`
		for i := range groups - 1 {
			spec += fmt.Sprintf(
				"{name: g%d, nodeSelector: {matchLabels: {pool: p%d}}, base: %d, share: 10%%, max: %d}, ",
				i,
				i,
				i,
				i,
			)
		}
		w.setPolicy("web-on-spot", spec+"{name: rest}]}")
		pod, node := w.addPods(100)[0], w.nodeInfo("o1")
		state, _ := w.preFilter(pod)
		require.True(b, w.PreScore(w.ctx, state, pod, nil).IsSuccess())
		for name, run := range map[string]func(){
			"Decide": func() { w.store.Decide(pod) },
			"Filter": func() { w.Filter(w.ctx, state, pod, node) },
			"Score":  func() { _, _ = w.Score(w.ctx, state, pod, node) },
		} {
			b.Run(fmt.Sprintf("%s/groups=%d", name, groups), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					run()
				}
			})
		}
	}
}

func BenchmarkPreScore(b *testing.B) {
	runAtScale(b, func(b *testing.B, w *world, c *scale.Cluster) {
		pod := w.pendingPod(c)
		state, _ := w.preFilter(pod)
		for b.Loop() {
			w.PreScore(w.ctx, state, pod, nil)
		}
	})
}

func BenchmarkScorePerNode(b *testing.B) {
	runAtScale(b, func(b *testing.B, w *world, c *scale.Cluster) {
		pod, node := w.pendingPod(c), nodeInfoOf(c.Node(0))
		state, _ := w.preFilter(pod)
		require.True(b, w.PreScore(w.ctx, state, pod, nil).IsSuccess())
		for b.Loop() {
			_, _ = w.Score(w.ctx, state, pod, node)
		}
	})
}

// What preemption does with each possible victim.
func BenchmarkRemoveAndAddPod(b *testing.B) {
	runAtScale(b, func(b *testing.B, w *world, c *scale.Cluster) {
		pod, victim, node := w.pendingPod(c), podInfo(b, c.Pod(0)), nodeInfoOf(c.Node(0))
		state, _ := w.preFilter(pod)
		for b.Loop() {
			w.RemovePod(w.ctx, state, pod, victim, node)
			w.AddPod(w.ctx, state, pod, victim, node)
		}
	})
}

func BenchmarkReserveAndForget(b *testing.B) {
	runAtScale(b, func(b *testing.B, w *world, c *scale.Cluster) {
		pod, node := w.pendingPod(c), c.Node(2).Name
		w.nodes.set(c.Node(2))
		state, _ := w.preFilter(pod)
		require.True(b, w.Reserve(w.ctx, state, pod, node).IsSuccess())
		for b.Loop() {
			w.Reserve(w.ctx, state, pod, node)
			w.store.ForgetPod(pod)
		}
	})
}

// In a cluster of 5,000 nodes, of which 4,000 are in the group that the pod prefers.
func BenchmarkPreFilterInALargeCluster(b *testing.B) {
	tests := []struct {
		name, cpu string // of the preferred nodes
		workloads int
	}{
		{"room", "4", 1},
		{"full", "500m", 1},
		{"full/workloads=1000", "500m", 1000},
	}
	for _, tt := range tests {
		b.Run(tt.name, func(b *testing.B) {
			w := newWorld(b)
			w.setPolicy("web-on-spot", `{enforcementMode: BestEffort, `+selectors+`, policy: {targetSize: 100%}}`)
			for i := range 4000 {
				w.nodes.set(
					framework.MakeNode().Name(
						fmt.Sprint("t", i),
					).Label(
						"spot",
						"true",
					).Capacity(
						resources(tt.cpu),
					).Obj(),
				)
			}
			for i := range 1000 {
				w.nodes.set(
					framework.MakeNode().Name(fmt.Sprint("x", i)).Label("spot", "false").Capacity(resources("4")).Obj(),
				)
			}
			w.takeSnapshot()
			nodes, err := w.handle.snapshot.NodeInfos().List()
			require.NoError(b, err)
			pods := make([]*v1.Pod, tt.workloads)
			for i := range pods {
				workload := types.UID(fmt.Sprint("rs-", i))
				pods[i] = ownedBy(
					webPod(fmt.Sprint("p", i)),
					workload,
				).Req(
					map[v1.ResourceName]string{v1.ResourceCPU: "1"},
				).Obj()
				w.pods.set(pods[i])
				w.PreFilter(w.ctx, framework.NewCycleState(), pods[i], nodes)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				w.PreFilter(w.ctx, framework.NewCycleState(), pods[i%len(pods)], nodes)
			}
		})
	}
}

// The first pod of a workload has all nodes of its full preferred group looked at; after that it is remembered.
func BenchmarkFirstLookAtAFullGroup(b *testing.B) {
	w := newWorld(b)
	w.setPolicy("web-on-spot", `{enforcementMode: BestEffort, `+selectors+`, policy: {targetSize: 100%}}`)
	for i := range 4000 {
		w.nodes.set(
			framework.MakeNode().Name(fmt.Sprint("t", i)).Label("spot", "true").Capacity(resources("500m")).Obj(),
		)
	}
	w.takeSnapshot()
	pod := webPod("p").Req(map[v1.ResourceName]string{v1.ResourceCPU: "1"}).Obj()
	decision, _ := w.store.Decide(pod)
	for b.Loop() {
		w.narrowing.policyChanged(webOnSpot) // forgets
		require.Nil(b, w.narrowing.nodesFor(w.ctx, pod, decision, w.handle.snapshot.NodeInfos()))
	}
}
