package integration

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestScorePointsAlone has a profile without the plugin's filter: a Strict policy is weaker then, but not void, and the
// operator is told.
func TestScorePointsAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startScheduler(schedulerOptions{Config: fmt.Appendf(nil, `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: %s
  plugins:
    preScore: {enabled: [{name: placementpolicy}]}
    score: {enabled: [{name: placementpolicy, weight: 20}]}
    reserve: {enabled: [{name: placementpolicy}]}
`, w.namespace)})
	w.addNodes("m1 o1")
	w.setPolicy("web", strict40)
	w.deploy("web", 10)
	w.requireSplit("web", 4, 6)

	w.eventually(func(c *assert.CollectT) {
		events, err := w.policyEvents("web")
		require.NoError(c, err)
		require.Len(c, events, 1)
		assert.Equal(c, "NotFiltered", events[0].Reason)
		assert.Equal(c, "Warning", events[0].Type)
		assert.Equal(
			c,
			"it acts as BestEffort: scheduler profile "+w.namespace+" enables plugin placementpolicy without its preFilter and filter points",
			events[0].Message,
		)
	})
	assert.Equal(t, 1, w.metric("scheduler_placement_policy_not_filtered_total", nil))

	w.patchNode("m1", "spec: {unschedulable: true}")
	w.scale("web", 20)
	w.requireSplit("web", 4, 16)
}

// policyEvents returns the events on a policy.
func (w *world) policyEvents(name string) ([]v1.Event, error) {
	list, err := w.Client().CoreV1().Events(w.namespace).List(w.ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.kind=PlacementPolicy,involvedObject.name=" + name,
	})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// TestTwoProfiles has the pods of one cohort scheduled under two names.
func TestTwoProfiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startScheduler(schedulerOptions{Config: fmt.Appendf(nil, `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: %[1]s
  plugins: &plugins
    multiPoint: {enabled: [{name: placementpolicy, weight: 20}]}
- schedulerName: %[1]s-second
  plugins: *plugins
`, w.namespace)})
	w.addNodes("m1 o1")
	w.setPolicy("web", policySpec("Strict", "Must", "40%", "matchLabelKeys: []"))
	w.createPods("first", 10)
	w.createPods("second", 10, func(pod *v1.PodTemplateSpec) { pod.Spec.SchedulerName = w.namespace + "-second" })
	w.requireSplit("web", 8, 12)
}
