package placementpolicy

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// PostFilter has a pod that found room on none of the nodes that it was kept to tried again at once, on all nodes.
// Other pods it leaves to other plugins, such as DefaultPreemption.
func (pl *Plugin) PostFilter(
	ctx context.Context,
	state fwk.CycleState,
	pod *v1.Pod,
	_ fwk.NodeToStatusReader,
) (*fwk.PostFilterResult, *fwk.Status) {
	s, err := readPreFilterState(state)
	if err != nil || s.keptTo == nil {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	pl.narrowing.failed(pod, s.taken)
	activate(ctx, pl.handle, pod)
	return nil, fwk.NewStatus(
		fwk.Unschedulable,
		fmt.Sprintf("%s, but none of %d nodes there has room for the pod: all nodes are tried next",
			s.taken.Reason(s.taken.Preferred), s.keptTo.Len()),
	)
}

// retryMisled has the scheduler try the pod at once that has failed in an earlier cycle, if there is one, instead of
// after its back-off.
func (pl *Plugin) retryMisled(ctx context.Context, current *v1.Pod) {
	if misled := pl.narrowing.takeMisled(); misled != nil && misled.UID != current.UID {
		activate(ctx, pl.handle, misled)
	}
}
