package fwktest

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// Snapshot is the cluster as the scheduler sees it in one cycle.
type Snapshot struct {
	fwk.SharedLister   // panics
	fwk.NodeInfoLister // panics
	nodes              []fwk.NodeInfo
	byName             map[string]fwk.NodeInfo
}

// NewSnapshot returns one of the nodes and the pods on them.
func NewSnapshot(pods []*v1.Pod, nodes []*v1.Node) *Snapshot {
	s := &Snapshot{byName: map[string]fwk.NodeInfo{}}
	for _, node := range nodes {
		info := NewNodeInfo()
		info.SetNode(node)
		s.nodes = append(s.nodes, info)
		s.byName[node.Name] = info
	}
	for _, pod := range pods {
		if info, ok := s.byName[pod.Spec.NodeName]; ok {
			info.AddPodInfo(&PodInfo{pod: pod})
		}
	}
	return s
}

func (s *Snapshot) NodeInfos() fwk.NodeInfoLister { return s }

func (s *Snapshot) List() ([]fwk.NodeInfo, error) { return s.nodes, nil }

func (s *Snapshot) Get(name string) (fwk.NodeInfo, error) {
	if info, ok := s.byName[name]; ok {
		return info, nil
	}
	return nil, fmt.Errorf("no node %s", name)
}
