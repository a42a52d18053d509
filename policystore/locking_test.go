package policystore

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// What most events and all decisions of a cluster do must not wait for each other: none of it takes the write lock.
func TestReadersAndEventsThatTellNothingNewDoNotKeepEachOtherOut(t *testing.T) {
	s := New()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p", UID: "p"}}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	s.AddPod(pod)
	s.AddNode(node)
	s.SetWorkloadSize("rs", 1)
	policy := types.NamespacedName{Namespace: "a", Name: "p"}
	s.RejectPolicy(policy, nil)

	s.mu.RLock()
	defer s.mu.RUnlock()
	for name, op := range map[string]func(){
		"Decide":          func() { s.Decide(pod) },
		"IsAssumed":       func() { s.IsAssumed(pod) },
		"AddPod":          func() { s.AddPod(pod) },
		"UpdatePod":       func() { s.UpdatePod(pod, pod) },
		"AddNode":         func() { s.AddNode(node) },
		"SetWorkloadSize": func() { s.SetWorkloadSize("rs", 1) },
		"Policy":          func() { s.Policy(policy) },
		"Snapshot":        func() { s.Snapshot() },
		"Pod":             func() { s.Pod(pod) },
		"Compare":         func() { s.Compare(Cluster{}) },
	} {
		done := make(chan struct{})
		go func() { op(); close(done) }()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Fatalf("%s waits for a reader", name)
		}
	}
}
