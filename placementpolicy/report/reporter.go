package report

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/internal/workers"
	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

const (
	// writeDelay gathers the changes of a policy: so often is its status written at most.
	writeDelay = time.Second
	// laterDelay is the delay of a replica that does not schedule, as far as it knows: what it would write has often
	// been written by then.
	laterDelay = 5 * time.Second

	// writeQPS and writeBurst bound the writes for all policies together, however many change at once: about a tenth of
	// what a small API server takes, whose priority and fairness protects it beyond that.
	writeQPS   = 100
	writeBurst = 200
	writers    = 4
	// writeTimeout bounds one write.
	writeTimeout = 10 * time.Second

	// A write that has failed is tried again after firstRetry, and then ever later: up to lastRetry if the API server
	// has refused it, so that somebody has to do something, and else up to lastRetryUnanswered.
	firstRetry          = time.Second
	lastRetry           = 5 * time.Minute
	lastRetryUnanswered = 30 * time.Second
)

// Options are what a [Reporter] needs. What is not said to be optional is required.
type Options struct {
	Store *policystore.Store
	// Policies has the PlacementPolicy objects, unstructured, by namespace and name: that of an informer which
	// feeder.NewPolicyInformer makes.
	Policies cache.Store
	// Synced reports whether the store has all that was there at the start. Before that nothing is written.
	Synced func() bool
	// Client writes the statuses, for which it needs to patch placementpolicies/status. It should have no rate limit:
	// the reporter has one.
	Client dynamic.Interface
	// Recorder records events on policies. Nil, the default, records none.
	Recorder events.EventRecorder
	// Waiting reports whether pods wait which the policy keeps out of a group that has all its pods. When that begins
	// [Reporter.PolicyChanged] is to be called. Nil, the default: not known.
	Waiting func(policy types.NamespacedName) bool
}

// Reporter writes statuses and events, and its store's metrics are served by the legacy registry of
// k8s.io/component-base. Its methods are safe for concurrent use.
type Reporter struct {
	Options
	urgency  *byUrgency
	writes   flowcontrol.RateLimiter
	failures workqueue.TypedRateLimiter[types.NamespacedName]

	schedules atomic.Bool
	began     chan struct{} // closed when schedules becomes true

	mu sync.Mutex // guards what is below
	// queue is nil until Run makes it, and then stays.
	queue workqueue.TypedDelayingInterface[types.NamespacedName]
	// changed has the policies that are in the queue: most changes come when their policy is already.
	changed sets.Set[types.NamespacedName]
	// retryAt is when the status of a policy may be written again, after an attempt that has failed.
	retryAt map[types.NamespacedName]time.Time
	// written are statuses that the informer may yet have to show.
	written map[types.NamespacedName]writtenStatus
	// told is what was last told to be wrong with a policy: the status may not be written.
	told map[types.NamespacedName]string
	// unfiltered has the policies that NotFiltered was called for, by UID.
	unfiltered map[types.NamespacedName]types.UID
}

type writtenStatus struct {
	before string // the resource version that the informer showed then
	status v1alpha1.PlacementPolicyStatus
}

// New returns a reporter, which does nothing yet: see [Reporter.Run].
func New(options Options) *Reporter {
	if options.Waiting == nil {
		options.Waiting = func(types.NamespacedName) bool { return false }
	}
	return &Reporter{
		Options:    options,
		urgency:    newByUrgency(),
		writes:     flowcontrol.NewTokenBucketRateLimiter(writeQPS, writeBurst),
		failures:   workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRetry, lastRetry),
		began:      make(chan struct{}),
		changed:    sets.New[types.NamespacedName](),
		retryAt:    map[types.NamespacedName]time.Time{},
		written:    map[types.NamespacedName]writtenStatus{},
		told:       map[types.NamespacedName]string{},
		unfiltered: map[types.NamespacedName]types.UID{},
	}
}

// Run writes statuses and serves metrics until ctx is done. It may be called once.
func (r *Reporter) Run(ctx context.Context) {
	defer serveMetrics(r)()
	r.mu.Lock()
	r.queue = workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[types.NamespacedName]{
		Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[types.NamespacedName]{Queue: r.urgency}),
	})
	r.mu.Unlock()
	defer r.Store.Subscribe(r.PolicyChanged)()
	r.allChanged() // what the store knows already
	go func() {
		select {
		case <-r.began:
			r.allChanged() // of which it has not written the counts
		case <-ctx.Done():
		}
	}()
	workers.Run(ctx, writers, r.queue, r.write)
}

// Schedules tells the reporter that this program schedules pods. It costs next to nothing when called again.
func (r *Reporter) Schedules() {
	if !r.schedules.Load() && r.schedules.CompareAndSwap(false, true) {
		close(r.began)
	}
}

func (r *Reporter) allChanged() {
	for _, key := range r.Store.Policies() {
		r.PolicyChanged(key)
	}
}

