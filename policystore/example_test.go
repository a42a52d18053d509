package policystore_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

// A policy is tested without a cluster and without mocks: set it, add nodes, and ask where each pod goes.
func Example() {
	s := policystore.New()
	if err := s.SetPolicy(policystore.Policy{
		NamespacedName:  types.NamespacedName{Namespace: "default", Name: "web-on-spot"},
		EnforcementMode: policystore.Strict,
		PodSelector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		NodeSelector:    &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "spot"}},
		TargetSize:      new(intstr.Parse("40%")),
	}); err != nil {
		panic(err)
	}
	nodeIn := map[policystore.Group]string{policystore.Target: "spot-1", policystore.Other: "od-1"}
	s.AddNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "spot-1", Labels: map[string]string{"pool": "spot"}}})
	s.AddNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "od-1"}})

	for i := range 5 {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: fmt.Sprint("web-", i), Labels: map[string]string{"app": "web"},
		}}
		decision, _ := s.Decide(pod)
		if err := s.AssumePod(pod, nodeIn[decision.Preferred]); err != nil {
			panic(err)
		}
		fmt.Println(pod.Name, "goes to the", decision.Preferred, "group")
	}
	// Output:
	// web-0 goes to the other group
	// web-1 goes to the other group
	// web-2 goes to the target group
	// web-3 goes to the other group
	// web-4 goes to the target group
}
