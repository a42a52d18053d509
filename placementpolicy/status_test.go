package placementpolicy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

// conditions are reasons and messages by type.
func conditions(status v1alpha1.PlacementPolicyStatus) map[string]string {
	all := map[string]string{}
	for _, c := range status.Conditions {
		all[c.Type] = string(c.Status) + " " + c.Reason + ": " + c.Message
	}
	return all
}

func TestStatusOf(t *testing.T) {
	cohort := func(qualifying, managed, other, target int) policystore.Cohort {
		return policystore.Cohort{Qualifying: qualifying, Size: qualifying, Managed: managed, Other: other, Target: target}
	}
	for name, tt := range map[string]struct {
		cohorts   []policystore.Cohort
		waiting   bool
		onTarget  string
		offTarget int
	}{
		"no pods": {nil, false, "True OnTarget: 0 of 0 pods are in the target group, where 0 belong", 0},
		"exact":   {[]policystore.Cohort{cohort(10, 4, 6, 4)}, false, "True OnTarget: 4 of 10 pods are in the target group, where 4 belong", 0},
		"pending": {[]policystore.Cohort{cohort(10, 3, 5, 4)}, false, "False PodsPending: 3 of 10 pods are in the target group, where 4 belong; 2 pods are yet to be placed", 1},
		"no room": {[]policystore.Cohort{cohort(10, 0, 6, 4)}, true,
			"False NoRoom: 0 of 10 pods are in the target group, where 4 belong; 4 pods wait, because the group that is open to them has no room", 1},
		"drift after a scale-down": {[]policystore.Cohort{cohort(5, 4, 1, 2)}, false,
			"False Drift: 4 of 5 pods are in the target group, where 2 belong; all pods are placed, and the next ones will be so as to repair it", 1},
		"one of two cohorts": {[]policystore.Cohort{cohort(10, 4, 6, 4), cohort(5, 4, 1, 2)}, false,
			"False Drift: 8 of 15 pods are in the target group, where 6 belong; 1 of 2 cohorts are off target; all pods are placed, and the next ones will be so as to repair it", 1},
		"too many cohorts to list": {slices.Repeat([]policystore.Cohort{cohort(5, 4, 1, 2)}, 12), false,
			"False Drift: 48 of 60 pods are in the target group, where 24 belong; 12 of 12 cohorts are off target; all pods are placed, and the next ones will be so as to repair it",
			v1alpha1.MaxOffTargetCohorts},
	} {
		t.Run(name, func(t *testing.T) {
			status := statusOf(v1alpha1.PlacementPolicyStatus{}, 7, policystore.PolicyInfo{Cohorts: tt.cohorts}, tt.waiting)
			assert.Equal(t, map[string]string{
				"Accepted":   "True Valid: the policy is valid",
				"OnTarget":   tt.onTarget,
				"Conflicted": "False NoConflict: the policy governs all pods that it selects",
			}, conditions(status))
			assert.Len(t, status.OffTargetCohorts, tt.offTarget)
			assert.EqualValues(t, len(tt.cohorts), status.Cohorts)
			assert.EqualValues(t, 7, status.ObservedGeneration)
		})
	}

	t.Run("invalid", func(t *testing.T) {
		status := statusOf(v1alpha1.PlacementPolicyStatus{}, 1, policystore.PolicyInfo{Err: errors.New("bad size")}, false)
		assert.Equal(t, map[string]string{
			"Accepted":   "False Invalid: bad size",
			"OnTarget":   "Unknown Invalid: an invalid policy governs no pods",
			"Conflicted": "Unknown Invalid: an invalid policy governs no pods",
		}, conditions(status))
	})

	t.Run("overruled by many", func(t *testing.T) {
		by := map[types.NamespacedName]int{}
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			by[types.NamespacedName{Namespace: "default", Name: name}] = 1
		}
		status := statusOf(v1alpha1.PlacementPolicyStatus{}, 1, policystore.PolicyInfo{OverruledBy: by}, false)
		assert.Equal(t, "True Overruled: other policies, of more weight or with precedence, govern pods that it selects: a, b, c and 2 more",
			conditions(status)["Conflicted"])
	})
}