// PolicyChanged has the policy's status written, soon, if it is not as it should be. The reporter hears from the
// store of what changes there.
func (r *Reporter) PolicyChanged(policy types.NamespacedName) {
	r.mu.Lock()
	known := r.queue == nil || r.changed.Has(policy)
	if !known {
		r.changed.Insert(policy)
	}
	r.mu.Unlock()
	if known { // or not running, and to be found when it is
		return
	}
	delay := laterDelay
	if r.schedules.Load() {
		delay = writeDelay
	}
	r.queue.AddAfter(policy, delay)
}

// write brings the policy's status up to date, if it is not.
func (r *Reporter) write(ctx context.Context, key types.NamespacedName) {
	if wait := r.notYet(key); wait > 0 {
		r.queue.AddAfter(key, wait)
		return
	}
	obj, exists, err := r.Policies.GetByKey(key.String())
	info, ok := r.Store.Policy(key)
	if err != nil || !exists || !ok {
		r.forget(key)
		return
	}
	policy := obj.(*unstructured.Unstructured)
	old := r.latest(policy)
	now := statusOf(old, policy.GetGeneration(), info, r.Waiting(key))
	updateTo := fromSpec
	if r.schedules.Load() {
		updateTo = all
	}
	update, err := updateTo(old, now)
	if err == nil && update == nil {
		r.succeeded(key)
		return
	}
	if err == nil && !update.urgent && r.urgency.postpone(key) {
		r.queue.Add(key)
		return
	}
	var written *unstructured.Unstructured
	if err == nil {
		written, err = r.apply(ctx, policy, update)
	}
	_ = r.writes.Wait(ctx) // here, so that the next status is not worked out before it may be written
	if err != nil {
		if ctx.Err() == nil {
			r.failed(ctx, policy, info, err)
		}
		return
	}
	r.succeeded(key)
	r.mu.Lock()
	r.written[key] = writtenStatus{policy.GetResourceVersion(), statusIn(written)}
	r.mu.Unlock()
	r.tellChanges(policy, old.Conditions, now.Conditions)
}

// latest returns the status as it was written last, as long as the informer shows the policy as it was before: compared
// with that, what is no longer so would look as if it had been written.
func (r *Reporter) latest(shown *unstructured.Unstructured) v1alpha1.PlacementPolicyStatus {
	key := types.NamespacedName(cache.MetaObjectToName(shown))
	r.mu.Lock()
	defer r.mu.Unlock()
	if w, ok := r.written[key]; ok && w.before == shown.GetResourceVersion() {
		return w.status
	}
	delete(r.written, key)
	return statusIn(shown)
}

// notYet returns how long the policy has to wait yet. It is zero when the policy may be written now; changes from
// then on count anew.
func (r *Reporter) notYet(key types.NamespacedName) time.Duration {
	if !r.Synced() {
		return writeDelay
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if left := time.Until(r.retryAt[key]); left > 0 {
		return left
	}
	r.changed.Delete(key)
	return 0
}

// failed has the write tried again, later each time, whatever changes meanwhile.
func (r *Reporter) failed(ctx context.Context, policy *unstructured.Unstructured, info policystore.PolicyInfo,
	err error) {
	logger := klog.FromContext(ctx).WithValues("placementPolicy", klog.KObj(policy))
	key := types.NamespacedName(cache.MetaObjectToName(policy))
	first := r.failures.NumRequeues(key) == 0
	retry := r.failures.When(key)
	refused := apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err)
	if answer := apierrors.APIStatus(nil); info.Err != nil && errors.As(err, &answer) {
		refused = true // nothing can be applied to an object that does not fit its schema
	}
	switch {
	case first && (apierrors.IsNotFound(err) || apierrors.IsConflict(err)):
		logger.V(2).Info("Policy was deleted while its status was written, as it seems", "err", err)
	case refused: // The policy is enforced all the same.
		logger.Error(err, "Writing the status of a placement policy: is its CustomResourceDefinition of this version, "+
			"and may the scheduler patch placementpolicies/status, as in examples/deploy?", "retryAfter", retry)
	default:
		retry = min(retry, lastRetryUnanswered)
		logger.Error(err, "Writing the status of a placement policy", "retryAfter", retry)
	}
	r.mu.Lock()
	r.retryAt[key] = time.Now().Add(retry)
	known := r.changed.Has(key)
	r.changed.Insert(key)
	r.mu.Unlock()
	if !known {
		r.queue.AddAfter(key, retry)
	}
	if refused && info.Err != nil {
		r.tellInvalid(policy, info.Err.Error())
	}
}

func (r *Reporter) succeeded(key types.NamespacedName) {
	r.failures.Forget(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.retryAt, key)
}

// forget drops what is known of a policy that is gone.
func (r *Reporter) forget(key types.NamespacedName) {
	r.succeeded(key)
	r.urgency.forget(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.unfiltered, key)
	delete(r.written, key)
	delete(r.told, key)
}
