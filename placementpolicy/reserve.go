package placementpolicy

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/waiting"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

// Reserve counts the pod as placed, before it is bound. It rejects the pod if another one, perhaps of another profile,
// has taken the last place in the meantime; the pod is then tried again at once, since the other group must be open.
func (pl *Plugin) Reserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	if s, err := readPreFilterState(state); err == nil && s.keptTo != nil {
		pl.narrowing.succeeded(pod, s.taken)
	}
	pl.seePermitted()
	pl.confirmer.Remove(pod)
	node, err := pl.handle.SnapshotSharedLister().NodeInfos().Get(nodeName)
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("getting node %s of the scheduling cycle: %w", nodeName, err))
	}
	err = pl.store.AssumePod(pod, node.Node())
	if quota := (*policystore.QuotaError)(nil); errors.As(err, &quota) {
		if isFiltered(state) && !inPodGroup(state) {
			counters[rejected].Inc()
			pl.waiting.Add(waiting.Pod{Pod: pod, Decision: quota.Decision, Refused: true})
			return fwk.NewStatus(fwk.Unschedulable, quota.Error())
		}
		// Without Filter the policy acts as BestEffort, and the pod would come back with the same node forever. For a
		// pod group it is a simulation, in which pods that the store counts may be gone.
		err = pl.store.ForceAssumePod(pod, node.Node())
	}
	if err != nil {
		return fwk.AsStatus(err)
	}
	counters[reserved].Inc()
	if !inPodGroup(state) { // else it may be a simulation
		pl.waiting.Remove(pod)
	}
	return nil
}

// mayBeBoundMessage says why a pod is not tried whose bind is in doubt.
const mayBeBoundMessage = "the pod's last attempt ended with an error when it was about to be bound: " +
	"waiting for the API server to say whether it is bound"

// Unreserve ends the reservation: at once if no bind can have been sent for the pod, else when the API server has said
// that the pod is not bound. A pod that was shown as bound stays counted.
func (pl *Plugin) Unreserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) {
	pl.narrowing.nodeChanged(nodeName)
	switch {
	case !pl.store.IsAssumed(pod):
	case pl.mayBeBound(state, pod):
		pl.confirmer.Add(pod)
	default:
		pl.store.ForgetPod(pod)
	}
}
