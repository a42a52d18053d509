package placementpolicy

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

// Reserve counts the pod as placed, before it is bound. It rejects the pod if another one, perhaps of another profile,
// has taken the last place in the meantime; the pod is then tried again at once, since the other group must be open.
func (pl *Plugin) Reserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	if s, err := readPreFilterState(state); err == nil && s.keptTo != nil {
		pl.narrowing.succeeded(pod, s.taken)
	}
	pl.confirmer.remove(pod)
	node, err := pl.handle.SnapshotSharedLister().NodeInfos().Get(nodeName)
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("getting node %s of the scheduling cycle: %w", nodeName, err))
	}
	err = pl.store.AssumePod(pod, node.Node())
	if quota, ok := errors.AsType[*policystore.QuotaError](err); ok {
		if isFiltered(state) && !inPodGroup(state) {
			counters[rejected].Inc()
			activate(ctx, pl.handle, pod)
			return fwk.NewStatus(fwk.Unschedulable, quota.Error())
		}
		// Without Filter the policy acts as BestEffort, and the pod would come back with the same node forever. For a pod
		// group it is a simulation, in which pods that the store counts may be gone.
		err = pl.store.ForceAssumePod(pod, node.Node())
	}
	if err != nil {
		return fwk.AsStatus(err)
	}
	counters[reserved].Inc()
	pl.status.leads.Store(true)
	if !inPodGroup(state) { // else it may be a simulation
		pl.wakeup.remove(pod.UID)
	}
	return nil
}

// Unreserve ends the reservation, once it is certain that the pod was not bound all the same. A pod that the API server has shown as
// bound stays counted.
func (pl *Plugin) Unreserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) {
	pl.narrowing.nodeChanged(nodeName)
	switch {
	case !pl.store.IsAssumed(pod):
	case !inPodGroup(state):
		pl.confirmer.add(pod)
	case pl.store.ForgetPod(pod): // nothing was bound
		reservationsUndone.Inc()
	}
}
