package fwktest

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PodWrapper builds a pod. Its methods change it and return it.
type PodWrapper struct{ v1.Pod }

// MakePod returns a pod without anything.
func MakePod() *PodWrapper { return &PodWrapper{} }

func (p *PodWrapper) Obj() *v1.Pod { return &p.Pod }

func (p *PodWrapper) with(edit func(*v1.Pod)) *PodWrapper {
	edit(&p.Pod)
	return p
}

func (p *PodWrapper) Name(name string) *PodWrapper {
	return p.with(func(pod *v1.Pod) { pod.Name = name })
}

func (p *PodWrapper) GenerateName(name string) *PodWrapper {
	return p.with(func(pod *v1.Pod) { pod.GenerateName = name })
}

func (p *PodWrapper) Namespace(name string) *PodWrapper {
	return p.with(func(pod *v1.Pod) { pod.Namespace = name })
}

func (p *PodWrapper) UID(uid string) *PodWrapper {
	return p.with(func(pod *v1.Pod) { pod.UID = types.UID(uid) })
}

func (p *PodWrapper) Label(key, value string) *PodWrapper {
	return p.with(func(pod *v1.Pod) { metav1.SetMetaDataLabel(&pod.ObjectMeta, key, value) })
}

func (p *PodWrapper) Annotation(key, value string) *PodWrapper {
	return p.with(func(pod *v1.Pod) { metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, value) })
}

func (p *PodWrapper) CreationTimestamp(t metav1.Time) *PodWrapper {
	return p.with(func(pod *v1.Pod) { pod.CreationTimestamp = t })
}

// Terminating says that the pod was deleted just now.
func (p *PodWrapper) Terminating() *PodWrapper {
	return p.with(func(pod *v1.Pod) { now := metav1.Now(); pod.DeletionTimestamp = &now })
}

func (p *PodWrapper) Phase(phase v1.PodPhase) *PodWrapper {
	return p.with(func(pod *v1.Pod) { pod.Status.Phase = phase })
}

func (p *PodWrapper) Condition(t v1.PodConditionType, status v1.ConditionStatus, reason string) *PodWrapper {
	return p.with(func(pod *v1.Pod) {
		pod.Status.Conditions = append(pod.Status.Conditions, v1.PodCondition{Type: t, Status: status, Reason: reason})
	})
}

func (p *PodWrapper) SchedulerName(name string) *PodWrapper {
	return p.with(func(pod *v1.Pod) { pod.Spec.SchedulerName = name })
}

func (p *PodWrapper) SchedulingGates(gates []string) *PodWrapper {
	return p.with(func(pod *v1.Pod) {
		for _, gate := range gates {
			pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, v1.PodSchedulingGate{Name: gate})
		}
	})
}

func (p *PodWrapper) Priority(priority int32) *PodWrapper {
	return p.with(func(pod *v1.Pod) { pod.Spec.Priority = &priority })
}

// Node is where the pod runs.
func (p *PodWrapper) Node(name string) *PodWrapper {
	return p.with(func(pod *v1.Pod) { pod.Spec.NodeName = name })
}

func (p *PodWrapper) NominatedNodeName(name string) *PodWrapper {
	return p.with(func(pod *v1.Pod) { pod.Status.NominatedNodeName = name })
}

func (p *PodWrapper) NodeSelector(labels map[string]string) *PodWrapper {
	return p.with(func(pod *v1.Pod) { pod.Spec.NodeSelector = labels })
}

// Toleration tolerates each taint of the key.
func (p *PodWrapper) Toleration(key string) *PodWrapper {
	return p.with(func(pod *v1.Pod) {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, v1.Toleration{Key: key, Operator: v1.TolerationOpExists})
	})
}

// PVC has the pod use the claim.
func (p *PodWrapper) PVC(name string) *PodWrapper {
	return p.with(func(pod *v1.Pod) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}})
	})
}

// Req adds a container with the requests.
func (p *PodWrapper) Req(requests map[v1.ResourceName]string) *PodWrapper {
	return p.container(v1.Container{Resources: v1.ResourceRequirements{Requests: resourceList(requests)}})
}

// HostPort adds a container with the port.
func (p *PodWrapper) HostPort(port int32) *PodWrapper {
	return p.container(v1.Container{Ports: []v1.ContainerPort{{HostPort: port}}})
}

func (p *PodWrapper) container(container v1.Container) *PodWrapper {
	return p.with(func(pod *v1.Pod) {
		container.Name = fmt.Sprint("container-", len(pod.Spec.Containers))
		pod.Spec.Containers = append(pod.Spec.Containers, container)
	})
}

// NodeWrapper builds a node. Its methods change it and return it.
type NodeWrapper struct{ v1.Node }

// MakeNode returns a node with room for 32 pods and nothing else.
func MakeNode() *NodeWrapper { return (&NodeWrapper{}).Capacity(nil) }

func (n *NodeWrapper) Obj() *v1.Node { return &n.Node }

func (n *NodeWrapper) with(edit func(*v1.Node)) *NodeWrapper {
	edit(&n.Node)
	return n
}

func (n *NodeWrapper) Name(name string) *NodeWrapper {
	return n.with(func(node *v1.Node) { node.Name = name })
}

func (n *NodeWrapper) UID(uid string) *NodeWrapper {
	return n.with(func(node *v1.Node) { node.UID = types.UID(uid) })
}

func (n *NodeWrapper) Label(key, value string) *NodeWrapper {
	return n.with(func(node *v1.Node) { metav1.SetMetaDataLabel(&node.ObjectMeta, key, value) })
}

// Capacity is both what the node has and what pods may have of it. It has room for 32 pods unless the resources say
// otherwise.
func (n *NodeWrapper) Capacity(resources map[v1.ResourceName]string) *NodeWrapper {
	return n.with(func(node *v1.Node) {
		list := resourceList(resources)
		if _, ok := list[v1.ResourcePods]; !ok {
			list[v1.ResourcePods] = resource.MustParse("32")
		}
		node.Status.Capacity, node.Status.Allocatable = list, list
	})
}

func (n *NodeWrapper) Taints(taints []v1.Taint) *NodeWrapper {
	return n.with(func(node *v1.Node) { node.Spec.Taints = taints })
}

func (n *NodeWrapper) Unschedulable(unschedulable bool) *NodeWrapper {
	return n.with(func(node *v1.Node) { node.Spec.Unschedulable = unschedulable })
}

func resourceList(resources map[v1.ResourceName]string) v1.ResourceList {
	list := v1.ResourceList{}
	for name, quantity := range resources {
		list[name] = resource.MustParse(quantity)
	}
	return list
}
