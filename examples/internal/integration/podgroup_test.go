package integration

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// newGangWorld has a scheduler that knows pod groups, a policy, and the PodGroup of a gang.
func newGangWorld(t *testing.T, policy string, minCount int32, priorityClass string) *world {
	t.Helper()
	w := newWorld(t)
	w.startScheduler(schedulerOptions{ExtraArgs: []string{"--feature-gates=GenericWorkload=true"}})
	w.setPolicy("web", policy)
	_, err := w.Client().SchedulingV1beta1().PodGroups(w.namespace).Create(w.ctx, &schedulingv1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Name: "gang"},
		Spec: schedulingv1beta1.PodGroupSpec{
			SchedulingPolicy: schedulingv1beta1.PodGroupSchedulingPolicy{
				Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: minCount},
			},
			PriorityClassName: priorityClass,
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return w
}

func inGang(pod *v1.PodTemplateSpec) {
	pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: new("gang")}
}

func TestGangIsPlacedInTheRatio(t *testing.T) {
	t.Parallel()
	w := newGangWorld(t, policySpec("Strict", "Must", "40%"), 10, "")
	w.addNodes("m1 o1")
	w.createPods("web", 10, inGang)
	w.requireSplit("web", 4, 6)
}

func TestGangIsNotPlacedInPart(t *testing.T) {
	t.Parallel()
	w := newGangWorld(t, policySpec("Strict", "Must", "40%"), 10, "")
	w.addNodes("m1")
	w.addNodes("o1", room(5)) // for one less than belong there
	w.createPods("web", 10, inGang)
	w.requirePending("web", 10)
	w.requireCounts("web", 10, 0, 0)
	w.addNodes("o2")
	w.requireSplit("web", 4, 6)
}

func TestGangPreemptsFromTheSameCohort(t *testing.T) {
	t.Parallel()
	c, err := sharedCluster()
	require.NoError(t, err)
	require.NoError(t, c.Apply(t.Context(), []byte(priorityClasses)))
	w := newGangWorld(t, policySpec("Strict", "Must", "4", "matchLabelKeys: []"), 4, "high")
	w.addNodes("m1 o1")
	w.createPods("low", 4, onlyOn("m"))
	w.requireSplit("web", 4, 0)
	w.createPods("high", 4, inGang, priority("high"), onlyOn("m"))
	w.eventually(func(c *assert.CollectT) {
		pods, err := w.listPodsOn("m1")
		require.NoError(c, err)
		assert.ElementsMatch(c, []string{"high-1", "high-2", "high-3", "high-4"}, pods)
	})
	w.requireSplit("web", 4, 0)
}
