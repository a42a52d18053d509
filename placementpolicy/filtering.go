package placementpolicy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

const preFilterStateKey fwk.StateKey = "PreFilter" + Name

// preFilterState is the decision for the pod of a scheduling cycle, and what was said of it.
type preFilterState struct {
	// taken is the decision as PreFilter took it, for the pod or for the first one of its pod group; decision is what
	// AddPod and RemovePod have made of it.
	taken, decision policystore.Decision
	// open: the decision allows all groups, as for most pods. Nodes then need not be looked at.
	open bool
	// narrowed: the pod is kept to nodes of its preferred group; see narrowing.
	narrowed bool
	// evicting: preemption tries out what evictions would bring the pod.
	evicting bool
	// member: it is a cycle for a pod group.
	member bool
	// filtered: Filter has run, so the profile enables it.
	filtered atomic.Bool

	// rejections are the codes and reasons of the groups that are closed, made when first needed: many nodes share one.
	target, other rejection
}

type rejection struct {
	once   sync.Once
	code   fwk.Code
	reason string
}

func newPreFilterState(taken policystore.Decision) *preFilterState {
	s := &preFilterState{taken: taken}
	s.change(taken)
	return s
}

// Clone copies the decision, which AddPod and RemovePod change, but not the reasons, which follow from it.
func (s *preFilterState) Clone() fwk.StateData {
	return &preFilterState{
		taken: s.taken, decision: s.decision, open: s.open,
		narrowed: s.narrowed, evicting: s.evicting, member: s.member,
	}
}

func (s *preFilterState) change(decision policystore.Decision) {
	s.decision = decision
	s.open = decision.Allows(policystore.Target) && decision.Allows(policystore.Other)
	s.target, s.other = rejection{}, rejection{}
}

// PreFilter takes the decision for the cycle. Pods that no Strict policy governs are not filtered, unless they are kept to nodes of
// their preferred group.
func (pl *Plugin) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if err := pl.waitForSync(ctx); err != nil {
		return nil, fwk.AsStatus(err)
	}
	if pl.confirmer.keeps(pod) {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "binding the pod has failed, but the API server has yet to say that it is not bound")
	}
	decision, governed := pl.store.Decide(pod)
	countDecision(decision, governed)
	if !governed || pod.Spec.NodeName != "" {
		pl.wakeup.remove(pod.UID)
		return nil, fwk.NewStatus(fwk.Skip)
	}
	var result *fwk.PreFilterResult
	if len(nodes) > alwaysSampled && !inPodGroup(state) && pod.Status.NominatedNodeName == "" {
		if keepTo := pl.narrowing.nodesFor(ctx, pod, decision, pl.handle.SnapshotSharedLister().NodeInfos()); keepTo != nil {
			result = &fwk.PreFilterResult{NodeNames: keepTo}
		}
	}
	if decision.EnforcementMode() != policystore.Strict && result == nil {
		pl.wakeup.remove(pod.UID)
		return nil, fwk.NewStatus(fwk.Skip)
	}
	s := newPreFilterState(decision)
	s.narrowed = result != nil
	evicting := false
	if inPodGroup(state) {
		s.taken, s.member = firstOfGroup(podGroupOf(state), decision), true
		var left policystore.Decision
		left, evicting = pl.withoutEvicted(decision)
		s.change(left)
	}
	if !evicting { // else the pod is not tried, and goes on waiting for the pods to be gone
		pl.wakeup.remove(pod.UID)
	}
	state.Write(preFilterStateKey, s)
	return result, nil
}

// isFiltered reports whether the plugin has filtered the nodes in the cycle, or had no need to. If not, the profile lacks one of its
// points PreFilter and Filter.
func isFiltered(state fwk.CycleState) bool {
	s, err := readPreFilterState(state)
	return err == nil && s.filtered.Load() || state.GetSkipFilterPlugins().Has(Name)
}

// PreFilterExtensions lets preemption simulate evictions, and nominated pods hold their place.
func (pl *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return pl }

// AddPod counts a nominated pod, or one that preemption spares after all.
func (pl *Plugin) AddPod(_ context.Context, state fwk.CycleState, _ *v1.Pod, added fwk.PodInfo, node fwk.NodeInfo) *fwk.Status {
	s, err := readPreFilterState(state)
	if err != nil {
		return fwk.AsStatus(err)
	}
	s.change(pl.store.WithPod(s.decision, added.GetPod(), node.Node().Labels))
	return nil
}

// RemovePod frees the place of a pod that preemption would evict.
func (pl *Plugin) RemovePod(_ context.Context, state fwk.CycleState, _ *v1.Pod, removed fwk.PodInfo, _ fwk.NodeInfo) *fwk.Status {
	s, err := readPreFilterState(state)
	if err != nil {
		return fwk.AsStatus(err)
	}
	s.evicting = true
	s.change(pl.store.WithoutPod(s.decision, removed.GetPod()))
	return nil
}

// Filter lets the pod onto the nodes of the groups that its policy allows.
func (pl *Plugin) Filter(_ context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	s, err := readPreFilterState(state)
	if errors.Is(err, fwk.ErrNotFound) { // the profile enables Filter without PreFilter
		decision, governed := pl.store.Decide(pod)
		if !governed {
			return nil
		}
		s, err = newPreFilterState(decision), nil
	}
	if err != nil {
		return fwk.AsStatus(err)
	}
	if !s.filtered.Load() {
		s.filtered.Store(true)
	}
	if s.narrowed && s.evicting {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "no pod is evicted before the nodes of both groups were tried")
	}
	if s.open {
		return nil
	}
	group := s.decision.GroupOf(node.Node().Labels)
	if s.decision.Allows(group) {
		return nil
	}
	return pl.reject(s, pod, group)
}

func (pl *Plugin) reject(s *preFilterState, pod *v1.Pod, group policystore.Group) *fwk.Status {
	r := &s.other
	if group == policystore.Target {
		r = &s.target
	}
	r.once.Do(func() {
		r.reason = s.decision.Reason(group)
		r.code = fwk.UnschedulableAndUnresolvable
		if pl.store.CouldEvict(s.decision, group) {
			r.code = fwk.Unschedulable
		}
		pl.status.leads.Store(true)
		pl.wakeup.add(waitingPod{pod: pod, decision: s.taken, member: s.member, yields: !s.member && s.taken.Allows(group)})
	})
	return fwk.NewStatus(r.code, r.reason)
}

func readPreFilterState(state fwk.CycleState) (*preFilterState, error) {
	data, err := state.Read(preFilterStateKey)
	if err != nil {
		return nil, fmt.Errorf("reading %q from cycle state: %w", preFilterStateKey, err)
	}
	s, ok := data.(*preFilterState)
	if !ok {
		return nil, fmt.Errorf("reading %q from cycle state: expected %T, got %T", preFilterStateKey, s, data)
	}
	return s, nil
}
