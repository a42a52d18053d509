package placementpolicy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/internal/workers"
	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

const (
	// statusDelay gathers the changes of a policy's counts: so often is its status written at most.
	statusDelay = time.Second
	// standbyDelay is the delay of a scheduler that has scheduled nothing yet, since another replica leads, as a rule.
	standbyDelay = 5 * time.Second
	// refusedDelay is the time to the next attempt after the API server has refused one.
	refusedDelay = 5 * time.Minute
	// statusQPS and statusBurst bound the writes for all policies together, however many change at once.
	statusQPS   = 10
	statusBurst = 20
	// maxMessage is the length in bytes that the API server allows for a condition's message.
	maxMessage = 32768
)

// statusWriter writes the status of the policies, beside the scheduling cycles. All replicas of a scheduler have one, and
// come to the same status, but that only the leader knows whether pods wait. One that only stands by leaves it to the
// leader to write it: it does so itself if the same object has had a wrong status for long, as when the leader died and
// there is nothing to schedule.
type statusWriter struct {
	store    *policystore.Store
	policies cache.Store
	waiting  func(policy types.NamespacedName) bool
	update   func(ctx context.Context, policy *unstructured.Unstructured) error
	report   *reporter
	queue    workqueue.TypedDelayingInterface[types.NamespacedName]
	writes   flowcontrol.RateLimiter

	// leads: this instance schedules pods.
	leads atomic.Bool

	mu sync.Mutex // guards the two below
	// changed has the policies that wait in the queue: most changes come when their policy does already.
	changed sets.Set[types.NamespacedName]
	// wrong has the version of the policies whose status was found wrong in standby.
	wrong map[types.NamespacedName]string
}

func newStatusWriter(store *policystore.Store, policies cache.Store, waiting func(types.NamespacedName) bool, report *reporter,
	update func(context.Context, *unstructured.Unstructured) error) *statusWriter {
	return &statusWriter{
		store:    store,
		policies: policies,
		waiting:  waiting,
		update:   update,
		report:   report,
		queue:    workqueue.NewTypedDelayingQueue[types.NamespacedName](),
		writes:   flowcontrol.NewTokenBucketRateLimiter(statusQPS, statusBurst),
		changed:  sets.New[types.NamespacedName](),
		wrong:    map[types.NamespacedName]string{},
	}
}

// run writes statuses until ctx is done.
func (w *statusWriter) run(ctx context.Context) { workers.Run(ctx, 1, w.queue, w.write) }

// policyChanged is the store's subscriber.
func (w *statusWriter) policyChanged(policy types.NamespacedName) {
	w.mu.Lock()
	known := w.changed.Has(policy)
	w.changed.Insert(policy)
	w.mu.Unlock()
	if known {
		return
	}
	delay := standbyDelay
	if w.leads.Load() {
		delay = statusDelay
	}
	w.queue.AddAfter(policy, delay)
}

// write brings the policy's status up to date, if it is not. A status that could not be written is tried again.
func (w *statusWriter) write(ctx context.Context, key types.NamespacedName) {
	logger := klog.FromContext(ctx)
	w.mu.Lock()
	w.changed.Delete(key)
	w.mu.Unlock()
	obj, exists, err := w.policies.GetByKey(key.String())
	info, ok := w.store.Policy(key)
	if err != nil || !exists || !ok {
		w.forget(key)
		return
	}
	policy := obj.(*unstructured.Unstructured)
	old := statusIn(policy)
	waiting := w.waiting(key)
	if !w.leads.Load() { // only the leader knows
		onTarget := meta.FindStatusCondition(old.Conditions, v1alpha1.ConditionOnTarget)
		waiting = onTarget != nil && onTarget.Reason == v1alpha1.ReasonNoRoom
	}
	now := statusOf(old, policy.GetGeneration(), info, waiting)
	if apiequality.Semantic.DeepEqual(old, now) {
		w.forget(key)
		return
	}
	if !w.leads.Load() && !w.stillWrong(key, policy.GetResourceVersion()) {
		w.policyChanged(key)
		return
	}
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&now)
	if err != nil {
		logger.Error(err, "Converting the status of a placement policy", "placementPolicy", klog.KObj(policy))
		return
	}
	policy = policy.DeepCopy()
	policy.Object["status"] = status
	err = w.update(ctx, policy)
	_ = w.writes.Wait(ctx) // here, so that the next status is not worked out before it may be written
	switch {
	case err == nil:
		w.report.changed(policy, old.Conditions, now.Conditions)
	case apierrors.IsConflict(err): // somebody else has changed it, and the informer will show it
		w.policyChanged(key)
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		// Somebody has to do something, unless the API server has just started. The policy is enforced all the same.
		logger.Error(err, "Writing the status of a placement policy: is its CustomResourceDefinition of this version, and may the scheduler update placementpolicies/status, as in examples/deploy?",
			"placementPolicy", klog.KObj(policy))
		if info.Err != nil { // tell it all the same: it changes seldom
			w.report.changed(policy, old.Conditions, now.Conditions)
		} else {
			w.queue.AddAfter(key, refusedDelay)
		}
	case ctx.Err() == nil:
		logger.Error(err, "Writing the status of a placement policy; trying again", "placementPolicy", klog.KObj(policy))
		w.policyChanged(key)
	}
}

