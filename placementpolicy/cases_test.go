package placementpolicy

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	framework "github.com/placement-policy/scheduler-plugin/internal/fwktest"
)

// TestL1CycleCostsTheSameWithMorePods measures work, not time: what a cycle allocates is the same with 500 times the
// pods, and nothing is written in it. (The fake handle panics for a client, as for all that it lacks.)
func TestL1CycleCostsTheSameWithMorePods(t *testing.T) {
	allocations := func(nodes, policies, pods int) float64 {
		w := newL1World(t, nodes, policies, pods)
		pod := webPod("pending").Label("app", "app-0").Obj()
		w.pods.set(pod)
		least := math.Inf(1) // what else runs in the process adds to it
		for range 3 {
			least = min(least, testing.AllocsPerRun(100, func() {
				w.cycle(pod)
				w.store.ForgetPod(pod)
			}))
		}
		return least
	}
	few := allocations(5, 1, 100)
	assert.Less(t, few, 100.0, "one cycle")
	assert.Equal(t, few, allocations(5000, 50, 50_000))
}

func TestL1BurstStaysExact(t *testing.T) {
	const policies, pods, running, burst = 50, 1000, 900, 1000 // the pods are each policy's
	w := newL1World(t, 5000, policies, policies*pods)
	for i := range burst {
		w.pods.set(webPod(fmt.Sprint("burst-", i)).Label("app", "app-0").Obj())
	}
	for i := range burst {
		w.cycle(w.get(fmt.Sprint("burst-", i)))
	}
	for i := range policies {
		want := running
		if i == 0 {
			want += burst
		}
		info, ok := w.store.Policy(l1Policy(i))
		require.True(t, ok)
		require.Len(t, info.Cohorts, 1)
		assert.Equal(t, want*40/100, info.Cohorts[0].Managed, l1Policy(i))
		assert.Equal(t, want*60/100, info.Cohorts[0].Other, l1Policy(i))
	}
}

// l1World is a cluster whose pods belong, in equal parts, to the applications app-0, app-1 and so on, each with a
// Strict policy of its own. Nine of ten run, on the ratio, so that both groups are open to the next.
type l1World struct{ *world }

func newL1World(t *testing.T, nodes, policies, pods int) l1World {
	w := newWorld(t)
	for i := range policies {
		w.setPolicy(l1Policy(i).Name, fmt.Sprintf(
			`{enforcementMode: Strict, podSelector: {matchLabels: {app: app-%d}}, nodeSelector: {matchLabels: {spot: "true"}}, policy: {targetSize: 40%%}}`,
			i,
		))
	}
	for i := range nodes {
		if i%5 < 2 {
			w.nodes.set(spotNode(fmt.Sprint("node-", i)))
		} else {
			w.nodes.set(onDemandNode(fmt.Sprint("node-", i)))
		}
	}
	for i := range pods {
		pod := webPod(fmt.Sprint("pod-", i)).Label("app", fmt.Sprint("app-", i%policies))
		if n := i / policies; n/5%10 < 9 {
			pod.Node(fmt.Sprint("node-", n%nodes))
		}
		w.pods.set(pod.Obj())
	}
	return l1World{w}
}

func l1Policy(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: "default", Name: fmt.Sprint("app-", i)}
}

// cycle is a scheduling cycle for the pod, in which two nodes of each group are filtered and scored. It ends with the
// reservation of a node of the preferred group, and returns that.
func (w l1World) cycle(pod *v1.Pod) (node string) {
	state := framework.NewCycleState()
	_, status := w.PreFilter(w.ctx, state, pod, nil)
	require.True(w.t, status.IsSuccess(), "PreFilter: %v", status)
	require.True(w.t, w.PreScore(w.ctx, state, pod, nil).IsSuccess())
	best := int64(-1)
	for _, name := range []string{"m1", "m2", "o1", "o2"} {
		info := w.nodeInfo(name)
		if !w.Filter(w.ctx, state, pod, info).IsSuccess() {
			continue
		}
		score, status := w.Score(w.ctx, state, pod, info)
		require.True(w.t, status.IsSuccess(), "Score: %v", status)
		if score > best {
			node, best = name, score
		}
	}
	require.True(w.t, w.Reserve(w.ctx, state, pod, node).IsSuccess())
	return node
}
