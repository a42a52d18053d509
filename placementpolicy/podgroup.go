package placementpolicy

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

const podGroupStateKey fwk.StateKey = "PodGroup" + Name

// podGroupCycle is where the cycles of a pod group's members can leave data for each other.
type podGroupCycle interface {
	Read(key fwk.StateKey) (fwk.StateData, error)
	Write(key fwk.StateKey, data fwk.StateData)
}

// inPodGroup reports whether the cycle is one of a member of a pod group.
func inPodGroup(state fwk.CycleState) bool {
	return cycleState{CycleState: state}.IsPodGroupSchedulingCycle()
}

// podGroupOf returns the cycle of the pod group, if the state is that of a member.
func podGroupOf(state fwk.CycleState) podGroupCycle {
	return cycleState{CycleState: state}.GetPodGroupSchedulingCycle()
}

// cycleState has the methods for pod groups with each release of Kubernetes: those of fwk.CycleState, which has them
// since 1.36, hide those of noPodGroups, which are a level deeper.
type cycleState struct {
	fwk.CycleState
	deeper
}

type deeper struct{ noPodGroups }

type noPodGroups struct{}

func (noPodGroups) IsPodGroupSchedulingCycle() bool           { return false }
func (noPodGroups) GetPodGroupSchedulingCycle() podGroupCycle { return nil }

// podGroupState is the decisions for the first pods of a pod group, one for each cohort. Those for the other pods count
// the pods before, which are reserved only in a simulation.
type podGroupState struct {
	first map[policystore.CohortID]policystore.Decision
}

// Clone copies the map, which grows.
func (s *podGroupState) Clone() fwk.StateData { return &podGroupState{first: maps.Clone(s.first)} }

// firstOfGroup returns the decision that was taken for the first pod of the group that is in the same cohort.
func firstOfGroup(group podGroupCycle, decision policystore.Decision) policystore.Decision {
	data, _ := group.Read(podGroupStateKey)
	s, ok := data.(*podGroupState)
	if !ok {
		s = &podGroupState{first: map[policystore.CohortID]policystore.Decision{}}
		group.Write(podGroupStateKey, s)
	}
	first, ok := s.first[decision.CohortID()]
	if !ok {
		first = decision
		s.first[decision.CohortID()] = first
	}
	return first
}

// withoutEvicted returns the decision without the pods that the scheduler has taken out of its snapshot, and whether
// there are any: it tries in this way whether a pod group could be placed after an eviction, and does not tell plugins
// of it.
func (pl *Plugin) withoutEvicted(decision policystore.Decision) (_ policystore.Decision, evicting bool) {
	for uid, nodeName := range pl.store.LowerPriority(decision) {
		node, err := pl.handle.SnapshotSharedLister().NodeInfos().Get(nodeName)
		if err != nil {
			continue // the node is gone, not only the pod
		}
		there := slices.ContainsFunc(node.GetPods(), func(info fwk.PodInfo) bool { return info.GetPod().UID == uid })
		if !there {
			decision = pl.store.WithoutPod(decision, &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}})
			evicting = true
		}
	}
	return decision, evicting
}
