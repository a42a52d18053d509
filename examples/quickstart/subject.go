package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/placement-policy/scheduler-plugin/examples/internal/makeup"
	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

// subject is the policy that is shown, labels that it selects, and the kinds of nodes that it tells apart.
type subject struct {
	manifest  []byte
	policy    policystore.Policy
	podLabels map[string]string
	kinds     []kind
}

// kind is a kind of nodes, which are in one group of the policy.
type kind struct {
	name   string
	group  policystore.Group
	labels map[string]string
}

// readSubject takes the first PlacementPolicy out of a file that may hold other documents too.
func readSubject(file []byte) (*subject, error) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(file)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil, errors.New("reading the policy: there is no PlacementPolicy in the file")
		}
		if err != nil {
			return nil, fmt.Errorf("reading the policy: %w", err)
		}
		var object v1alpha1.PlacementPolicy
		if err := yaml.Unmarshal(document, &object); err != nil {
			return nil, fmt.Errorf("reading the policy: %w", err)
		}
		if object.Kind == "PlacementPolicy" {
			return newSubject(document, &object)
		}
	}
}

func newSubject(manifest []byte, object *v1alpha1.PlacementPolicy) (*subject, error) {
	if object.Namespace == "" {
		object.Namespace = metav1.NamespaceDefault
	}
	policy, err := object.ToPolicy()
	if err != nil {
		return nil, err
	}
	s := &subject{manifest: manifest, policy: policy}
	if s.podLabels, err = makeup.PodLabels(policy.PodSelector); err != nil {
		return nil, fmt.Errorf("making up labels of pods: %w", err)
	}
	store := policystore.New()
	if err := store.SetPolicy(policy); err != nil {
		return nil, err
	}
	info, _ := store.Policy(policy.NamespacedName)
	for g := range info.Groups() {
		labels, err := makeup.NodeLabels(info, g)
		if err != nil {
			continue // earlier groups have all nodes
		}
		s.kinds = append(s.kinds, kind{info.GroupName(g), g, labels})
	}
	if policy.Groups == nil {
		s.callKindsSpotAndOnDemand()
	}
	return s, nil
}

// callKindsSpotAndOnDemand puts the nodes first that the nodeSelector matches.
func (s *subject) callKindsSpotAndOnDemand() {
	if s.policy.Action == policystore.MustNot {
		slices.Reverse(s.kinds)
	}
	for i, name := range []string{"spot", "on-demand"}[:len(s.kinds)] {
		s.kinds[i].name = name
	}
}

const deploymentName = "web"

func (s *subject) deployment(replicas int) *appsv1.Deployment {
	podLabels := map[string]string{"quickstart": "web"}
	for key, value := range s.podLabels {
		podLabels[key] = value
	}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: deploymentName, Namespace: s.policy.Namespace},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(replicas)),
			Selector: &metav1.LabelSelector{MatchLabels: podLabels},
			Template: v1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: podLabels},
				Spec: v1.PodSpec{Containers: []v1.Container{{
					Name:  "web",
					Image: "registry.k8s.io/pause:3.10",
					Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
						v1.ResourceCPU: resource.MustParse("10m"),
					}},
				}}},
			},
		},
	}
}

// spread spreads the pods of each revision over the kinds of nodes.
func (s *subject) spread() []v1.TopologySpreadConstraint {
	return []v1.TopologySpreadConstraint{{
		MaxSkew:           1,
		TopologyKey:       groupLabel,
		WhenUnsatisfiable: v1.DoNotSchedule,
		LabelSelector:     &metav1.LabelSelector{MatchLabels: s.podLabels},
		MatchLabelKeys:    []string{appsv1.DefaultDeploymentUniqueLabelKey},
	}}
}

// groupLabel tells the kinds of nodes apart for what cannot tell that a label is missing.
const groupLabel = "quickstart/group"

// nodes returns nodes, so many of each kind, or 3 of each if that is left open.
func (s *subject) nodes(counts []int) ([]*v1.Node, error) {
	if counts == nil {
		counts = slices.Repeat([]int{3}, len(s.kinds))
	}
	if len(counts) != len(s.kinds) {
		return nil, fmt.Errorf("--nodes: the policy tells %d kinds of nodes apart: write as many numbers", len(s.kinds))
	}
	var nodes []*v1.Node
	for i, k := range s.kinds {
		for n := range counts[i] {
			labels := map[string]string{groupLabel: k.name}
			maps.Copy(labels, k.labels)
			name := fmt.Sprintf("%s-%d", k.name, n+1)
			nodes = append(nodes, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
		}
	}
	return nodes, nil
}

// relabels returns the changes of labels that make a node of one group one of another kind; a nil value removes a
// label.
func (s *subject) relabels(from policystore.Group, to kind) map[string]any {
	changes := map[string]any{groupLabel: to.name}
	for _, k := range s.kinds {
		for key := range k.labels {
			if k.group == from {
				changes[key] = nil
			}
		}
	}
	for key, value := range to.labels {
		changes[key] = value
	}
	return changes
}
