package inprocess

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"sigs.k8s.io/yaml"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
)

// Specs of policies for the pods with app=web and the nodes with spot=true.
const (
	selectors    = `podSelector: {matchLabels: {app: web}}, nodeSelector: {matchLabels: {spot: "true"}}`
	strict40     = `{enforcementMode: Strict, ` + selectors + `, policy: {targetSize: 40%}}`
	strict80     = `{enforcementMode: Strict, ` + selectors + `, policy: {targetSize: 80%}}`
	strictTwo    = `{enforcementMode: Strict, ` + selectors + `, policy: {targetSize: 2}}`
	bestEffort40 = `{enforcementMode: BestEffort, ` + selectors + `, policy: {targetSize: 40%}}`
	heavier      = `{enforcementMode: Strict, ` + selectors + `, weight: 3}`
)

func spotNode(name string) *v1.Node     { return st.MakeNode().Name(name).Label("spot", "true").Obj() }
func onDemandNode(name string) *v1.Node { return st.MakeNode().Name(name).Label("spot", "false").Obj() }

// webPod is a pod that the policies of this file select.
func webPod(name string) *st.PodWrapper {
	return st.MakePod().Namespace("default").Name(name).UID(name).Label("app", "web").SchedulerName("default-scheduler")
}

// ownedBy makes the workload with the UID the pod's controller.
func ownedBy(pod *st.PodWrapper, uid types.UID) *st.PodWrapper {
	pod.OwnerReferences = []metav1.OwnerReference{{UID: uid, Controller: new(true)}}
	return pod
}

// replicaSet is one that a Deployment of the given size controls.
func replicaSet(uid types.UID, desired int) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
		Namespace:   "default",
		Name:        string(uid),
		UID:         uid,
		Annotations: map[string]string{"deployment.kubernetes.io/desired-replicas": fmt.Sprint(desired)},
		OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "Deployment", UID: "deployment", Controller: new(true)},
		},
	}}
}

// policyObject returns a placement policy of namespace default as the API server sends it. The spec is YAML.
func policyObject(t testing.TB, name, spec string) *unstructured.Unstructured {
	policy := &unstructured.Unstructured{Object: map[string]any{}}
	var fields any
	require.NoError(t, yaml.Unmarshal([]byte(spec), &fields))
	policy.Object["spec"] = fields
	policy.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("PlacementPolicy"))
	policy.SetNamespace("default")
	policy.SetName(name)
	policy.SetUID(types.UID(name))
	policy.SetGeneration(1)
	return policy
}
