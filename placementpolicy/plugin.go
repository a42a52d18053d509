package placementpolicy

import (
	"context"
	"fmt"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

// Name is the plugin's name in the scheduler's registry and configuration.
const Name = "placementpolicy"

// Plugin enforces placement policies in one scheduler profile. All profiles of a scheduler share their state.
type Plugin struct {
	*shared
	handle fwk.Handle
	// scoresAllNodes: the profile's percentageOfNodesToScore is 100.
	scoresAllNodes bool
	// permits: the profile enables the plugin's Permit point.
	permits atomic.Bool
}

var (
	_ fwk.PreFilterPlugin   = &Plugin{}
	_ fwk.FilterPlugin      = &Plugin{}
	_ fwk.PostFilterPlugin  = &Plugin{}
	_ fwk.PreScorePlugin    = &Plugin{}
	_ fwk.ScorePlugin       = &Plugin{}
	_ fwk.ReservePlugin     = &Plugin{}
	_ fwk.PermitPlugin      = &Plugin{}
	_ fwk.EnqueueExtensions = &Plugin{}
	_ fwk.SignPlugin        = &Plugin{}
)

// New is the plugin's factory, for app.WithPlugin of k8s.io/kubernetes/cmd/kube-scheduler/app:
//
//	app.NewSchedulerCommand(app.WithPlugin(placementpolicy.Name, placementpolicy.New))
//
// The plugin takes no arguments. The factory fails if the PlacementPolicy resource is not installed or may not be
// listed; if the API server does not answer it tries for half a minute.
func New(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	return NewWithStore(policystore.New())(ctx, args, handle)
}

// NewWithStore returns a factory like New whose plugin keeps its state in the given store, for embedders that read it
// too. The plugin feeds the store. A scheduler has one store: where several profiles enable the plugin, the first
// one's.
func NewWithStore(store *policystore.Store) func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		if args != nil {
			return nil, fmt.Errorf(
				"creating plugin %s: it takes no arguments, but pluginConfig has some (%T): remove them",
				Name,
				args,
			)
		}
		s, err := sharedFor(ctx, handle, store)
		if err != nil {
			return nil, fmt.Errorf("creating plugin %s: %w", Name, err)
		}
		return newPlugin(s, handle), nil
	}
}

func newPlugin(s *shared, handle fwk.Handle) *Plugin {
	// The framework does not hand this out, but its handle has it, where the profile says it. What the scheduler's
	// configuration says for all profiles stays unknown.
	profile, ok := handle.(interface{ PercentageOfNodesToScore() *int32 })
	all := ok && ptr.Deref(profile.PercentageOfNodesToScore(), 0) >= 100
	return &Plugin{shared: s, handle: handle, scoresAllNodes: all}
}

// Name implements fwk.Plugin.
func (pl *Plugin) Name() string { return Name }

// Store returns the store that the plugin feeds and asks, which other plugins of the same scheduler may read.
func (pl *Plugin) Store() *policystore.Store { return pl.store }

// EventsToRegister names the events after which the scheduler asks whether a pod that the plugin rejected is worth
// another attempt. Only nodes are among them. Of what else can help, most has no event: other pending pods raise the
// targets. And where there is one (assigned pods, the pod's own labels, policies), the scheduler may ask before the
// plugin's own handler has seen it. So for all of that the plugin activates the pods itself: see package waiting.
func (pl *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		// A new node, or one whose labels have changed, may be in a group that is open for the pod.
		{
			Event:          fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeLabel},
			QueueingHintFn: pl.isSchedulableAfterNodeChange,
		},
	}, nil
}

func (pl *Plugin) isSchedulableAfterNodeChange(
	logger klog.Logger,
	pod *v1.Pod,
	oldObj, newObj any,
) (fwk.QueueingHint, error) {
	node, ok := newObj.(*v1.Node)
	if !ok {
		return fwk.Queue, fmt.Errorf("converting the new object of a node event: expected *v1.Node, got %T", newObj)
	}
	decision, governed := pl.store.Decide(pod)
	if !governed || !pl.feeder.Synced() {
		return fwk.Queue, nil
	}
	group := decision.GroupOf(node.Labels)
	logger = logger.WithValues("pod", klog.KObj(pod), "node", klog.KObj(node), "group", decision.GroupName(group))
	if !decision.Allows(group) {
		logger.V(5).Info("node is in a group that is full for the pod, or in none")
		return fwk.QueueSkip, nil
	}
	if old, ok := oldObj.(*v1.Node); ok && old != nil && decision.GroupOf(old.Labels) == group {
		logger.V(5).Info("node stays in its group")
		return fwk.QueueSkip, nil
	}
	logger.V(5).Info("node is in a group that is open for the pod")
	return fwk.Queue, nil
}

// SignPod lets the scheduler place pods by a cached result only where no placement changes the result for the next pod:
// if no policy governs the pod, or one that wants all pods in one group.
func (pl *Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if !pl.feeder.Synced() {
		return nil, fwk.NewStatus(fwk.Unschedulable, "placement policies are not loaded yet")
	}
	decision, governed := pl.store.Decide(pod)
	group, ok := decision.OnlyGroup()
	if governed && !ok {
		return nil, fwk.NewStatus(fwk.Unschedulable, "each placement changes the counts of the pod's placement policy")
	}
	pl.narrowing.signs.Store(true)
	if !governed {
		return nil, nil
	}
	return []fwk.SignFragment{{Key: Name, Value: decision.Policy.String() + " " + decision.GroupName(group)}}, nil
}
