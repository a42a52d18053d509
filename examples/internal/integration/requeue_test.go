package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// wakeTimeout is how long a pod may take to be placed once it can be. Without being woken it would take minutes.
const wakeTimeout = 5 * time.Second

// TestRejectedPodIsWoken has a pod that its policy keeps out of the only group that has nodes, because another pod has
// the one place there. It does not run beside other tests: other nodes would make other plugins reject, and so wake,
// the pod.
func TestRejectedPodIsWoken(t *testing.T) {
	policy := func(mode, size string) string { return policySpec(mode, "Must", size, "matchLabelKeys: []") }
	tests := []struct {
		name, size string
		event      func(*world)
	}{
		{"PodDeleted", "1", func(w *world) { w.deletePods("first") }},
		{"PodFinished", "1", func(w *world) { w.patchPod("first", "status: {phase: Succeeded}", "status") }},
		{"PodRelabelled", "1", func(w *world) { w.patchPod("first", "metadata: {labels: {app: debug}}") }},
		{"L5PodsAdded", "50%", func(w *world) { w.createPods("more", 2, onlyOn("o")) }},
		{"PolicyEdited", "1", func(w *world) { w.setPolicy("web", policy("Strict", "2")) }},
		{"PolicyMadeBestEffort", "1", func(w *world) { w.setPolicy("web", policy("BestEffort", "1")) }},
		{"PolicyDeleted", "1", func(w *world) { w.deletePolicy("web") }},
		{
			"PolicyOverruled",
			"1",
			func(w *world) { w.setPolicy("heavy", policySpec("Strict", "Must", "100%", "weight: 1")) },
		},
		{"NodeAdded", "1", func(w *world) { w.addNodes("o1") }},
		{"NodeRelabelled", "1", func(w *world) { w.patchNode("m2", "metadata: {labels: {pool: null}}") }},
		{"NodeRelabelledWithPods", "1", func(w *world) { w.patchNode("m1", "metadata: {labels: {pool: null}}") }},
		{"NodeDeletedWithPods", "1", func(w *world) { w.deleteNode("m1") }},
		{"OwnLabelsChanged", "1", func(w *world) { w.patchPod("waiting", "metadata: {labels: {app: debug}}") }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.addNodes("m1")
			w.createPod("first", "web")
			w.requireOn("m1", 1)
			w.addNodes("m2")
			w.setPolicy("web", policy("Strict", tt.size))
			w.createPod("waiting", "web")
			assert.Contains(t, w.requirePending("web", 1), "web: group target full (1 of 1 pods; 2 qualify)")

			begun := time.Now()
			tt.event(w)
			w.requirePlaced("waiting", "")
			took := time.Since(begun)
			t.Log("placed after", took)
			assert.Less(t, took, wakeTimeout)
		})
	}
}

