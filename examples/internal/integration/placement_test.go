package integration

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestModeAndAction(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, mode, action string
		cordoned           string // a group that takes no pods
		onM, onO           int    // of 10 pods
		reason             string // why the rest is pending: a pattern
	}{
		{"StrictMust", "Strict", "Must", "", 4, 6, ""},
		{"StrictMustNot", "Strict", "MustNot", "", 6, 4, ""},
		{"BestEffortMust", "BestEffort", "Must", "", 4, 6, ""},
		{"BestEffortMustNot", "BestEffort", "MustNot", "", 6, 4, ""},
		{
			"E4StrictMustWithoutRoom",
			"Strict",
			"Must",
			"m1 m2",
			0,
			6,
			`web: group other full \(6 of 6 pods; (\d of 10 wanted|10) qualify\)`,
		},
		{
			"E4StrictMustNotWithoutRoom",
			"Strict",
			"MustNot",
			"o1 o2",
			6,
			0,
			`web: group other full \(6 of 6 pods; (\d of 10 wanted|10) qualify\)`,
		},
		{"E4BestEffortMustWithoutRoom", "BestEffort", "Must", "m1 m2", 0, 10, ""},
		{"E4BestEffortMustNotWithoutRoom", "BestEffort", "MustNot", "o1 o2", 10, 0, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			for _, names := range []string{"m1 m2", "o1 o2"} {
				if names == tt.cordoned {
					w.addNodes(names, cordoned)
				} else {
					w.addNodes(names)
				}
			}
			w.setPolicy("web", policySpec(tt.mode, tt.action, "40%"))
			w.deploy("web", 10)
			managed, other := tt.onM, tt.onO
			if tt.action == "MustNot" {
				managed, other = other, managed
			}
			w.requireCounts("web", 10, managed, other)
			assert.Len(t, w.podsOn("m"), tt.onM)
			assert.Len(t, w.podsOn("o"), tt.onO)
			if tt.reason != "" {
				assert.Regexp(
					t,
					"2 placement policy "+w.namespace+"/"+tt.reason,
					w.requirePending("web", 10-tt.onM-tt.onO),
				)
			}
		})
	}
}

// fourOfTen returns a world in which a Deployment of 10 pods is at 4/6 under the policy.
func fourOfTen(t *testing.T, policy string) *world {
	t.Helper()
	w := newWorld(t)
	w.addNodes("m1 o1")
	w.setPolicy("web", policy)
	w.deploy("web", 10)
	w.requireSplit("web", 4, 6)
	return w
}

func TestB4PodThatFinishesAndIsThenDeletedLeavesOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addNodes("m1 o1")
	w.setPolicy("web", strict40)
	w.createPods("web", 10)
	w.requireSplit("web", 4, 6)
	pod := w.podsOn("m")[0]
	w.patchPod(pod, "status: {phase: Succeeded}", "status")
	w.requireSplit("web", 3, 6)
	w.deletePods(pod)
	w.eventually(func(c *assert.CollectT) {
		_, err := w.Client().CoreV1().Pods(w.namespace).Get(w.ctx, pod, metav1.GetOptions{})
		require.True(c, apierrors.IsNotFound(err), err)
	})
	w.createPods("more", 1)
	w.requireSplit("web", 4, 6)
}

func TestB9PodsThatFitOnlyInOneGroupLeaveTheOtherToTheRest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addNodes("m1 o1")
	w.setPolicy("web", policySpec("Strict", "Must", "40%", "matchLabelKeys: []"))
	w.createPods("gpu", 4, onlyOn("o"))
	w.requireCounts("web", 4, 0, 3) // of 4 pods, 1 belongs on m1: so the last one waits
	w.createPods("any", 2)
	w.requireSplit("web", 2, 4)
	w.createPods("more", 4)
	w.requireSplit("web", 4, 6)
}

func TestD4BurstToTenTimesTheSize(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]string{"Strict": strict40, "BestEffort": bestEffort40} {
		t.Run(name, func(t *testing.T) {
			w := fourOfTen(t, policy)
			w.scale("web", 100)
			w.requireSplit("web", 40, 60)
		})
	}
}

