package main

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

const (
	makeWayName                  = "makeway"
	makeWayStateKey fwk.StateKey = makeWayName
)

// makeWay has pods that no policy governs leave the nodes of target groups to those that are meant for them, if there
// is room elsewhere. It goes through all policies once for each such pod, which is well for dozens of them; for
// thousands, keep what is needed of each up to date by policystore.Store.Subscribe.
type makeWay struct {
	store *policystore.Store
}

var (
	_ fwk.PreScorePlugin = &makeWay{}
	_ fwk.ScorePlugin    = &makeWay{}
	_ fwk.SignPlugin     = &makeWay{}
)

// makeWayState is all policies. It is immutable.
type makeWayState []policystore.PolicyInfo

// Clone returns the state itself, which nothing changes.
func (s makeWayState) Clone() fwk.StateData { return s }

func (*makeWay) Name() string { return makeWayName }

// PreScore leaves pods with a policy to the placement policy plugin. By the time of it the store knows all policies,
// since that plugin's PreFilter has waited for them.
func (pl *makeWay) PreScore(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	if _, governed := pl.store.Decide(pod); governed {
		return fwk.NewStatus(fwk.Skip)
	}
	var policies makeWayState
	for _, key := range pl.store.Policies() {
		if info, ok := pl.store.Policy(key); ok && info.Err == nil {
			policies = append(policies, info)
		}
	}
	state.Write(makeWayStateKey, policies)
	return nil
}

// Score gives nothing to the nodes that a policy wants pods on, and the full score to the others.
func (pl *makeWay) Score(_ context.Context, state fwk.CycleState, _ *v1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	data, err := state.Read(makeWayStateKey)
	if err != nil {
		return 0, fwk.AsStatus(fmt.Errorf("reading %q from cycle state: %w", makeWayStateKey, err))
	}
	for _, policy := range data.(makeWayState) {
		if policy.GroupOf(node.Node().Labels) == policystore.Target {
			return fwk.MinNodeScore, nil
		}
	}
	return fwk.MaxNodeScore, nil
}

func (*makeWay) ScoreExtensions() fwk.ScoreExtensions { return nil }

// SignPod adds nothing to a pod's signature: the placement policy plugin's says what governs the pod. Without this
// method the scheduler would place no pods of the profile in batches.
func (*makeWay) SignPod(context.Context, *v1.Pod) ([]fwk.SignFragment, *fwk.Status) { return nil, nil }
