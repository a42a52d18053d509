package policystore_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

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
		TargetSize:      ptr.To(intstr.Parse("40%")),
	}); err != nil {
		panic(err)
	}
	nodeIn := map[policystore.Group]*v1.Node{
		policystore.Target: {ObjectMeta: metav1.ObjectMeta{Name: "spot-1", Labels: map[string]string{"pool": "spot"}}},
		policystore.Other:  {ObjectMeta: metav1.ObjectMeta{Name: "od-1"}},
	}
	for _, node := range nodeIn {
		s.AddNode(node)
	}

	for i := range 5 {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: fmt.Sprint("web-", i), Labels: map[string]string{"app": "web"},
		}}
		decision, _ := s.Decide(pod)
		if err := s.AssumePod(pod, nodeIn[decision.Preferred]); err != nil {
			panic(err)
		}
		fmt.Println(pod.Name, "goes to the", decision.GroupName(decision.Preferred), "group")
	}
	// Output:
	// web-0 goes to the other group
	// web-1 goes to the other group
	// web-2 goes to the target group
	// web-3 goes to the other group
	// web-4 goes to the target group
}

// The plan of a policy says where each pod belongs, whatever the size.
func ExamplePolicyInfo_GroupOfSlot() {
	s := policystore.New()
	key := types.NamespacedName{Namespace: "default", Name: "web"}
	if err := s.SetPolicy(policystore.Policy{
		NamespacedName: key,
		PodSelector:    &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		Groups: []policystore.NodeGroup{
			{Name: "spot", NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "spot"}}, Share: "70%"},
			{Name: "rest", Base: 2},
		},
	}); err != nil {
		panic(err)
	}
	info, _ := s.Policy(key)
	var slots []string
	for n := 1; n <= 12; n++ {
		slots = append(slots, info.GroupName(info.GroupOfSlot(n)))
	}
	fmt.Println(slots)
	for g := range info.Groups() {
		fmt.Println(info.GroupName(g), "has", info.Quota(g, 12), "of 12 pods, and", info.Quota(g, 40), "of 40")
	}
	// Output:
	// [rest rest rest spot spot rest spot spot rest spot spot spot]
	// spot has 7 of 12 pods, and 26 of 40
	// rest has 5 of 12 pods, and 14 of 40
}

// A program that shows or exports what the policies have reached reads it off the store, by policy and by cohort.
func ExampleStore_Policy() {
	s := policystore.New()
	key := types.NamespacedName{Namespace: "default", Name: "web-on-spot"}
	if err := s.SetPolicy(policystore.Policy{
		NamespacedName: key,
		PodSelector:    &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		NodeSelector:   &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "spot"}},
		TargetSize:     ptr.To(intstr.FromInt32(1)),
	}); err != nil {
		panic(err)
	}
	s.AddNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "od-1"}})
	for i, node := range []string{"od-1", ""} { // the second one is pending
		s.AddPod(&v1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: fmt.Sprint("web-", i),
				Labels: map[string]string{"app": "web", "pod-template-hash": "5d8f"},
			},
			Spec: v1.PodSpec{NodeName: node},
		})
	}

	info, _ := s.Policy(key)
	for _, c := range info.Cohorts {
		fmt.Printf("%v: %d qualify, %d managed, %d other, target %d\n", c.Labels, c.Qualifying, c.Managed, c.Other, c.Target)
	}
	// Output:
	// map[pod-template-hash:5d8f]: 2 qualify, 0 managed, 1 other, target 1
}
