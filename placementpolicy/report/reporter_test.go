package report

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
)

var (
	policyResource = v1alpha1.Resource().GroupResource()
	notValid       = apierrors.NewInvalid(schema.GroupKind{Kind: "PlacementPolicy"}, "web-on-spot", nil)
	forbidden      = apierrors.NewForbidden(policyResource, "web-on-spot", errors.New("no such role"))
)

func TestAStatusIsWrittenAtMostOnceASecondAndOnlyIfItChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := running(t)
		w.Schedules()
		w.setPolicy("web-on-spot", strict40)
		w.addPods(9, "")
		w.pass(time.Minute)

		for range 3 {
			w.addPods(1, "o")
			time.Sleep(100 * time.Millisecond)
		}
		written := w.pass(writeDelay)
		require.Len(t, written, 1)
		assert.EqualValues(t, 3, written[0].OtherPods)
		assert.Empty(t, w.pass(time.Minute), "nothing changes")

		pod := w.addPods(1, "")[0]
		w.Store.RemovePod(pod.UID)
		assert.Empty(t, w.pass(time.Minute), "it is as it was")
	})
}

func TestAStatusIsAppliedAsAWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := running(t)
		w.Schedules()
		w.setPolicy("web-on-spot", strict40)
		written := w.pass(time.Minute)
		require.Len(t, written, 1)
		assert.Equal(t, FieldManager, written[0].manager)
		object := written[0].object
		assert.EqualValues(t, "uid-of-web-on-spot", object.GetUID(), "no other policy of that name gets it")
		assert.NotContains(t, object.Object, "spec")
		cohorts, found, err := unstructured.NestedSlice(object.Object, "status", "offTargetCohorts")
		require.NoError(t, err)
		assert.True(t, found, "what another manager wrote there would stay")
		assert.Empty(t, cohorts)
	})
}

func TestConditionsOfOthersAreLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := running(t)
		w.Schedules()
		w.setPolicy("web-on-spot", strict40)
		w.pass(time.Minute)
		obj, _, _ := w.cache.GetByKey(webOnSpot.String())
		policy := obj.(*unstructured.Unstructured).DeepCopy()
		conditions, _, _ := unstructured.NestedSlice(policy.Object, "status", "conditions")
		conditions = append(conditions, map[string]any{"type": "Approved", "status": "True", "reason": "Reviewed"})
		require.NoError(t, unstructured.SetNestedSlice(policy.Object, conditions, "status", "conditions"))
		require.NoError(t, w.cache.Update(policy))

		w.PolicyChanged(webOnSpot)
		assert.Empty(t, w.pass(time.Minute))
		w.addPods(1, "o")
		written := w.pass(time.Minute)
		require.Len(t, written, 1)
		assert.Len(t, written[0].Conditions, 3)
	})
}

func TestAReplicaThatDoesNotScheduleLeavesTheCountsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leader, standby := running(t), running(t)
		leader.cache = standby.cache
		leader.Policies = standby.cache
		leader.Schedules()
		standby.setPolicy("web-on-spot", strict40)
		leader.setPolicy("web-on-spot", strict40)
		leader.addPods(6, "o")
		leader.addPods(4, "m")
		standby.addPods(10, "") // reserved by the leader, or its informers are behind
		written := leader.pass(time.Minute)
		require.NotEmpty(t, written)
		assert.Empty(t, standby.pass(0))
		assert.EqualValues(t, 4, standby.status("web-on-spot").ManagedPods)

		standby.setPolicy("heavier", heavier)
		written = standby.pass(time.Minute)
		require.NotEmpty(t, written)
		for _, update := range written {
			assert.Equal(t, specFieldManager, update.manager)
			status := update.object.Object["status"].(map[string]any)
			assert.Len(t, status, 1, "only conditions")
			assert.Nil(t, meta.FindStatusCondition(update.Conditions, v1alpha1.ConditionOnTarget))
		}
		status := standby.status("web-on-spot")
		assert.True(t, meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionConflicted))
		assert.EqualValues(t, 4, status.ManagedPods)
		assert.True(t, meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionOnTarget))

		standby.Schedules()
		standby.pass(time.Minute)
		assert.Zero(t, standby.status("web-on-spot").ManagedPods, "now it writes what it knows, though nothing changes")
	})
}

func TestAChangeThatIsTakenBackIsWrittenThoughTheInformerIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := running(t)
		w.Schedules()
		w.setPolicy("web-on-spot", strict40)
		w.pass(time.Minute)
		w.lags = true
		pod := w.addPods(1, "o")[0]
		require.Len(t, w.pass(time.Minute), 1)
		w.PolicyChanged(webOnSpot)
		require.Empty(t, w.pass(time.Minute))
		w.Store.RemovePod(pod.UID)
		written := w.pass(time.Minute)
		require.Len(t, written, 1, "for the informer nothing has changed")
		assert.Zero(t, written[0].OtherPods)

		w.lags = false
		obj, _, _ := w.cache.GetByKey(webOnSpot.String())
		policy := obj.(*unstructured.Unstructured).DeepCopy()
		policy.SetResourceVersion("newer")
		policy.Object["status"] = nil
		require.NoError(t, w.cache.Update(policy))
		w.PolicyChanged(webOnSpot)
		assert.Len(t, w.pass(time.Minute), 1, "what the informer shows counts again")
	})
}

