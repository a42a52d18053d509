package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/placement-policy/scheduler-plugin/examples/internal/makeup"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

// kindPattern is one kind of nodes: its name, its labels if they are given, and how many there are.
var kindPattern = regexp.MustCompile(`^([a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)(\[[^\]]*\])?=([0-9]{1,5})(?:,|$)`)

// oneOfEachKind asks addNodes for a node of each group.
func oneOfEachKind(policy policystore.PolicyInfo) string {
	if len(policy.Policy.Groups) == 0 {
		return "selected=1,rest=1"
	}
	var kinds []string
	for g := range policy.Groups() {
		kinds = append(kinds, policy.GroupName(g)+"=1")
	}
	return strings.Join(kinds, ",")
}

// addNodes makes up nodes, such as spot=3,od=5, that are in the groups of the policy.
func (w *world) addNodes(kinds string, policy policystore.PolicyInfo) error {
	for rest := kinds; rest != ""; {
		m := kindPattern.FindStringSubmatch(rest)
		if m == nil {
			return fmt.Errorf("--nodes: reading %q: write KIND=N or KIND[key=value,...]=N, as in spot=3,od=5 "+
				"(N is at most 99999)", rest)
		}
		kind, given := m[1], m[2]
		n, _ := strconv.Atoi(m[3])
		var made map[string]string
		var err error
		if given != "" {
			made, err = labels.ConvertSelectorToLabelsMap(given[1 : len(given)-1])
		} else {
			made, err = labelsOfKind(kind, rest == kinds, policy)
		}
		if err != nil {
			return fmt.Errorf("--nodes: labels of %s: %w: write them, as in %s[key=value]=%d", kind, err, kind, n)
		}
		for _, name := range numbered(kind, n) {
			if w.nodes[name] != nil {
				return fmt.Errorf("--nodes: two kinds are named %s: give each its own name", kind)
			}
			w.nodes[name] = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: made}}
		}
		rest = rest[len(m[0]):]
	}
	return nil
}

// labelsOfKind makes up the labels for a kind of nodes: one that is named like a group is in it. Where the policy has a
// nodeSelector for two groups, this matches the first kind and no other.
func labelsOfKind(kind string, first bool, policy policystore.PolicyInfo) (map[string]string, error) {
	for g := range policy.Groups() {
		if policy.GroupName(g) == kind {
			return makeup.NodeLabels(policy, g)
		}
	}
	if len(policy.Policy.Groups) > 0 {
		return nil, fmt.Errorf("no group has this name")
	}
	group := policystore.Other
	if first == (policy.Policy.Action == policystore.Must) {
		group = policystore.Target
	}
	made, err := makeup.NodeLabels(policy, group)
	if err != nil && !first {
		return nil, nil // the selector matches all nodes
	}
	return made, err
}

// numbered returns n names, all of the same length so that their order is that of their numbers.
func numbered(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%0*d", prefix, len(strconv.Itoa(n)), i+1)
	}
	return names
}

// addPods makes up n pending pods for a policy: copies of the newest pod that it governs, or pods of a ReplicaSet "new"
// with labels that its selector matches.
func (w *world) addPods(n int, policy policystore.Policy) error {
	var pattern *v1.Pod
	store := w.store()
	for _, pod := range w.queue() {
		if d, governed := store.Decide(pod); governed && d.Policy == policy.NamespacedName {
			pattern = pod
		}
	}
	if pattern == nil {
		made, err := makeup.PodLabels(policy.PodSelector)
		if err != nil {
			return fmt.Errorf("--replicas: labels of the pods: %w: write a simpler podSelector", err)
		}
		pattern = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: made, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "new", UID: "new", Controller: new(true)},
		}}}
	}
	for _, name := range numbered("new", n) {
		w.pods[types.UID(name)] = &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: policy.Namespace, Name: name, UID: types.UID(name),
				CreationTimestamp: metav1.Now(), // after all others
				Labels:            pattern.Labels, OwnerReferences: pattern.OwnerReferences,
			},
			Spec: v1.PodSpec{Priority: pattern.Spec.Priority},
		}
	}
	return nil
}
