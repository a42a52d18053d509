package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/placement-policy/scheduler-plugin/labelselector"
	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

// subject is the policy that is shown, and labels that it selects.
type subject struct {
	manifest  []byte
	policy    policystore.Policy
	podLabels map[string]string
	// spotLabels are what the policy's node selector matches.
	spotLabels map[string]string
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
	if s.podLabels, err = labelsFor(policy.PodSelector); err != nil {
		return nil, err
	}
	if s.spotLabels, err = labelsFor(policy.NodeSelector); err != nil {
		return nil, err
	}
	return s, nil
}

// labelsFor makes up labels that the selector matches.
func labelsFor(selector *metav1.LabelSelector) (map[string]string, error) {
	compiled, err := labelselector.Compile(selector)
	if err != nil {
		return nil, err
	}
	made, ok := compiled.Example()
	if !ok {
		return nil, fmt.Errorf("the quickstart finds no labels that the selector %s matches: write a simpler one", compiled)
	}
	return made, nil
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

// spread spreads the pods of each revision over the two kinds of nodes.
func (s *subject) spread() []v1.TopologySpreadConstraint {
	return []v1.TopologySpreadConstraint{{
		MaxSkew:           1,
		TopologyKey:       groupLabel,
		WhenUnsatisfiable: v1.DoNotSchedule,
		LabelSelector:     &metav1.LabelSelector{MatchLabels: s.podLabels},
		MatchLabelKeys:    []string{appsv1.DefaultDeploymentUniqueLabelKey},
	}}
}

// groupLabel tells the two kinds of nodes apart for what cannot tell that a label is missing.
const (
	groupLabel    = "quickstart/group"
	spotGroup     = "spot"
	onDemandGroup = "on-demand"
)

func (s *subject) nodes(spot, onDemand int) []*v1.Node {
	var nodes []*v1.Node
	add := func(group string, n int, extra map[string]string) {
		for i := range n {
			labels := map[string]string{groupLabel: group}
			maps.Copy(labels, extra)
			name := fmt.Sprintf("%s-%d", group, i+1)
			nodes = append(nodes, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
		}
	}
	add(spotGroup, spot, s.spotLabels)
	add(onDemandGroup, onDemand, nil)
	return nodes
}