func TestNothingIsWrittenBeforeAllIsLoaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.synced.Store(false)
		w.setPolicy("web-on-spot", strict40)
		w.Schedules()
		go w.Run(t.Context())
		assert.Empty(t, w.pass(time.Minute))
		w.addPods(10, "m")
		w.synced.Store(true)
		written := w.pass(time.Minute)
		require.Len(t, written, 1)
		assert.EqualValues(t, 10, written[0].ManagedPods)
	})
}

// The status says so although nothing in the store has changed.
func TestThatPodsWaitIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := running(t)
		w.Schedules()
		w.setPolicy("web-on-spot", strict40)
		w.addPods(6, "o")
		w.addPods(4, "")
		w.pass(time.Minute)
		w.waiting.Store(true)
		w.PolicyChanged(webOnSpot)
		written := w.pass(time.Minute)
		require.Len(t, written, 1)
		onTarget := meta.FindStatusCondition(written[0].Conditions, v1alpha1.ConditionOnTarget)
		assert.Equal(t, v1alpha1.ReasonNoRoom, onTarget.Reason)
	})
}

func TestManyStatusesAreWrittenAtALimitedRateAndConditionsFirst(t *testing.T) {
	const policies = 2000
	synctest.Test(t, func(t *testing.T) {
		w := running(t)
		w.Schedules()
		name := func(i int) string { return fmt.Sprint("policy-", i) }
		pod := func(i, n int, node string) *v1.Pod {
			pod := w.addPods(1, node)[0]
			w.Store.RemovePod(pod.UID)
			pod.Labels = map[string]string{"app": name(i)}
			w.Store.AddPod(pod)
			return pod
		}
		for i := range policies {
			w.setPolicy(
				name(i),
				`{podSelector: {matchLabels: {app: `+name(i)+`}}, nodeSelector: {matchLabels: {spot: "true"}}}`,
			)
			pod(i, 0, "m")
		}
		assert.Len(t, w.pass(time.Minute), policies)

		// All have one pod more in the target group, as it should be; those of one have none.
		for i := range policies {
			pod(i, 1, "m")
		}
		w.pass(writeDelay + 2*time.Second)
		pod(7, 2, "o")
		urgent := w.pass(2 * writeDelay)
		assert.Less(t, len(urgent), 3*writeQPS, "the others are not through yet")
		found := false
		for _, update := range urgent {
			off := meta.IsStatusConditionFalse(update.Conditions, v1alpha1.ConditionOnTarget)
			found = found || off && update.policy == name(7)
		}
		assert.True(t, found, "a condition has changed")
		w.pass(time.Minute)
		for i := range policies {
			require.GreaterOrEqual(t, w.status(name(i)).ManagedPods, int32(2), name(i))
		}
	})
}

func TestAStatusThatIsRefusedIsTriedEverMoreSeldomWhateverChanges(t *testing.T) {
	for name, tt := range map[string]struct {
		err error
		max int // attempts in ten minutes
	}{
		"no such subresource": {apierrors.NewNotFound(policyResource, "web-on-spot"), 11},
		"not permitted":       {forbidden, 11},
		"not valid":           {notValid, 11},
		"no answer":           {errors.New("connection refused"), 26},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := running(t)
				w.Schedules()
				w.refuse(tt.err)
				w.meanwhile = func() { w.PolicyChanged(webOnSpot) }
				w.setPolicy("web-on-spot", strict40)
				for range 600 {
					w.addPods(1, "o")
					w.pass(time.Second)
				}
				tried := w.refuse(nil)
				assert.Greater(t, tried, 5)
				assert.LessOrEqual(t, tried, tt.max)

				written := w.pass(lastRetry)
				require.Len(t, written, 1)
				assert.EqualValues(t, 600, written[0].OtherPods)
				w.addPods(1, "o")
				assert.Len(t, w.pass(writeDelay), 1, "as before")
			})
		})
	}
}

func TestAPolicyThatIsGoneIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := running(t)
		w.Schedules()
		w.refuse(forbidden)
		w.setPolicy("web-on-spot", invalid)
		w.pass(10 * time.Second)
		w.NotFiltered(t.Context(), webOnSpot, "")
		w.removePolicy("web-on-spot")
		w.pass(2 * lastRetry)
		for name, left := range map[string]int{
			"changed": len(w.changed), "retryAt": len(w.retryAt), "told": len(w.told), "written": len(w.written),
			"unfiltered": len(w.unfiltered), "failures": w.failures.NumRequeues(webOnSpot),
			"in": len(w.urgency.in), "last": len(w.urgency.last),
		} {
			assert.Zero(t, left, name)
		}
	})
}

