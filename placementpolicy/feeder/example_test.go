package feeder_test

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/yaml"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/feeder"
	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

const policyManifest = `
apiVersion: placement-policy.scheduling.x-k8s.io/v1alpha1
kind: PlacementPolicy
metadata: {name: web-on-spot, namespace: default, generation: 1}
spec:
  podSelector: {matchLabels: {app: web}}
  nodeSelector: {matchLabels: {pool: spot}}
  policy: {targetSize: 40%}
`

// Example asks where the next pod of an application would go. Instead of the fake clients a program has
// kubernetes.NewForConfig and dynamic.NewForConfig.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client := fake.NewClientset(
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "spot-1", Labels: map[string]string{"pool": "spot"}}},
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "on-demand-1"}},
	)
	policies := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{v1alpha1.Resource(): "PlacementPolicyList"}, policyObject())

	store := policystore.New()
	informers := informers.NewSharedInformerFactory(client, 0)
	f, err := feeder.New(ctx, store, informers, feeder.NewPolicyInformer(policies), feeder.Hooks{})
	if err != nil {
		fmt.Println(err)
		return
	}
	informers.Start(ctx.Done())
	go f.Run(ctx)
	if err := f.WaitForSync(ctx); err != nil {
		fmt.Println(err)
		return
	}

	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "web-1", UID: "uid-1", Labels: map[string]string{"app": "web"},
	}}
	decision, governed := store.Decide(pod)
	fmt.Println(governed, decision.Policy, decision.GroupName(decision.Preferred))
	// Output: true default/web-on-spot other
}

func policyObject() runtime.Object {
	policy := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(policyManifest), &policy.Object); err != nil {
		panic(err)
	}
	return policy
}