// wait lets d pass, and returns the statuses that were written in it.
func (w *world) wait(d time.Duration) []v1alpha1.PlacementPolicyStatus {
	time.Sleep(d)
	synctest.Wait()
	w.statusMu.Lock()
	defer w.statusMu.Unlock()
	written := w.written
	w.written = nil
	return written
}

// refuse has the API server answer with the error to what follows.
func (w *world) refuse(err error) {
	w.statusMu.Lock()
	defer w.statusMu.Unlock()
	w.refuseStatus = err
}

func TestStatusIsWrittenAtMostOnceASecondAndOnlyIfItChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.setPolicy("web-on-spot", strict40)
		pods := w.addPods(10)
		w.reserve(pods[0], "o1") // so it leads
		w.wait(2 * standbyDelay)

		for _, pod := range pods[1:4] {
			w.reserve(pod, "o1")
		}
		written := w.wait(statusDelay)
		require.Len(t, written, 1)
		assert.EqualValues(t, 4, written[0].OtherPods)
		assert.Empty(t, w.wait(time.Minute), "nothing changes")

		w.addPods(1)
		w.pods.remove(w.get("web-10"))
		assert.Empty(t, w.wait(time.Minute), "it is as it was")
	})
}

func TestStatusesOfManyPoliciesAreWrittenAtALimitedRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.setPolicy("web-on-spot", strict40)
		w.reserve(w.addPods(1)[0], "o1") // so it leads
		w.wait(time.Minute)

		for i := range 100 {
			w.setPolicy(fmt.Sprint("policy-", i), strict40)
		}
		burst := len(w.wait(statusDelay))
		assert.Equal(t, statusBurst+1, burst)
		assert.InDelta(t, statusQPS, len(w.wait(time.Second)), 1)
		rest := len(w.wait(time.Minute))
		assert.Greater(t, rest, 60)
	})
}

func TestStatusOfAStandbyIsWrittenOnlyIfNobodyElseDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		policy := w.setPolicy("web-on-spot", strict40)
		assert.Empty(t, w.wait(standbyDelay))
		for range 3 { // the leader writes something
			policy = policy.DeepCopy()
			policy.SetResourceVersion(policy.GetResourceVersion() + "1")
			w.policies.set(policy)
			assert.Empty(t, w.wait(standbyDelay))
		}
		assert.Len(t, w.wait(standbyDelay), 1)
	})
}

// onTarget is the condition that the policy web-on-spot has.
func (w *world) onTarget() string {
	policy, ok, err := w.policies.GetStore().GetByKey(webOnSpot.String())
	require.NoError(w.t, err)
	require.True(w.t, ok)
	return conditions(statusIn(policy.(*unstructured.Unstructured)))[v1alpha1.ConditionOnTarget]
}

func TestStatusSaysThatPodsWaitAlsoIfNothingElseChanges(t *testing.T) {
	const noRoom = "False NoRoom: 0 of 10 pods are in the target group, where 4 belong; 4 pods wait, because the group that is open to them has no room"
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.setPolicy("web-on-spot", strict40)
		pods := w.addPods(10)
		for _, pod := range pods[:6] {
			w.reserve(pod, "o1")
		}
		w.wait(2 * standbyDelay)
		require.Contains(t, w.onTarget(), "PodsPending")
		require.False(t, w.filter(pods[6], "o1")[0].IsSuccess())
		w.wait(2 * standbyDelay)
		assert.Equal(t, noRoom, w.onTarget())

		// A standby does not know that they wait, and leaves it so.
		w.status.leads.Store(false)
		w.waiting.Remove(pods[6])
		w.status.policyChanged(webOnSpot)
		w.wait(3 * standbyDelay)
		assert.Equal(t, noRoom, w.onTarget())
	})
}