// TestWaitingPodsFollowANewPolicy has another policy take over from the one that keeps pods out, and let some of them
// in.
func TestWaitingPodsFollowANewPolicy(t *testing.T) {
	heavier := func(size string) string { return policySpec("Strict", "Must", size, "weight: 10") }
	for name, replace := range map[string]func(w *world){
		"HeavierCopy": func(w *world) {
			w.setPolicy("copy", heavier("40%"))
			w.deletePolicy("web")
		},
		"Renamed": func(w *world) {
			w.deletePolicy("web")
			w.setPolicy("copy", heavier("40%"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.addNodes("o1")
			w.addNodes("m1", cordoned)
			w.setPolicy("web", strict40)
			w.deploy("web", 10)
			w.requireCounts("web", 10, 0, 6)
			replace(w)
			w.requireCounts("copy", 10, 0, 6)
			w.requirePending("web", 4)

			begun := time.Now()
			w.setPolicy("copy", heavier("20%"))
			w.requireCounts("copy", 10, 0, 8)
			took := time.Since(begun)
			t.Log("placed after", took)
			assert.Less(t, took, wakeTimeout)
		})
	}
}

func TestL5ScaleUpRaisesTheTarget(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addNodes("m1")
	w.addNodes("o1", cordoned)
	w.setPolicy("web", strict40)
	w.deploy("web", 2)
	w.requirePending("web", 2)
	w.scale("web", 5)
	w.requireCounts("web", 5, 2, 0)
	assert.Contains(t, w.requirePending("web", 3), "web: group target full (")
}

// TestPodsThatCannotBePlacedStayAsleep counts the attempts. It does not run beside other tests: see
// TestRejectedPodIsWoken.
func TestPodsThatCannotBePlacedStayAsleep(t *testing.T) {
	const waiting = 5000
	w := newWorld(t)
	// With its default of 50 requests a second the scheduler would take minutes to say of each pod why it waits.
	w.startScheduler(
		schedulerOptions{
			Config: append(exampleConfig(t, w.namespace), "clientConnection: {qps: 2000, burst: 2000}\n"...),
		},
	)
	attempts := func() int {
		return w.metric("scheduler_schedule_attempts_total", labels.Set{"result": "unschedulable"})
	}
	w.addNodes("m1 m2")
	w.setPolicy("web", policySpec("Strict", "Must", "1", "matchLabelKeys: []"))
	w.createPod("first", "web")
	w.requireOn("m", 1)
	w.createPods("waiting", waiting)
	require.Eventually(t, func() bool { return attempts() >= waiting }, waitTimeout, time.Second)
	w.requirePending("web", waiting)
	assert.Equal(t, waiting, attempts(), "one for each pod")
	failures := waiting
	// When the scheduler has placed a marker, it has seen all that was before.
	requireNoAttempt := func(marker string) {
		t.Helper()
		w.patchNode("m1", "metadata: {labels: {marker: "+marker+"}}")
		w.createPod(marker, "marker", func(pod *v1.PodTemplateSpec) { pod.Spec.NodeSelector["marker"] = marker })
		w.requirePlaced(marker, "m1")
		w.eventually(func(c *assert.CollectT) {
			events, err := w.failedScheduling(marker) // it may be tried before its node's new label is known
			require.NoError(c, err)
			marked := failures
			for _, event := range events {
				marked++
				if event.Series != nil {
					marked += int(event.Series.Count) - 1
				}
			}
			require.Equal(c, marked, attempts())
		})
		failures = attempts()
	}

	// Things happen that let no pod in.
	w.addNodes("m3")
	w.createPod("debug", "debug")
	w.requirePlaced("debug", "m")
	w.patchPod("debug", "metadata: {labels: {app: debug2}}")
	w.deletePods("debug")
	w.patchPod("waiting-1", "metadata: {annotations: {example.com/seen: here}}")
	for i := range 10 { // heartbeats
		w.patchNode("m1", fmt.Sprintf("metadata: {annotations: {example.com/heartbeat: '%d'}}", i))
	}
	requireNoAttempt("marker")
	assert.Len(t, w.podsOn(""), waiting)

	// A place becomes free: one pod is tried, and placed.
	w.deletePods("first")
	w.requireOn("", waiting-1)
	requireNoAttempt("next")
}

// failedScheduling returns the events that say that the pod could not be placed.
func (w *world) failedScheduling(pod string) ([]v1.Event, error) {
	events, err := w.Client().CoreV1().Events(w.namespace).List(w.ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.kind=Pod,involvedObject.name=" + pod + ",reason=FailedScheduling",
	})
	return events.Items, err
}

// TestM1ReasonSaysWhy checks the whole message. It does not run beside other tests, whose nodes would be in it.
func TestM1ReasonSaysWhy(t *testing.T) {
	w := newWorld(t)
	w.addNodes("m1 m2 o1")
	w.setPolicy("web", policySpec("Strict", "Must", "40%", "matchLabelKeys: []"))
	w.createPods("web", 10)
	w.requireSplit("web", 4, 6)
	w.createPod("waiting", "web", onlyOn("m"))
	require.Equal(t, "0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, "+
		"2 placement policy "+w.namespace+"/web: group target full (4 of 4 pods; 11 qualify). "+
		"preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.", w.requirePending("web", 1))
	w.requireCounts("web", 11, 4, 6)
}