func TestG1BestEffortCountsPodsOnFullNodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addNodes("m1", room(4))
	w.deploy("web", 4)
	w.setPolicy("web", bestEffort40)
	w.requireSplit("web", 4, 0)
	w.addNodes("m2 o1")
	w.scale("web", 10)
	w.requireSplit("web", 4, 6)
}

func TestG4BestEffortOutweighsOtherScores(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addNodes("m1 o1")
	w.createPod("ballast", "ballast", onlyOn("m"), cpu("29")) // of 32
	w.requirePlaced("ballast", "m1")
	w.setPolicy("web", bestEffort40)
	w.deploy("web", 10, cpu("100m"))
	w.requireSplit("web", 4, 6)
}

func TestF3HeaviestPolicyGoverns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addNodes("m1 o1")
	w.setPolicy("a", policySpec("Strict", "Must", "40%", "weight: 100"))
	w.setPolicy("b", policySpec("BestEffort", "Must", "80%", "weight: 500"))
	w.deploy("web", 10)
	w.requireSplit("b", 8, 2)
	w.requireSplit("a", 0, 0)
}

func TestF5SameLabelsInAnotherNamespace(t *testing.T) {
	t.Parallel()
	elsewhere := newWorld(t)
	elsewhere.addNodes("o1")
	elsewhere.deploy("web", 10)

	w := fourOfTen(t, strict40)
	elsewhere.requireOn("o1", 10)
	w.scale("web", 20)
	w.requireSplit("web", 8, 12)
}

func TestK4MatchExpressions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addNodes("m1 o1")
	w.setPolicy("web", `{
		enforcementMode: Strict,
		podSelector: {matchExpressions: [{key: app, operator: In, values: [web, site]}]},
		nodeSelector: {matchExpressions: [{key: pool, operator: Exists}]},
		policy: {targetSize: 40%}}`)
	w.deploy("db", 10, onlyOn("m")) // not governed
	w.deploy("web", 10)
	w.requireSplit("web", 4, 6)
	w.deploy("site", 5) // another cohort
	w.requireSplit("web", 4+2, 6+3)
	w.requireOn("m", 4+2+10)
}

func TestDeletedPodsAreReplacedInTheirGroup(t *testing.T) {
	t.Parallel()
	for _, group := range []string{"m", "o"} {
		t.Run(group, func(t *testing.T) {
			w := fourOfTen(t, strict40)
			w.deletePods(w.podsOn(group)[:3]...)
			w.requireSplit("web", 4, 6)
		})
	}
	t.Run("StatefulSet", func(t *testing.T) { // whose new pods have the old names
		w := newWorld(t)
		w.addNodes("m1 o1")
		w.setPolicy("web", strict40)
		_, err := w.Client().AppsV1().StatefulSets(w.namespace).Create(w.ctx, &appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Name: "web"},
			Spec: appsv1.StatefulSetSpec{
				Replicas:            new(int32(10)),
				Selector:            &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
				PodManagementPolicy: appsv1.ParallelPodManagement,
				Template:            w.template("web", nil),
			},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		w.requireSplit("web", 4, 6)
		w.deletePods("web-0", "web-2", "web-4", "web-6", "web-8")
		w.requireSplit("web", 4, 6)
	})
}

func TestB1TerminatingPodsDoNotCount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addNodes("m1 o1")
	w.setPolicy("web", strict40)
	w.deploy("web", 10, func(pod *v1.PodTemplateSpec) { pod.Finalizers = []string{"example.com/drain"} })
	w.requireSplit("web", 4, 6)

	w.addNodes("m2")
	w.patchNode("m1", "spec: {unschedulable: true}")
	drained := w.podsOn("m1")
	require.Len(t, drained, 4)
	w.deletePods(drained...)
	w.requireSplit("web", 4, 6)
	assert.Len(t, w.podsOn("m2"), 4)

	for _, pod := range drained {
		w.patchPod(pod, "metadata: {finalizers: null}")
	}
	w.eventually(func(c *assert.CollectT) {
		pods, err := w.Client().CoreV1().Pods(w.namespace).List(w.ctx, metav1.ListOptions{})
		require.NoError(c, err)
		assert.Len(c, pods.Items, 10)
	})
	w.requireSplit("web", 4, 6)
}

