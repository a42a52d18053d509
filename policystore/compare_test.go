package policystore_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

func TestCompareFindsEachDrift(t *testing.T) {
	for _, tc := range []struct {
		name string
		// drift changes what Compare is given, or the store, behind the other's back.
		drift func(w *world, c *policystore.Cluster)
		want  []string
	}{
		{"none", func(*world, *policystore.Cluster) {}, nil},
		{"a reservation is none", func(w *world, c *policystore.Cluster) {
			pod := newPod("reserved")
			w.AddPod(pod)
			w.pods[pod.Name] = pod
			assert.NoError(w.t, w.AssumePod(pod, newNode("o1", nil)))
			c.Pods = append(c.Pods, pod)
		}, nil},
		{"what a scheduling cycle saw of a node that is not known is none", func(w *world, c *policystore.Cluster) {
			pods := w.create(2)
			for _, pod := range pods {
				assert.NoError(w.t, w.AssumePod(w.pods[pod], newNode("o2", nil)))
			}
			w.update(onNode("o2"), pods[1])
			c.Pods = append(c.Pods, w.pods[pods[0]], w.pods[pods[1]])
		}, nil},
		{"gates that a reservation has shown to be gone are none", func(w *world, c *policystore.Cluster) {
			pod := w.pods[w.create(1, gated)[0]]
			assert.NoError(w.t, w.AssumePod(newPod(pod.Name), newNode("o1", nil)))
			c.Pods = append(c.Pods, pod)
		}, nil},
		{"a pod that was missed", func(_ *world, c *policystore.Cluster) {
			c.Pods = append(c.Pods, newPod("missed", onNode("m1")))
		}, []string{
			"pod missed: only the cluster has it",
			"policy default/web, cohort map[]: group target: the store has 4, the cluster 5",
			"policy default/web, cohort map[]: managed: the store has 4, the cluster 5 (alone: missed)",
			"policy default/web, cohort map[]: qualifying: the store has 10, the cluster 11 (alone: missed)",
			"policy default/web, cohort map[]: size: the store has 10, the cluster 11",
		}},
		{"a pod that is gone", func(_ *world, c *policystore.Cluster) {
			c.Pods = slices.DeleteFunc(c.Pods, func(pod *v1.Pod) bool { return pod.Name == "web-001" })
		}, []string{
			"pod web-001: only the store has it",
			"policy default/web, cohort map[]: group other: the store has 6, the cluster 5",
			"policy default/web, cohort map[]: qualifying: the store has 10 (alone: web-001), the cluster 9",
			"policy default/web, cohort map[]: size: the store has 10, the cluster 9",
		}},
		{"a reservation for a pod that is nowhere", func(w *world, _ *policystore.Cluster) {
			pod := newPod("ghost")
			w.pods[pod.Name] = pod
			assert.NoError(w.t, w.AssumePod(pod, newNode("o1", nil)))
		}, []string{
			"pod ghost: only the store has it, reserved for node o1",
			"policy default/web, cohort map[]: group other: the store has 7, the cluster 6",
			"policy default/web, cohort map[]: qualifying: the store has 11 (alone: ghost), the cluster 10",
			"policy default/web, cohort map[]: size: the store has 11, the cluster 10",
		}},
		{"a node that was relabelled", func(_ *world, c *policystore.Cluster) {
			c.Nodes = []*v1.Node{newNode("m1", nil), newNode("o1", nil)}
		}, []string{
			"policy default/web, cohort map[]: group other: the store has 6, the cluster 10",
			"policy default/web, cohort map[]: group target: the store has 4, the cluster 0",
			"policy default/web, cohort map[]: managed: the store has 4 (alone: web-003 web-005 web-008 web-010), the cluster 0",
		}},
		{"a policy that was edited", func(_ *world, c *policystore.Cluster) {
			c.Policies = []policystore.Policy{must(policystore.Strict, "50%")}
		}, []string{"policy default/web: the cluster has another spec"}},
		{"a policy that is gone", func(_ *world, c *policystore.Cluster) {
			c.Policies = nil
		}, []string{"policy default/web: only the store has it"}},
		{"a policy that the store rejects", func(w *world, _ *policystore.Cluster) {
			w.RejectPolicy(web, assert.AnError)
		}, []string{"policy default/web: only the cluster has it"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, must(policystore.Strict, "40%"))
			w.addNodes(100, spot, "m1")
			w.addNodes(100, nil, "o1")
			w.run(10)
			cluster := policystore.Cluster{
				Policies:      []policystore.Policy{must(policystore.Strict, "40%")},
				Nodes:         slices.Collect(maps.Values(w.nodes)),
				Pods:          slices.Collect(maps.Values(w.pods)),
				WorkloadSizes: map[types.UID]int{},
			}
			tc.drift(w, &cluster)
			assert.Equal(t, tc.want, w.Compare(cluster))
		})
	}
}

func TestCompareKnowsWhatWorkloadsWant(t *testing.T) {
	w := newCluster(t, must(policystore.Strict, "40%"))
	w.SetWorkloadSize("rs", 10)
	defer w.RemoveWorkload("rs")
	w.create(1, controlledBy("rs"))
	cluster := policystore.Cluster{
		Policies:      []policystore.Policy{must(policystore.Strict, "40%")},
		Nodes:         slices.Collect(maps.Values(w.nodes)),
		Pods:          slices.Collect(maps.Values(w.pods)),
		WorkloadSizes: map[types.UID]int{"rs": 10},
	}
	assert.Empty(t, w.Compare(cluster))
	cluster.WorkloadSizes["rs"] = 9
	assert.Equal(t, []string{"policy default/web, cohort map[]: size: the store has 10, the cluster 9"}, w.Compare(cluster))
}
