package placementpolicy

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// newLargeWorld returns a world with 1,000 nodes, 400 of them spot, and 30,000 running pods of 300 workloads under one
// Strict policy, and a pending pod of one of the workloads. It may go to the other group only.
func newLargeWorld(t testing.TB) (w *world, pod *v1.Pod) {
	w = newWorld(t)
	w.setPolicy("web-on-spot", strict40)
	for i := range 1000 {
		name := fmt.Sprint("node-", i)
		if i < 400 {
			w.nodes.set(spotNode(name))
		} else {
			w.nodes.set(onDemandNode(name))
		}
	}
	for i := range 30_000 {
		w.pods.set(webPod(fmt.Sprint("web-", i)).Label("pod-template-hash", fmt.Sprint(i%300)).Node(fmt.Sprint("node-", i%1000)).Obj())
	}
	pod = webPod("pending").Label("pod-template-hash", "0").Obj()
	w.pods.set(pod)
	return w, pod
}

func TestFilterAndScoreDoNotAllocate(t *testing.T) {
	w := newWorld(t)
	w.setPolicy("web-on-spot", strict40)
	pod := w.addPods(10)[0]
	node := w.nodeInfo("o1")
	state, _ := w.preFilter(pod)
	require.True(t, w.PreScore(w.ctx, state, pod, nil).IsSuccess())
	assert.Zero(t, testing.AllocsPerRun(100, func() { w.Filter(w.ctx, state, pod, node) }))
	assert.Zero(t, testing.AllocsPerRun(100, func() { _, _ = w.Score(w.ctx, state, pod, node) }))
}

func BenchmarkPreFilter(b *testing.B) {
	w, governed := newLargeWorld(b)
	for name, pod := range map[string]*v1.Pod{
		"governed":   governed,
		"ungoverned": webPod("db").Label("app", "db").Obj(),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			state := framework.NewCycleState()
			for b.Loop() {
				w.PreFilter(w.ctx, state, pod, nil)
			}
		})
	}
}

func BenchmarkFilterPerNode(b *testing.B) {
	w, pod := newLargeWorld(b)
	state, _ := w.preFilter(pod)
	for name, node := range map[string]string{"allowed": "o1", "full": "m1"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			info := w.nodeInfo(node)
			for b.Loop() {
				w.Filter(w.ctx, state, pod, info)
			}
		})
	}
}

func BenchmarkPreScore(b *testing.B) {
	w, pod := newLargeWorld(b)
	state, _ := w.preFilter(pod)
	b.ReportAllocs()
	for b.Loop() {
		w.PreScore(w.ctx, state, pod, nil)
	}
}

func BenchmarkScorePerNode(b *testing.B) {
	w, pod := newLargeWorld(b)
	state, _ := w.preFilter(pod)
	w.PreScore(w.ctx, state, pod, nil)
	info := w.nodeInfo("o1")
	b.ReportAllocs()
	for b.Loop() {
		_, _ = w.Score(w.ctx, state, pod, info)
	}
}

// Of the plugin's part of the state, which the scheduler clones for each node with nominated pods or possible victims.
func BenchmarkClone(b *testing.B) {
	w, pod := newLargeWorld(b)
	state, _ := w.preFilter(pod)
	data, err := state.Read(preFilterStateKey)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		data.Clone()
	}
}

func BenchmarkAddAndRemovePod(b *testing.B) {
	w, pod := newLargeWorld(b)
	state, _ := w.preFilter(pod)
	victim, node := podInfo(b, w.get("web-0")), w.nodeInfo("node-0")
	b.ReportAllocs()
	for b.Loop() {
		w.RemovePod(w.ctx, state, pod, victim, node)
		w.AddPod(w.ctx, state, pod, victim, node)
	}
}

func BenchmarkReserveAndUnreserve(b *testing.B) {
	w, pod := newLargeWorld(b)
	state, _ := w.preFilter(pod)
	b.ReportAllocs()
	for b.Loop() {
		w.Reserve(w.ctx, state, pod, "o1")
		w.Unreserve(w.ctx, state, pod, "o1")
	}
}

// What a burst of placements costs while many pods of the policy wait, and none of them is let in.
func BenchmarkLookThrough5000WaitingPods(b *testing.B) {
	w, pod := newLargeWorld(b)
	w.setPolicy("web-on-spot", `{enforcementMode: Strict, `+selectors+`, policy: {targetSize: 40}}`) // of a workload's 100
	for i := range 5000 {
		waiting := pod.DeepCopy()
		waiting.Name = fmt.Sprint("waiting-", i)
		waiting.UID = types.UID(waiting.Name)
		w.pods.set(waiting)
	}
	for i := range 5000 {
		w.keepOut(w.get(fmt.Sprint("waiting-", i)))
	}
	b.ReportAllocs()
	for b.Loop() {
		w.wakeup.activate(w.ctx, webOnSpot)
	}
	require.Len(b, w.wakeup.policyOf, 5000)
}