func TestB3FinishedPodsLeaveTheQuota(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addNodes("m1 o1")
	w.setPolicy("web", policySpec("Strict", "Must", "3", "matchLabelKeys: []"))
	_, err := w.Client().BatchV1().Jobs(w.namespace).Create(w.ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "batch"},
		Spec: batchv1.JobSpec{
			Completions: new(int32(3)),
			Parallelism: new(int32(3)),
			Template: w.template(
				"web",
				[]podEdit{func(pod *v1.PodTemplateSpec) { pod.Spec.RestartPolicy = v1.RestartPolicyNever }},
			),
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	w.eventually(func(c *assert.CollectT) {
		pods, err := w.Client().CoreV1().Pods(w.namespace).List(w.ctx, metav1.ListOptions{})
		require.NoError(c, err)
		require.Len(c, pods.Items, 3)
		for _, pod := range pods.Items {
			assert.Equal(c, v1.PodSucceeded, pod.Status.Phase)
			assert.Equal(c, w.nodeName("m1"), pod.Spec.NodeName)
		}
	})
	w.requireSplit("web", 0, 0)

	w.deploy("web", 10)
	w.requireSplit("web", 3, 7)
}

func TestE1RelabelledNodeTakesItsPodsAlong(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addNodes("o1 o2", room(2))
	w.deploy("web", 4)
	w.requireOn("o", 4)
	w.patchNode("o2", "metadata: {labels: {pool: spot}}")
	w.setPolicy("web", policySpec("Strict", "Must", "50%"))
	w.requireSplit("web", 2, 2)
	w.addNodes("m1 o3")
	w.scale("web", 8)
	w.requireSplit("web", 4, 4)
}

func TestE2NodeThatLosesItsLabelLeavesTheGroup(t *testing.T) {
	t.Parallel()
	w := fourOfTen(t, strict40)
	w.addNodes("m2")
	w.patchNode("m1", "metadata: {labels: {pool: null}}")
	w.requireSplit("web", 0, 10)
	w.scale("web", 15)
	w.requireSplit("web", 5, 10)
	assert.Len(t, w.podsOn("m2"), 5)
}

func TestNodeThatComesBackWithItsPods(t *testing.T) {
	t.Parallel()
	w := fourOfTen(t, strict40)
	w.deleteNode("m1")
	w.requireCounts("web", 10, 0, 6)
	w.addNodes("m1")
	w.requireSplit("web", 4, 6)
}

func TestGatedPodsDoNotCountUntilTheyMayBePlaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addNodes("m1 o1")
	w.setPolicy("web", strict40)
	w.createPods("gated", 5, gated)
	w.createPods("web", 5)
	w.requireSplit("web", 2, 3)
	for i := range 5 {
		w.patchPod(fmt.Sprint("gated-", i+1), "spec: {schedulingGates: null}")
	}
	w.requireSplit("web", 4, 6)
}

func TestF1EditedPolicy(t *testing.T) {
	t.Parallel()
	w := fourOfTen(t, strict40)
	w.setPolicy("web", policySpec("Strict", "Must", "80%"))
	w.scale("web", 20)
	w.requireSplit("web", 14, 6)
	w.setPolicy("web", policySpec("Strict", "MustNot", "50%"))
	w.requireSplit("web", 6, 14)
	w.scale("web", 32)
	w.requireSplit("web", 16, 16)
}

func TestF2PolicyDeletedAndCreatedAnew(t *testing.T) {
	t.Parallel()
	w := fourOfTen(t, strict40)
	w.deletePolicy("web")
	w.requireAgreement()
	w.setPolicy("web", strict40)
	w.requireSplit("web", 4, 6)
	w.scale("web", 20)
	w.requireSplit("web", 8, 12)
}

func TestF6RelabelledPodsLeaveThePolicy(t *testing.T) {
	t.Parallel()
	w := fourOfTen(t, strict40)
	for _, pod := range w.podsOn("m")[:2] {
		w.patchPod(pod, "metadata: {labels: {app: debug}}")
	}
	w.requireSplit("web", 4, 6)
	assert.Len(t, w.podsOn("m"), 6)
}

func TestF7PodsOlderThanThePolicyCount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addNodes("o1")
	w.deploy("web", 10)
	w.requireOn("o1", 10)
	w.addNodes("m1")
	w.setPolicy("web", strict40)
	w.requireSplit("web", 0, 10)
	w.scale("web", 20)
	w.requireSplit("web", 8, 12)
}

