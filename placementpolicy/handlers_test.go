package placementpolicy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// size returns N for the cohort of the pod.
func (w *world) size(pod *v1.Pod) int {
	decision, governed := w.store.Decide(pod)
	require.True(w.t, governed)
	return decision.Size
}

func TestAPolicyThatIsWrongHarmsOnlyItself(t *testing.T) {
	for name, spec := range map[string]string{
		"invalid":    `{enforcementMode: Strict, podSelector: {}, nodeSelector: {}, weight: 9, policy: {targetSize: 140%}}`,
		"wrong type": `{enforcementMode: Strict, podSelector: {}, nodeSelector: {}, weight: heavy}`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			wrong := types.NamespacedName{Namespace: "default", Name: "wrong"}
			w.setPolicy("web-on-spot", strict40)
			w.setPolicy("wrong", spec)

			decision, _ := w.store.Decide(webPod("p").Obj())
			assert.Equal(t, webOnSpot, decision.Policy)
			info, ok := w.store.Policy(wrong)
			assert.True(t, ok)
			assert.Error(t, info.Err)

			w.setPolicy("wrong", `{enforcementMode: Strict, podSelector: {}, nodeSelector: {}, weight: 9}`)
			decision, _ = w.store.Decide(webPod("p").Obj())
			assert.Equal(t, wrong, decision.Policy, "after it was mended")
		})
	}
}

func TestAGoodPolicyThatBecomesInvalidGovernsNothing(t *testing.T) {
	w := newWorld(t)
	w.setPolicy("web-on-spot", strict40)
	w.setPolicy("web-on-spot", invalid)
	_, governed := w.store.Decide(webPod("p").Obj())
	assert.False(t, governed)
}

func TestDeletes(t *testing.T) {
	for name, remove := range map[string]func(*feed, metav1.Object){
		"event":     (*feed).remove,
		"tombstone": (*feed).lose,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.setPolicy("web-on-spot", strict40)
			rs := replicaSet("rs", 20)
			w.replicaSets.set(rs)
			pods := w.addPodsOn("m1", 2)

			remove(w.pods, pods[0])
			managed, _, qualifying := w.counts()
			assert.Equal(t, []int{1, 1}, []int{managed, qualifying})
			assert.Equal(t, 20, w.size(pods[1]))

			remove(w.replicaSets, rs)
			assert.Equal(t, 1, w.size(pods[1]))

			remove(w.nodes, spotNode("m1"))
			managed, other, qualifying := w.counts()
			assert.Equal(t, []int{0, 0, 1}, []int{managed, other, qualifying})

			remove(w.policies, policyObject(t, "web-on-spot", strict40))
			assert.Empty(t, w.store.Policies())
		})
	}
}

// The last state of an object may not be known when a relist finds it missing.
func TestATombstoneWithoutAnObject(t *testing.T) {
	w := newWorld(t)
	w.setPolicy("web-on-spot", strict40)
	w.addPodsOn("m1", 1)
	for _, f := range []*feed{w.pods, w.replicaSets, w.statefulSets, w.controllers} {
		f.handler.OnDelete(cache.DeletedFinalStateUnknown{Key: "default/unknown"})
	}
	w.nodes.handler.OnDelete(cache.DeletedFinalStateUnknown{Key: "m1"})
	managed, _, _ := w.counts()
	assert.Zero(t, managed, "m1 is known by its name")
	w.policies.handler.OnDelete(cache.DeletedFinalStateUnknown{Key: "default/web-on-spot"})
	assert.Empty(t, w.store.Policies())
}

// A delete and an add of the same name may be merged to one update.
func TestReplacedObjects(t *testing.T) {
	w := newWorld(t)
	w.setPolicy("web-on-spot", strict40)
	w.replicaSets.set(replicaSet("rs", 20))
	pod := w.addPodsOn("m1", 1)[0]

	replaced := ownedBy(webPod(pod.Name).UID("another"), "rs").Obj()
	w.pods.set(replaced)
	managed, _, qualifying := w.counts()
	assert.Equal(t, []int{0, 1}, []int{managed, qualifying}, "the pod that ran is gone, one that waits is there")

	another := replicaSet("another", 30)
	another.Name = "rs"
	w.replicaSets.set(another)
	assert.Equal(t, 1, w.size(replaced), "the ReplicaSet that controls the pod is gone")

	policy := policyObject(t, "web-on-spot", strict80) // of the same generation
	policy.SetUID("another")
	w.policies.set(policy)
	info, _ := w.store.Policy(webOnSpot)
	assert.Equal(t, "80%", info.Policy.TargetSize.String())
}

func TestWorkloadSize(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "default", Name: "workload", UID: "workload"}
	ofTwelve := meta
	ofTwelve.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", UID: "deployment", Controller: new(true)}}
	ofTwelve.Annotations = map[string]string{"deployment.kubernetes.io/desired-replicas": "12"}
	garbled := ofTwelve
	garbled.Annotations = map[string]string{"deployment.kubernetes.io/desired-replicas": "a dozen"}
	three := new(int32(3))
	tests := []struct {
		name string
		set  func(*world)
		want int
	}{
		{"ReplicaSet", func(w *world) {
			w.replicaSets.set(&appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Replicas: three}})
		}, 3},
		{"ReplicaSet of a Deployment, in a rollout", func(w *world) {
			w.replicaSets.set(&appsv1.ReplicaSet{ObjectMeta: ofTwelve, Spec: appsv1.ReplicaSetSpec{Replicas: three}})
		}, 12},
		{"ReplicaSet whose annotation is no number", func(w *world) {
			w.replicaSets.set(&appsv1.ReplicaSet{ObjectMeta: garbled, Spec: appsv1.ReplicaSetSpec{Replicas: three}})
		}, 3},
		{"ReplicaSet of the default size", func(w *world) {
			w.replicaSets.set(&appsv1.ReplicaSet{ObjectMeta: meta})
		}, 1},
		{"StatefulSet", func(w *world) {
			w.statefulSets.set(&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: three}})
		}, 3},
		{"ReplicationController", func(w *world) {
			w.controllers.set(&v1.ReplicationController{ObjectMeta: meta, Spec: v1.ReplicationControllerSpec{Replicas: three}})
		}, 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.setPolicy("web-on-spot", strict40)
			tt.set(w)
			assert.Equal(t, tt.want, w.size(ownedBy(webPod("p"), "workload").Obj()))
		})
	}
}
