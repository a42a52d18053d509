package v1alpha1_test

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

// What an informer has of a policy becomes what a store takes, with the defaults that an API server would give it.
func ExamplePlacementPolicy_ToPolicy() {
	obj := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(`
apiVersion: placement-policy.scheduling.x-k8s.io/v1alpha1
kind: PlacementPolicy
metadata: {name: web-on-spot, namespace: default}
spec:
  podSelector: {matchLabels: {app: web}}
  nodeSelector: {matchLabels: {pool: spot}}
  policy: {targetSize: 40%}
`), &obj.Object); err != nil {
		panic(err)
	}
	p, err := v1alpha1.FromUnstructured(obj)
	if err != nil {
		panic(err)
	}
	policy, err := p.ToPolicy()
	if err != nil {
		panic(err)
	}
	store := policystore.New()
	if err := store.SetPolicy(policy); err != nil {
		panic(err)
	}

	info, _ := store.Policy(policy.NamespacedName)
	fmt.Println(info.Policy.EnforcementMode, info.Policy.Action, info.Policy.MatchLabelKeys)
	fmt.Println("of 10 pods:", info.Quota(policystore.Target, 10))
	// Output:
	// BestEffort Must [pod-template-hash rollouts-pod-template-hash]
	// of 10 pods: 4
}

// The error names each field that is wrong, as the API server does, and says what to write.
func ExamplePlacementPolicy_ToPolicy_invalid() {
	p := &v1alpha1.PlacementPolicy{}
	p.Namespace, p.Name = "default", "web-on-spot"
	p.Spec.Weight = -1
	_, err := p.ToPolicy()
	fmt.Println(err)
	// Output:
	// invalid placement policy default/web-on-spot: [spec.weight: Invalid value: -1: must be 0 or more, spec.podSelector: Required value: write {} to select everything, spec.nodeSelector: Required value: write {} to select everything]
}