func TestRollingUpdateEndsOnTheTarget(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, size     string
		managed, other int
	}{
		{"C1Percentage", "40%", 4, 6},
		{"C2Number", "2", 2, 8},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.addNodes("m1 o1")
			w.setPolicy("web", policySpec("Strict", "Must", tt.size))
			w.deployWith("web", 10, rollingUpdate(3, 2))
			w.requireSplit("web", tt.managed, tt.other)
			w.rollOut("web")
			w.requireSplit("web", tt.managed, tt.other)
		})
	}
}

// TestC3 has no room for new pods in the other group, which is full of old ones: only because the Deployment wants 5
// pods may the first new one go to M.
func TestC3RolloutWithoutRoomInTheOtherGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	// A ReplicaSet removes pods from the nodes with the most pods first: so here from the other group.
	w.addNodes("o1", room(3))
	w.addNodes("m1", room(2))
	w.addNodes("m2", room(1))
	w.setPolicy("web", strict40)
	w.deployWith("web", 5, rollingUpdate(1, 0))
	w.requireSplit("web", 2, 3)
	w.rollOut("web")
	w.requireSplit("web", 2, 3)
}

// TestN4OrphanedReplicaSet deletes a Deployment without its ReplicaSet, whose annotation goes on saying what the
// Deployment wanted.
func TestN4OrphanedReplicaSet(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addNodes("o1", room(1))
	w.addNodes("m1", room(10))
	w.setPolicy("web", strict40)
	w.deploy("web", 10)
	w.requireCounts("web", 10, 4, 1)

	orphan := metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationOrphan)}
	require.NoError(t, w.Client().AppsV1().Deployments(w.namespace).Delete(w.ctx, "web", orphan))
	replicaSets := w.Client().AppsV1().ReplicaSets(w.namespace)
	var orphaned appsv1.ReplicaSet
	w.eventually(func(c *assert.CollectT) {
		list, err := replicaSets.List(w.ctx, metav1.ListOptions{})
		require.NoError(c, err)
		require.Len(c, list.Items, 1)
		require.Empty(c, list.Items[0].OwnerReferences)
		orphaned = list.Items[0]
	})
	require.Equal(t, "10", orphaned.Annotations["deployment.kubernetes.io/desired-replicas"])
	scale := func(replicas int) {
		patch := toJSON(t, fmt.Sprintf("spec: {replicas: %d}", replicas))
		_, err := replicaSets.Patch(w.ctx, orphaned.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		require.NoError(t, err)
	}
	scale(0)
	w.requireCounts("web", 0, 0, 0)
	scale(4)
	w.requireCounts("web", 4, 1, 1)
	assert.Contains(t, w.requirePending("web", 2), "group target full (1 of 1 pods; 4 qualify)")
}

func rollingUpdate(maxSurge, maxUnavailable int32) appsv1.DeploymentStrategy {
	return appsv1.DeploymentStrategy{
		Type: appsv1.RollingUpdateDeploymentStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDeployment{
			MaxSurge:       new(intstr.FromInt32(maxSurge)),
			MaxUnavailable: new(intstr.FromInt32(maxUnavailable)),
		},
	}
}

// TestN7NominationsFromOutside has pods that an autoscaler, or a queue of workloads, has nominated for one node while
// they were gated. The scheduler tries a nominated node alone, before it scores any.
func TestN7NominationsFromOutside(t *testing.T) {
	t.Parallel()
	for _, node := range []string{"o1", "m1"} {
		t.Run(node, func(t *testing.T) {
			w := newWorld(t)
			w.addNodes("m1 o1")
			w.setPolicy("web", bestEffort40)
			w.createPods("web", 10, gated)
			for i := range 10 {
				w.patchPod(fmt.Sprintf("web-%d", i+1), "status: {nominatedNodeName: "+w.nodeName(node)+"}", "status")
			}
			for i := range 10 {
				w.patchPod(fmt.Sprintf("web-%d", i+1), "spec: {schedulingGates: null}")
			}
			w.requireSplit("web", 4, 6)
		})
	}
}

// gated keeps a pod from the scheduler.
func gated(pod *v1.PodTemplateSpec) {
	pod.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/hold"}}
}
