package report_test

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
	clienttesting "k8s.io/client-go/testing"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/feeder"
	"github.com/placement-policy/scheduler-plugin/placementpolicy/report"
	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

// Example keeps the statuses of a cluster's policies up to date. Instead of the fake clients a program has
// kubernetes.NewForConfig and dynamic.NewForConfig.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "spot-1", Labels: map[string]string{"pool": "spot"}}}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1", UID: "1", Labels: map[string]string{"app": "web"}},
		Spec:       v1.PodSpec{NodeName: "spot-1"},
	}
	policy := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(),
		"kind":       "PlacementPolicy",
		"metadata":   map[string]any{"namespace": "default", "name": "web-on-spot", "generation": int64(1)},
		"spec": map[string]any{
			"podSelector":  map[string]any{"matchLabels": map[string]any{"app": "web"}},
			"nodeSelector": map[string]any{"matchLabels": map[string]any{"pool": "spot"}},
		},
	}}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{v1alpha1.Resource(): "PlacementPolicyList"}, policy)
	applied := make(chan string)
	client.PrependReactor("patch", "placementpolicies", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch := action.(clienttesting.PatchAction)
		applied <- patch.GetName() + "/" + patch.GetSubresource()
		return true, policy, nil
	})

	store := policystore.New()
	informers := informers.NewSharedInformerFactory(fake.NewClientset(node, pod), 0)
	policies := feeder.NewPolicyInformer(client)
	f, err := feeder.New(ctx, store, informers, policies, feeder.Hooks{})
	if err != nil {
		fmt.Println(err)
		return
	}
	r := report.New(report.Options{Store: store, Policies: policies.GetStore(), Synced: f.Synced, Client: client})
	r.Schedules() // in a program with leader election when it begins to lead
	informers.Start(ctx.Done())
	go f.Run(ctx)
	go r.Run(ctx)
	fmt.Println("applied", <-applied)
	// Output: applied web-on-spot/status
}
