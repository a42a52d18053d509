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

// podGroupState is the decisions for the first pods of a pod group, one for each cohort. Those for the other pods count
// the pods before, which are reserved only in a simulation.
type podGroupState struct {
	first map[policystore.CohortID]policystore.Decision
}

// Clone copies the map, which grows.
func (s *podGroupState) Clone() fwk.StateData { return &podGroupState{first: maps.Clone(s.first)} }

// firstOfGroup returns the decision that was taken for the first pod of the group that is in the same cohort.
func firstOfGroup(group fwk.PodGroupCycleState, decision policystore.Decision) policystore.Decision {
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

// withoutEvicted returns the decision without the pods that the scheduler has taken out of its snapshot, and whether there
// are any: it tries in this way whether a pod group could be placed after an eviction, and does not tell plugins of it.
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