func TestStatusIsWrittenAgainAfterAFailure(t *testing.T) {
	resource := v1alpha1.Resource().GroupResource()
	for name, tt := range map[string]struct {
		err   error
		after time.Duration
	}{
		"conflict":            {apierrors.NewConflict(resource, "web-on-spot", errors.New("changed")), statusDelay},
		"no answer":           {errors.New("connection refused"), statusDelay},
		"no such subresource": {apierrors.NewNotFound(resource, "web-on-spot"), refusedDelay},
		"not permitted":       {apierrors.NewForbidden(resource, "web-on-spot", errors.New("no such role")), refusedDelay},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.setPolicy("web-on-spot", strict40)
				w.refuse(tt.err)
				w.reserve(w.addPods(1)[0], "o1")
				require.Empty(t, w.wait(2*standbyDelay))
				w.refuse(nil)
				assert.Empty(t, w.wait(tt.after-2*standbyDelay))
				assert.Len(t, w.wait(2*standbyDelay), 1)
			})
		})
	}
}

func TestAnInvalidPolicyIsReportedOncePerChange(t *testing.T) {
	const reported = "default/web-on-spot Warning Invalid Validating: it governs no pods until it is mended: "
	for name, refused := range map[string]error{
		"status is written":         nil,
		"status may not be written": apierrors.NewForbidden(v1alpha1.Resource().GroupResource(), "web-on-spot", errors.New("no such role")),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.refuse(refused)
				w.setPolicy("web-on-spot", invalid)
				w.wait(3 * standbyDelay)
				recorded := w.handle.recorder.recorded()
				require.Len(t, recorded, 1)
				assert.Contains(t, recorded[0], reported+`invalid placement policy default/web-on-spot: spec.policy.targetSize: Invalid value: "140%"`)

				w.addPods(1)
				w.wait(3 * standbyDelay)
				assert.Empty(t, w.handle.recorder.recorded())

				w.setPolicy("web-on-spot", `{podSelector: {}, nodeSelector: {}, weight: heavy}`)
				w.wait(3 * standbyDelay)
				recorded = w.handle.recorder.recorded()
				require.Len(t, recorded, 1)
				assert.Contains(t, recorded[0], reported+"decoding placement policy default/web-on-spot")

				w.setPolicy("web-on-spot", strict40)
				w.wait(3 * standbyDelay)
				assert.Empty(t, w.handle.recorder.recorded())
			})
		})
	}
}

// The API server refuses longer ones.
func TestALongErrorIsCutForEventAndCondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.setPolicy("web-on-spot", `{podSelector: {}, nodeSelector: {}, matchLabelKeys: [`+strings.Repeat(`"not a key", `, 200)+`]}`)
		written := w.wait(3 * standbyDelay)
		require.Len(t, written, 1)
		assert.Len(t, meta.FindStatusCondition(written[0].Conditions, v1alpha1.ConditionAccepted).Message, 32768)
		recorded := w.handle.recorder.recorded()
		require.Len(t, recorded, 1)
		assert.Len(t, recorded[0], len("default/web-on-spot Warning Invalid Validating: ")+1024)
	})
}

func TestConflictIsReportedOncePerChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.setPolicy("web-on-spot", strict40)
		w.addPods(5)
		w.wait(3 * standbyDelay)
		require.Empty(t, w.handle.recorder.recorded())

		w.setPolicy("heavier", heavier)
		w.addPods(5)
		w.wait(3 * standbyDelay)
		w.addPods(5)
		w.wait(3 * standbyDelay)
		assert.Equal(t, []string{"default/web-on-spot Warning Conflicted Governing: other policies, of more weight or with precedence, govern pods that it selects: heavier"},
			w.handle.recorder.recorded())

		w.removePolicy("heavier")
		w.wait(3 * standbyDelay)
		status := statusIn(w.policies.GetStore().List()[0].(*unstructured.Unstructured))
		assert.True(t, meta.IsStatusConditionFalse(status.Conditions, v1alpha1.ConditionConflicted))
		assert.Empty(t, w.handle.recorder.recorded())
	})
}

func TestStatusThatCannotBeReadIsWrittenAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		policy := policyObject(t, "web-on-spot", strict40)
		policy.Object["status"] = map[string]any{"qualifyingPods": "many"}
		w.policies.set(policy)
		_, governed := w.Store().Decide(w.addPods(1)[0])
		require.True(t, governed)
		written := w.wait(3 * standbyDelay)
		require.Len(t, written, 1)
		assert.EqualValues(t, 1, written[0].QualifyingPods)
	})
}
