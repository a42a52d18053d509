package integration

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const priorityClasses = `
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 1000
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: lowest}
value: -1000
`

func priority(class string) podEdit {
	return func(pod *v1.PodTemplateSpec) { pod.Spec.PriorityClassName = class }
}

func cpu(quantity string) podEdit {
	return func(pod *v1.PodTemplateSpec) {
		pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(quantity)}
	}
}

// newPreemptionWorld has two pods of application web and one of another workload, all on m1, and a policy.
func newPreemptionWorld(t *testing.T, size string, edits ...podEdit) *world {
	t.Helper()
	w := newWorld(t)
	require.NoError(t, w.Apply(w.ctx, []byte(priorityClasses)))
	w.addNodes("m1 o1")
	w.createPods("web", 2, append(edits, onlyOn("m"))...)
	w.createPod("bystander", "bystander", onlyOn("m"), priority("lowest"))
	w.requireOn("m1", 3)
	w.setPolicy("web", policySpec("Strict", "Must", size, "matchLabelKeys: []"))
	return w
}

func TestPreemptionEvictsFromTheSameCohort(t *testing.T) {
	t.Parallel()
	w := newPreemptionWorld(t, "2")
	w.createPod("high", "web", onlyOn("m"), priority("high"))
	w.requirePlaced("high", "m1")
	w.requireSplit("web", 2, 0)
	assert.Contains(t, w.podsOn("m1"), "bystander")
}

// TestPreemptionEvictsNobodyInVain has a pod of high priority that its policy keeps out of group M, where evicting pods
// cannot help.
func TestPreemptionEvictsNobodyInVain(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, size string
		edits      []podEdit // of the pods that are there
		reason     string
	}{
		{"NoPlaceAtAll", "0%", nil, "web: group target full (2 of 0 pods; 3 qualify)"},
		{"PodsOfTheSamePriority", "2", []podEdit{priority("high")}, "web: group target full (2 of 2 pods; 3 qualify)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newPreemptionWorld(t, tt.size, tt.edits...)
			w.createPod("high", "web", onlyOn("m"), priority("high"))
			message := w.requirePending("web", 1)
			assert.Contains(t, message, tt.reason)
			assert.Contains(t, message, "Preemption is not helpful for scheduling")
			w.requireCounts("web", 3, 2, 0)
			assert.Contains(t, w.podsOn("m1"), "bystander")
		})
	}
}

func TestH1NominatedPodHoldsItsPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.Apply(w.ctx, []byte(priorityClasses)))
	w.addNodes("m1 o1")
	w.setPolicy("web", policySpec("Strict", "Must", "4", "matchLabelKeys: []"))
	w.createPods("web", 3, onlyOn("m"))
	w.requireSplit("web", 3, 0)
	// The nominated pod has to wait for its victim, which is slow to go.
	w.createPod(
		"victim",
		"victim",
		onlyOn("m"),
		cpu("30"),
		func(pod *v1.PodTemplateSpec) { pod.Finalizers = []string{"example.com/slow"} },
	)
	w.requirePlaced("victim", "m1")
	w.createPod("nominated", "web", onlyOn("m"), cpu("30"), priority("high"))
	w.eventually(func(c *assert.CollectT) {
		pod, err := w.Client().CoreV1().Pods(w.namespace).Get(w.ctx, "nominated", metav1.GetOptions{})
		require.NoError(c, err)
		assert.Equal(c, w.nodeName("m1"), pod.Status.NominatedNodeName)
	})

	w.createPod("later", "web")
	w.requirePlaced("later", "o1")
	w.patchPod("victim", "metadata: {finalizers: null}")
	w.requirePlaced("nominated", "m1")
	w.requireSplit("web", 4, 1)
}