func TestAnInvalidPolicyIsReportedOncePerChange(t *testing.T) {
	const reported = "default/web-on-spot Warning Invalid Validating: it governs no pods until it is mended: "
	for name, refused := range map[string]error{
		"status is written":         nil,
		"status may not be written": forbidden,
		// as by the API server to an object that does not fit its schema
		"status cannot be written": apierrors.NewInternalError(errors.New("failed to create typed live object")),
	} {
		for _, schedules := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", schedules: ", schedules), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := running(t)
					if schedules {
						w.Schedules()
					}
					w.refuse(refused)
					w.setPolicy("web-on-spot", invalid)
					w.pass(2 * lastRetry)
					recorded := w.recorder.recorded()
					require.Len(t, recorded, 1)
					assert.Contains(t, recorded[0], reported+"invalid placement policy default/web-on-spot: "+
						`spec.policy.targetSize: Invalid value: "140%"`)

					w.addPods(1, "")
					w.pass(2 * lastRetry)
					assert.Empty(t, w.recorder.recorded())

					w.setPolicy("web-on-spot", wrongType)
					w.pass(2 * lastRetry)
					recorded = w.recorder.recorded()
					require.Len(t, recorded, 1)
					assert.Contains(t, recorded[0], reported+"decoding placement policy default/web-on-spot")

					w.setPolicy("web-on-spot", strict40)
					w.pass(2 * lastRetry)
					assert.Empty(t, w.recorder.recorded())
				})
			})
		}
	}
}

// The API server refuses longer ones.
func TestALongErrorIsCutForEventAndCondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := running(t)
		w.setPolicy("web-on-spot", strict40)
		w.Store.RejectPolicy(webOnSpot, errors.New(strings.Repeat("x", 100_000)))
		written := w.pass(time.Minute)
		require.Len(t, written, 1)
		assert.Len(t, meta.FindStatusCondition(written[0].Conditions, v1alpha1.ConditionAccepted).Message, 32768)
		recorded := w.recorder.recorded()
		require.Len(t, recorded, 1)
		assert.Len(t, recorded[0], len("default/web-on-spot Warning Invalid Validating: ")+1024)
	})
}

func TestAConflictIsReportedOncePerChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := running(t)
		w.Schedules()
		w.setPolicy("web-on-spot", strict40)
		w.addPods(5, "")
		w.pass(time.Minute)
		require.Empty(t, w.recorder.recorded())

		w.setPolicy("heavier", heavier)
		w.addPods(5, "")
		w.pass(time.Minute)
		w.addPods(5, "")
		w.pass(time.Minute)
		assert.Equal(
			t,
			[]string{"default/web-on-spot Warning Conflicted Governing: other policies, of more weight or with " +
				"precedence, govern pods that it selects: heavier"},
			w.recorder.recorded(),
		)

		w.removePolicy("heavier")
		w.pass(time.Minute)
		assert.True(t, meta.IsStatusConditionFalse(w.status("web-on-spot").Conditions, v1alpha1.ConditionConflicted))
		assert.Empty(t, w.recorder.recorded())
	})
}

func TestAStatusThatCannotBeReadIsWrittenAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := running(t)
		w.Schedules()
		w.setPolicy("web-on-spot", strict40)
		w.pass(time.Minute)
		obj, _, _ := w.cache.GetByKey(webOnSpot.String())
		policy := obj.(*unstructured.Unstructured).DeepCopy()
		policy.Object["status"] = map[string]any{"qualifyingPods": "many"}
		require.NoError(t, w.cache.Update(policy))
		w.addPods(1, "o")
		written := w.pass(time.Minute)
		require.Len(t, written, 1)
		assert.EqualValues(t, 1, written[0].QualifyingPods)
		assert.Len(t, written[0].Conditions, 3)
	})
}

func TestAConditionKeepsTheTimeOfItsLastChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := running(t)
		w.Schedules()
		w.setPolicy("web-on-spot", strict40)
		w.pass(time.Minute)
		since := meta.FindStatusCondition(
			w.status("web-on-spot").Conditions,
			v1alpha1.ConditionAccepted,
		).LastTransitionTime
		w.addPods(1, "m")
		w.pass(time.Minute)
		status := w.status("web-on-spot")
		accepted := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionAccepted)
		onTarget := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionOnTarget)
		assert.True(t, since.Equal(&accepted.LastTransitionTime))
		assert.True(t, since.Before(&onTarget.LastTransitionTime))
		assert.Equal(t, metav1.ConditionFalse, onTarget.Status)
	})
}
