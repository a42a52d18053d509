package placementpolicy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/waiting"
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
	// keptTo are the nodes that the pod is kept to, those of its preferred group; nil if it is not. See narrowing.
	keptTo sets.Set[string]
	// elsewhere is the node that the pod is nominated for, if it is to be refused once; see nominatedElsewhere.
	elsewhere string
	// evicting: preemption tries out what evictions would bring the pod.
	evicting bool
	// member: it is a cycle for a pod group.
	member bool
	// cycle is what all clones of the state share.
	cycle *cycle

	// rejections are the codes and reasons of the groups that are closed, made when first needed: many nodes share one.
	rejections [policystore.MaxGroups + 1]rejection
}

// cycle is what happens to the pod in its scheduling cycle, on whichever node.
type cycle struct {
	filtered atomic.Bool // Filter has run, so the profile enables it
	refused  atomic.Bool // the node that the pod is nominated for

	// The pod waits for a group to open, or yields to a nominated pod; see waitingPod.
	waits, yields sync.Once

	mu        sync.Mutex // guards nominated
	nominated []nominatedPod
}

// nominatedPod is a pod that holds its place against the cycle's pod, which the store may not know yet.
type nominatedPod struct {
	pod  *v1.Pod
	node map[string]string // the labels of the node
}

func (c *cycle) add(pod *v1.Pod, node *v1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nominated = append(c.nominated, nominatedPod{pod, node.Labels})
}

func (c *cycle) nominatedPods() []nominatedPod {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.nominated)
}

type rejection struct {
	once   sync.Once
	code   fwk.Code
	reason string
}

func newPreFilterState(taken policystore.Decision) *preFilterState {
	s := &preFilterState{taken: taken, cycle: &cycle{}}
	s.change(taken)
	return s
}

// Clone copies the decision, which AddPod and RemovePod change, but not the reasons, which follow from it.
func (s *preFilterState) Clone() fwk.StateData {
	return &preFilterState{
		taken: s.taken, decision: s.decision, open: s.open, keptTo: s.keptTo, elsewhere: s.elsewhere,
		evicting: s.evicting, member: s.member, cycle: s.cycle,
	}
}

func (s *preFilterState) change(decision policystore.Decision) {
	s.decision = decision
	s.open = decision.AllowsAll()
	s.rejections = [policystore.MaxGroups + 1]rejection{}
}

// PreFilter takes the decision for the cycle. Pods that no Strict policy governs are not filtered, unless they are kept
// to nodes of their preferred group.
func (pl *Plugin) PreFilter(
	ctx context.Context,
	state fwk.CycleState,
	pod *v1.Pod,
	nodes []fwk.NodeInfo,
) (*fwk.PreFilterResult, *fwk.Status) {
	pl.seePermitted()
	pl.retryMisled(ctx, pod)
	if err := pl.waitForSync(ctx); err != nil {
		return nil, fwk.AsStatus(err)
	}
	if pl.confirmer.Holds(pod) {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, mayBeBoundMessage)
	}
	decision, governed := pl.store.Decide(pod)
	if !governed || pod.Spec.NodeName != "" {
		pl.waiting.Tried(pod)
		return nil, fwk.NewStatus(fwk.Skip)
	}
	var keptTo sets.Set[string]
	var elsewhere string
	group := inPodGroup(state)
	if !group {
		keptTo, elsewhere = pl.narrow(ctx, pod, decision, len(nodes))
	}
	if decision.EnforcementMode() != policystore.Strict && keptTo == nil && elsewhere == "" {
		pl.waiting.Tried(pod)
		return nil, fwk.NewStatus(fwk.Skip)
	}
	s := newPreFilterState(decision)
	s.keptTo, s.elsewhere = keptTo, elsewhere
	evicting := false
	if group {
		s.taken, s.member = firstOfGroup(podGroupOf(state), decision), true
		var left policystore.Decision
		left, evicting = pl.withoutEvicted(decision)
		s.change(left)
	}
	if !evicting { // else the pod is not tried, and goes on waiting for the pods to be gone
		pl.waiting.Tried(pod)
	}
	state.Write(preFilterStateKey, s)
	if keptTo == nil {
		return nil, nil
	}
	return &fwk.PreFilterResult{NodeNames: keptTo}, nil
}

// narrow returns the nodes to keep the pod to, if any, and the node that it is nominated for, if that is to be refused
// once.
//
// In a large cluster the scheduler stops looking when it has found some nodes that fit, and there may be none of a
// small group among them. Then no score brings the pod to that group. Nor does it where the scheduler tries one node
// alone: the one that is nominated, and the one that was second best for an earlier pod of the same signature. A pod
// that was signed before a policy governed it may get one of the latter.
func (pl *Plugin) narrow(
	ctx context.Context,
	pod *v1.Pod,
	decision policystore.Decision,
	nodes int,
) (keptTo sets.Set[string], elsewhere string) {
	large := nodes > alwaysSampled && !pl.scoresAllNodes
	nominated := pod.Status.NominatedNodeName
	if nominated != "" && !pl.nominatedElsewhere(decision, nominated) ||
		nominated == "" && !large && !pl.narrowing.mayBeSigned(pod) {
		return nil, ""
	}
	keptTo = pl.narrowing.nodesFor(ctx, pod, decision, pl.handle.SnapshotSharedLister().NodeInfos())
	switch {
	case keptTo == nil || nominated == "":
		return keptTo, ""
	case large:
		return keptTo.Clone().Insert(nominated), nominated
	default:
		return nil, nominated
	}
}

