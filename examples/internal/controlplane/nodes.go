package controlplane

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// CreateNodes creates nodes and waits, two minutes at most, for them to be schedulable: kwok has made them ready, and
// the taint that a new node has is gone. A node needs a name, and labels and taints as wished. It gets a
// kubernetes.io/hostname label, and, if it states no allocatable resources, 32 CPUs, 64 GiB of memory and room for
// 1,000 pods. The nodes passed in are not changed.
func (cp *ControlPlane) CreateNodes(ctx context.Context, nodes ...*v1.Node) error {
	pending := sets.New[string]()
	for _, node := range nodes {
		node = node.DeepCopy()
		metav1.SetMetaDataLabel(&node.ObjectMeta, v1.LabelHostname, node.Name)
		if node.Status.Allocatable == nil {
			node.Status.Allocatable = v1.ResourceList{
				v1.ResourceCPU:    resource.MustParse("32"),
				v1.ResourceMemory: resource.MustParse("64Gi"),
				v1.ResourcePods:   resource.MustParse("1000"),
			}
		}
		if node.Status.Capacity == nil {
			node.Status.Capacity = node.Status.Allocatable
		}
		if _, err := cp.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating node %s: %w", node.Name, err)
		}
		pending.Insert(node.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return cp.await(ctx, "nodes to be ready", func(ctx context.Context) error {
		// One page from the API server's cache, however many nodes there are.
		list, err := cp.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if isReady(&list.Items[i]) {
				pending.Delete(list.Items[i].Name)
			}
		}
		for name := range pending {
			return fmt.Errorf("%d of %d are not, such as %s", pending.Len(), len(nodes), name)
		}
		return nil
	}, nil)
}

func isReady(node *v1.Node) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Key == v1.TaintNodeNotReady {
			return false
		}
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == v1.NodeReady {
			return condition.Status == v1.ConditionTrue
		}
	}
	return false
}
