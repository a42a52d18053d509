package main

import (
	"fmt"
	"regexp"
	"strconv"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/placement-policy/scheduler-plugin/labelselector"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

// kindPattern is one kind of nodes: its name, its labels if they are given, and how many there are.
var kindPattern = regexp.MustCompile(`^([a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)(\[[^\]]*\])?=([0-9]{1,5})(?:,|$)`)

// addNodes makes up nodes, such as spot=3,od=5: the nodes of the first kind have labels that the selector matches, the
// others none; unless their labels are given, as in od[zone=a]=5.
func (w *world) addNodes(kinds string, selector *metav1.LabelSelector) error {
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
		} else if rest == kinds { // the first one
			made, err = labelsFor(selector)
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

// numbered returns n names, all of the same length so that their order is that of their numbers.
func numbered(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%0*d", prefix, len(strconv.Itoa(n)), i+1)
	}
	return names
}

// labelsFor makes up labels that the selector matches.
func labelsFor(selector *metav1.LabelSelector) (map[string]string, error) {
	compiled, err := labelselector.Compile(selector)
	if err != nil {
		return nil, err
	}
	made, ok := compiled.Example()
	if !ok {
		return nil, fmt.Errorf("found none that the selector %s matches", compiled)
	}
	return made, nil
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
		made, err := labelsFor(policy.PodSelector)
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