// stillWrong notes that this version of the policy has a wrong status, and reports whether that was noted before.
func (w *statusWriter) stillWrong(key types.NamespacedName, version string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, ok := w.wrong[key]
	w.wrong[key] = version
	return ok && before == version
}

func (w *statusWriter) forget(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.wrong, key)
}

// statusIn returns the status that the policy has. One that cannot be read is none: it will be written anew.
func statusIn(policy *unstructured.Unstructured) v1alpha1.PlacementPolicyStatus {
	var status v1alpha1.PlacementPolicyStatus
	object, _ := policy.Object["status"].(map[string]any)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &status); err != nil {
		return v1alpha1.PlacementPolicyStatus{}
	}
	return status
}

// statusOf returns the status of a policy of which the store knows info. waiting: pods wait because the policy keeps them out of a
// group. Conditions that stay as they are in the old status keep their time.
func statusOf(old v1alpha1.PlacementPolicyStatus, generation int64, info policystore.PolicyInfo, waiting bool) v1alpha1.PlacementPolicyStatus {
	now := v1alpha1.PlacementPolicyStatus{ObservedGeneration: generation, Conditions: slices.Clone(old.Conditions)}
	set := func(kind string, status metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&now.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: generation,
		})
	}
	if info.Err != nil {
		const nothing = "an invalid policy governs no pods"
		reason := info.Err.Error()
		set(v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonInvalid, reason[:min(len(reason), maxMessage)])
		set(v1alpha1.ConditionOnTarget, metav1.ConditionUnknown, v1alpha1.ReasonInvalid, nothing)
		set(v1alpha1.ConditionConflicted, metav1.ConditionUnknown, v1alpha1.ReasonInvalid, nothing)
		return now
	}
	set(v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonValid, "the policy is valid")

	off, missing := 0, 0
	for _, c := range info.Cohorts {
		now.QualifyingPods += int32(c.Qualifying)
		now.ManagedPods += int32(c.Managed)
		now.OtherPods += int32(c.Other)
		now.TargetPods += int32(c.Target)
		if c.Managed == c.Target {
			continue
		}
		off++
		missing += c.Size - c.Managed - c.Other
		if len(now.OffTargetCohorts) < v1alpha1.MaxOffTargetCohorts {
			now.OffTargetCohorts = append(now.OffTargetCohorts, v1alpha1.CohortStatus{
				Labels:         c.Labels,
				QualifyingPods: int32(c.Qualifying),
				ManagedPods:    int32(c.Managed),
				OtherPods:      int32(c.Other),
				TargetPods:     int32(c.Target),
			})
		}
	}
	now.Cohorts = int32(len(info.Cohorts))

	counts := fmt.Sprintf("%d of %d pods are in the target group, where %d belong", now.ManagedPods, now.QualifyingPods, now.TargetPods)
	if off > 0 && now.Cohorts > 1 {
		counts += fmt.Sprintf("; %d of %d cohorts are off target", off, now.Cohorts)
	}
	switch {
	case off == 0:
		set(v1alpha1.ConditionOnTarget, metav1.ConditionTrue, v1alpha1.ReasonOnTarget, counts)
	case waiting && missing > 0:
		set(v1alpha1.ConditionOnTarget, metav1.ConditionFalse, v1alpha1.ReasonNoRoom,
			fmt.Sprintf("%s; %d pods wait, because the group that is open to them has no room", counts, missing))
	case missing > 0:
		set(v1alpha1.ConditionOnTarget, metav1.ConditionFalse, v1alpha1.ReasonPodsPending,
			fmt.Sprintf("%s; %d pods are yet to be placed", counts, missing))
	default:
		set(v1alpha1.ConditionOnTarget, metav1.ConditionFalse, v1alpha1.ReasonDrift,
			counts+"; all pods are placed, and the next ones will be so as to repair it")
	}

	if len(info.OverruledBy) == 0 {
		set(v1alpha1.ConditionConflicted, metav1.ConditionFalse, v1alpha1.ReasonNoConflict, "the policy governs all pods that it selects")
	} else {
		set(v1alpha1.ConditionConflicted, metav1.ConditionTrue, v1alpha1.ReasonOverruled, overruledMessage(info.OverruledBy))
	}
	return now
}

// overruledMessage names the policies that govern pods instead, without their number, which changes often.
func overruledMessage(by map[types.NamespacedName]int) string {
	const most = 3
	names := make([]string, 0, len(by))
	for key := range by {
		names = append(names, key.Name)
	}
	slices.Sort(names)
	rest := ""
	if len(names) > most {
		rest = fmt.Sprintf(" and %d more", len(names)-most)
		names = names[:most]
	}
	return "other policies, of more weight or with precedence, govern pods that it selects: " + strings.Join(names, ", ") + rest
}
