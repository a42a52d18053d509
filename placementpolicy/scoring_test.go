package placementpolicy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"

	framework "github.com/placement-policy/scheduler-plugin/internal/fwktest"
)

// score passes the pod through the score points alone.
func (w *world) score(pod *v1.Pod, node string) int64 {
	state := framework.NewCycleState()
	require.True(w.t, w.PreScore(w.ctx, state, pod, nil).IsSuccess())
	score, status := w.Score(w.ctx, state, pod, w.nodeInfo(node))
	require.True(w.t, status.IsSuccess(), "Score: %v", status)
	return score
}

// Ten pods, one after the other, each where the score is best: 4 of 10 on spot, and exact after each of them.
func TestScorePrefersTheGroupThatKeepsTheRatioExact(t *testing.T) {
	for name, spec := range map[string]string{"Strict": strict40, "BestEffort": bestEffort40, "MustNot": strictNot60} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.setPolicy("web-on-spot", spec)
			var got []string
			for _, pod := range w.addPods(10) {
				m, o := w.score(pod, "m1"), w.score(pod, "o1")
				assert.ElementsMatch(t, []int64{0, 100}, []int64{m, o})
				assert.Equal(t, m, w.score(pod, "m2"))
				node := "o1"
				if m > o {
					node = "m1"
				}
				got = append(got, node)
				w.reserve(pod, node)
			}
			want := []string{"o1", "o1", "m1", "o1", "m1", "o1", "o1", "m1", "o1", "m1"}
			if name == "MustNot" { // 60 % rounded down: the target group is o1 and o2 here
				want = []string{"m1", "o1", "m1", "o1", "o1", "m1", "o1", "m1", "o1", "o1"}
			}
			assert.Equal(t, want, got)
		})
	}
}

func TestPreScoreSkipsPodsThatNoPolicyGoverns(t *testing.T) {
	w := newWorld(t)
	w.setPolicy("web-on-spot", strict40)
	status := w.PreScore(w.ctx, framework.NewCycleState(), webPod("p").Label("app", "db").Obj(), nil)
	assert.Equal(t, fwk.Skip, status.Code())
}

// The framework gives the best node of the group 100 however bad it is, if scores are normalized.
func TestScoresAreNotNormalized(t *testing.T) {
	assert.Nil(t, newWorld(t).ScoreExtensions())
}

func TestScoreDoesNotUseThePreFilterDecision(t *testing.T) {
	w := newWorld(t)
	w.setPolicy("web-on-spot", strict40)
	pods := w.addPods(10)
	state, _ := w.preFilter(pods[0])
	w.reserve(pods[1], "o1")
	w.reserve(pods[2], "o1")
	require.True(t, w.PreScore(w.ctx, state, pods[0], nil).IsSuccess())
	score, _ := w.Score(w.ctx, state, pods[0], w.nodeInfo("m1"))
	assert.Equal(t, fwk.MaxNodeScore, score, "the third pod goes to the target group")
}

func TestAStrictPolicyThatIsOnlyScoredIsReportedOnce(t *testing.T) {
	w := newWorld(t)
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	w.ctx = klog.NewContext(w.ctx, logger)
	reports := func() (log int, events []string) {
		for _, entry := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
			if entry.Message == "Strict placement policy acts as BestEffort" {
				log++
			}
		}
		return log, w.handle.recorder.recorded()
	}

	w.setPolicy("web-on-spot", strict40)
	w.score(webPod("p").Obj(), "m1")
	w.score(webPod("q").Obj(), "m1")
	log, events := reports()
	assert.Equal(t, 1, log)
	assert.Equal(
		t,
		[]string{"default/web-on-spot Warning NotFiltered Scheduling: it acts as BestEffort: scheduler profile " +
			"default-scheduler enables plugin placementpolicy without its preFilter and filter points"},
		events,
	)

	w.removePolicy("web-on-spot")
	another := policyObject(t, "web-on-spot", strict40)
	another.SetUID("another")
	w.policies.set(another)
	w.score(webPod("p").Obj(), "m1")
	assert.Len(t, w.handle.recorder.recorded(), 1, "another policy of the same name")

	replaced := policyObject(t, "web-on-spot", strict40)
	w.policies.set(replaced)
	w.score(webPod("p").Obj(), "m1")
	assert.Len(t, w.handle.recorder.recorded(), 1, "another policy of the same name, in one update")
}

func TestNotFilteredIsNotSaid(t *testing.T) {
	tests := []struct {
		name          string
		before, after string // the spec of the policy at PreFilter and at PreScore
		filtered      bool
	}{
		{"of a Strict policy that is filtered", strict40, strict40, true},
		{"of a policy that becomes Strict in the middle of the cycle", bestEffort40, strict40, true},
		{"of a BestEffort policy", bestEffort40, bestEffort40, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			pod := webPod("p").Obj()
			state := fwk.CycleState(framework.NewCycleState())
			w.setPolicy("web-on-spot", tt.before)
			if tt.filtered {
				state = w.filteredFor(pod, "o1")
			}
			w.setPolicy("web-on-spot", tt.after)
			assert.True(t, w.PreScore(w.ctx, state, pod, nil).IsSuccess())
			assert.Empty(t, w.handle.recorder.recorded())
		})
	}
}