// nominatedElsewhere reports whether somebody has nominated a node outside the preferred group for a BestEffort pod. It
// is refused once, if there seems to be room in the preferred group: then all nodes are tried, this one included.
func (pl *Plugin) nominatedElsewhere(decision policystore.Decision, nominated string) bool {
	if decision.EnforcementMode() == policystore.Strict {
		return false
	}
	node, err := pl.handle.SnapshotSharedLister().NodeInfos().Get(nominated)
	return err == nil && decision.GroupOf(node.Node().Labels) != decision.Preferred
}

// isFiltered reports whether the plugin has filtered the nodes in the cycle, or had no need to. If not, the profile
// lacks one of its points PreFilter and Filter.
func isFiltered(state fwk.CycleState) bool {
	s, err := readPreFilterState(state)
	return err == nil && s.cycle.filtered.Load() || state.GetSkipFilterPlugins().Has(Name)
}

// PreFilterExtensions lets preemption simulate evictions, and nominated pods hold their place.
func (pl *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return pl }

// AddPod counts a nominated pod, or one that preemption spares after all. The scheduler adds a nominated pod only where
// it tries the node that this one is nominated for, but then it counts wherever preemption is tried out in the cycle.
func (pl *Plugin) AddPod(
	_ context.Context,
	state fwk.CycleState,
	_ *v1.Pod,
	added fwk.PodInfo,
	node fwk.NodeInfo,
) *fwk.Status {
	s, err := readPreFilterState(state)
	if err != nil {
		return fwk.AsStatus(err)
	}
	if !s.evicting {
		s.cycle.add(added.GetPod(), node.Node())
	}
	s.change(pl.store.WithPod(s.decision, added.GetPod(), node.Node().Labels))
	return nil
}

// RemovePod frees the place of a pod that preemption would evict.
func (pl *Plugin) RemovePod(
	_ context.Context,
	state fwk.CycleState,
	_ *v1.Pod,
	removed fwk.PodInfo,
	_ fwk.NodeInfo,
) *fwk.Status {
	s, err := readPreFilterState(state)
	if err != nil {
		return fwk.AsStatus(err)
	}
	decision := s.decision
	if !s.evicting {
		s.evicting = true
		for _, n := range s.cycle.nominatedPods() {
			decision = pl.store.WithPod(decision, n.pod, n.node)
		}
	}
	s.change(pl.store.WithoutPod(decision, removed.GetPod()))
	return nil
}

// Filter lets the pod onto the nodes of the groups that its policy allows.
func (pl *Plugin) Filter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	s, err := readPreFilterState(state)
	if errors.Is(err, fwk.ErrNotFound) { // the profile enables Filter without PreFilter
		if decision, governed := pl.store.Decide(pod); governed {
			pl.reportNotFiltered(ctx, decision)
		}
		return nil
	}
	if err != nil {
		return fwk.AsStatus(err)
	}
	if !s.cycle.filtered.Load() {
		s.cycle.filtered.Store(true)
	}
	if s.elsewhere == node.Node().Name && s.cycle.refused.CompareAndSwap(false, true) {
		return fwk.NewStatus(
			fwk.Unschedulable,
			"all nodes are tried before the nominated one, which is not in the preferred group",
		)
	}
	if s.keptTo != nil {
		switch {
		case s.evicting:
			return fwk.NewStatus(
				fwk.UnschedulableAndUnresolvable,
				"no pod is evicted before the nodes of all groups were tried",
			)
		case !s.keptTo.Has(node.Node().Name):
			return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "the nodes of the preferred group are tried first")
		}
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
	r := &s.rejections[group]
	r.once.Do(func() {
		r.reason = s.decision.Reason(group)
		r.code = fwk.UnschedulableAndUnresolvable
		if pl.store.CouldEvict(s.decision, group) {
			r.code = fwk.Unschedulable
		}
	})
	if !s.evicting {
		pl.wait(s, pod, group)
	}
	return fwk.NewStatus(r.code, r.reason)
}

// wait has the pod wait until the group opens, or until nothing keeps it out of one that is open.
func (pl *Plugin) wait(s *preFilterState, pod *v1.Pod, group policystore.Group) {
	once, yields := &s.cycle.waits, !s.member && s.taken.Allows(group)
	if yields {
		once = &s.cycle.yields
	}
	once.Do(func() {
		pl.waiting.Add(waiting.Pod{Pod: pod, Decision: s.taken, Member: s.member, Yields: yields})
	})
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
