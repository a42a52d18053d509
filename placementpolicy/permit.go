package placementpolicy

import (
	"context"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

const permitStateKey fwk.StateKey = "Permit" + Name

// permitState is what Permit leaves for Unreserve.
type permitState struct {
	pod    *v1.Pod
	handle fwk.Handle
	// waits is the pod as it waits for other Permit plugins; nil if it does not, or if that was not seen.
	waits atomic.Pointer[fwk.WaitingPod]
}

// Clone returns the state itself: it is about the pod, not about a node.
func (s *permitState) Clone() fwk.StateData { return s }

// Permit lets every pod pass at once. That it was called, and whether the pod then waits for other plugins, tells
// Unreserve whether the pod can be bound.
func (pl *Plugin) Permit(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ string) (*fwk.Status, time.Duration) {
	if !pl.permits.Load() {
		pl.permits.Store(true)
	}
	if _, governed := pl.store.Decide(pod); governed {
		s := &permitState{pod: pod, handle: pl.handle}
		state.Write(permitStateKey, s)
		pl.lastPermitted.Store(s)
	}
	return nil, 0
}

// seePermitted looks whether the pod that came to Permit last waits there. It is called when the next cycle has begun:
// only then all Permit plugins have been asked.
func (s *shared) seePermitted() {
	if s.lastPermitted.Load() == nil {
		return
	}
	if last := s.lastPermitted.Swap(nil); last != nil {
		if waits := last.handle.GetWaitingPod(last.pod.UID); waits != nil {
			last.waits.Store(&waits)
		}
	}
}

// mayBeBound reports whether the pod may be bound although its cycle has failed, and whether that matters: without a
// Strict policy nobody would miss the place that it has in truth.
func (pl *Plugin) mayBeBound(state fwk.CycleState, pod *v1.Pod) bool {
	if decision, _ := pl.store.Decide(pod); decision.EnforcementMode() != policystore.Strict || inPodGroup(state) {
		return false
	}
	data, err := state.Read(permitStateKey)
	if err != nil {
		return !pl.permits.Load() // it tells nothing where the profile lacks the plugin's Permit point
	}
	waits := data.(*permitState).waits.Load()
	// Of a pod that was rejected while it waited some plugin has yet to allow it.
	return waits == nil || len((*waits).GetPendingPlugins()) == 0
}
