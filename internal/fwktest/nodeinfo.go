package fwktest

import (
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// PodInfo is a pod as the scheduler hands it to plugins.
type PodInfo struct {
	fwk.PodInfo // panics
	pod         *v1.Pod
}

// NewPodInfo returns the pod's.
func NewPodInfo(pod *v1.Pod) (*PodInfo, error) {
	if pod == nil {
		return nil, errors.New("no pod")
	}
	return &PodInfo{pod: pod}, nil
}

func (p *PodInfo) GetPod() *v1.Pod { return p.pod }

// NodeInfo is a node with its pods as the scheduler hands it to plugins.
type NodeInfo struct {
	fwk.NodeInfo // panics
	node         *v1.Node
	pods         []fwk.PodInfo
	requested    resources
	allocatable  resources
}

// NewNodeInfo returns one with the pods and no node.
func NewNodeInfo(pods ...*v1.Pod) *NodeInfo {
	n := &NodeInfo{}
	for _, pod := range pods {
		n.AddPodInfo(&PodInfo{pod: pod})
	}
	return n
}

func (n *NodeInfo) Node() *v1.Node               { return n.node }
func (n *NodeInfo) GetPods() []fwk.PodInfo       { return n.pods }
func (n *NodeInfo) GetRequested() fwk.Resource   { return &n.requested }
func (n *NodeInfo) GetAllocatable() fwk.Resource { return &n.allocatable }

func (n *NodeInfo) SetNode(node *v1.Node) {
	n.node = node
	n.allocatable = resources{}
	n.allocatable.add(node.Status.Allocatable)
}

func (n *NodeInfo) AddPodInfo(info fwk.PodInfo) {
	n.pods = append(n.pods, info)
	n.count()
}

func (n *NodeInfo) RemovePod(_ klog.Logger, pod *v1.Pod) error {
	i := slices.IndexFunc(n.pods, func(info fwk.PodInfo) bool { return info.GetPod().UID == pod.UID })
	if i < 0 {
		return fmt.Errorf("pod %s is not on the node", klog.KObj(pod))
	}
	n.pods = slices.Delete(n.pods, i, i+1)
	n.count()
	return nil
}

func (n *NodeInfo) count() {
	n.requested = resources{}
	for _, info := range n.pods {
		n.requested.add(resource.PodRequests(info.GetPod(), resource.PodResourcesOptions{}))
	}
}

// resources implements fwk.Resource.
type resources struct {
	fwk.Resource // panics
	milliCPU     int64
	memory       int64
	storage      int64
	pods         int
	scalar       map[v1.ResourceName]int64
}

func (r *resources) add(list v1.ResourceList) {
	for name, quantity := range list {
		switch name {
		case v1.ResourceCPU:
			r.milliCPU += quantity.MilliValue()
		case v1.ResourceMemory:
			r.memory += quantity.Value()
		case v1.ResourceEphemeralStorage:
			r.storage += quantity.Value()
		case v1.ResourcePods:
			r.pods += int(quantity.Value())
		default:
			if r.scalar == nil {
				r.scalar = map[v1.ResourceName]int64{}
			}
			r.scalar[name] += quantity.Value()
		}
	}
}

func (r *resources) GetMilliCPU() int64                            { return r.milliCPU }
func (r *resources) GetMemory() int64                              { return r.memory }
func (r *resources) GetEphemeralStorage() int64                    { return r.storage }
func (r *resources) GetAllowedPodNumber() int                      { return r.pods }
func (r *resources) GetScalarResources() map[v1.ResourceName]int64 { return r.scalar }
