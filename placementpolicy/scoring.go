package placementpolicy

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

const preScoreStateKey fwk.StateKey = "PreScore" + Name

// preScoreState is the decision that nodes are scored by. It is immutable.
type preScoreState struct {
	decision policystore.Decision
}

// Clone returns the state itself, which nothing changes.
func (s *preScoreState) Clone() fwk.StateData { return s }

// PreScore takes the decision that nodes are scored by. It needs nothing from PreFilter: a profile may enable the score
// points alone, which makes a Strict policy weaker, but not void.
func (pl *Plugin) PreScore(ctx context.Context, state fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	if s, err := readPreFilterState(state); err == nil && s.keptTo != nil && s.elsewhere == "" {
		return fwk.NewStatus(fwk.Skip) // all nodes are of the preferred group
	}
	if err := pl.waitForSync(ctx); err != nil {
		return fwk.AsStatus(err)
	}
	decision, governed := pl.store.Decide(pod)
	if !governed {
		return fwk.NewStatus(fwk.Skip)
	}
	if !isFiltered(state) {
		pl.reportNotFiltered(ctx, decision)
	}
	state.Write(preScoreStateKey, &preScoreState{decision: decision})
	return nil
}

// reportNotFiltered says, once for each policy, that the profile enables Filter without PreFilter, or neither.
func (pl *Plugin) reportNotFiltered(ctx context.Context, decision policystore.Decision) {
	if decision.EnforcementMode() == policystore.Strict {
		pl.report.NotFiltered(
			ctx,
			decision.Policy,
			"scheduler profile "+pl.handle.ProfileName()+" enables plugin "+Name+
				" without its preFilter and filter points",
		)
	}
}

// Score gives the full score to the nodes of the preferred group, and none to the others.
func (pl *Plugin) Score(_ context.Context, state fwk.CycleState, _ *v1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	data, err := state.Read(preScoreStateKey)
	if err != nil {
		return 0, fwk.AsStatus(fmt.Errorf("reading %q from cycle state: %w", preScoreStateKey, err))
	}
	s, ok := data.(*preScoreState)
	if !ok {
		return 0, fwk.AsStatus(
			fmt.Errorf("reading %q from cycle state: expected %T, got %T", preScoreStateKey, s, data),
		)
	}
	if s.decision.GroupOf(node.Node().Labels) == s.decision.Preferred {
		return fwk.MaxNodeScore, nil
	}
	return fwk.MinNodeScore, nil
}

// ScoreExtensions returns nil: scores are final, since normalizing them would give a lone group the full score.
func (pl *Plugin) ScoreExtensions() fwk.ScoreExtensions { return nil }
