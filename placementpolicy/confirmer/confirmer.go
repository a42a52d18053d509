// Package confirmer asks the API server about pods whose bind is in doubt. A bind may be stored although the scheduler
// saw an error, as while the API server restarts, and no event tells of one that was not stored. Until it is certain,
// the pod keeps its place: else other pods would take it. And it is not tried again, since with another reservation it
// would count elsewhere.
//
// It is for schedulers that reserve in a [policystore.Store]. It knows no scheduler framework.
package confirmer

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/internal/workers"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

const (
	// askers is how many questions are asked at once.
	askers = 8
	// timeout bounds how long one question may take.
	timeout = 5 * time.Second
	// minRetry is the time to the second question about a pod. It doubles with each further one, up to maxRetry.
	minRetry = time.Second
	maxRetry = time.Minute
	// retryQPS and retryBurst bound how often questions are repeated, for all pods together.
	retryQPS   = 10
	retryBurst = 100
	// maxRefusals is how often the API server may forbid a question before the pod is taken for not bound. A server
	// that has just started does so for a moment, one that does not let the scheduler get pods forever.
	maxRefusals = 5
)

// Reservations are what a [policystore.Store] knows of pods that are placed but not shown as bound.
type Reservations interface {
	ConfirmPod(pod *v1.Pod, nodeName string) (reserved bool)
	ForgetPod(pod *v1.Pod) (reserved bool)
}

var _ Reservations = &policystore.Store{}

// Confirmer ends the reservations of pods that are not bound. Its methods are safe for concurrent use.
type Confirmer struct {
	reservations Reservations
	getPod       func(ctx context.Context, namespace, name string) (*v1.Pod, error)
	try          func(ctx context.Context, pods ...*v1.Pod)
	queue        workqueue.TypedRateLimitingInterface[types.NamespacedName]

	mu     sync.Mutex // guards doubts and what is in them; also, no reservation is ended that was made after the question
	doubts map[types.NamespacedName]*doubt
}

// doubt is about a pod that may be bound. If it is, the doubt stays until an event shows that.
type doubt struct {
	pod      *v1.Pod
	held     bool // from being tried
	refusals int  // only the one asker that has it uses it
}

// New returns a confirmer for the reservations. getPod asks the API server, not a cache. try has pods tried that were
// held back; it is called without locks.
func New(reservations Reservations, getPod func(ctx context.Context, namespace, name string) (*v1.Pod, error),
	try func(ctx context.Context, pods ...*v1.Pod)) *Confirmer {
	limiter := workqueue.NewTypedMaxOfRateLimiter(
		workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](minRetry, maxRetry),
		&workqueue.TypedBucketRateLimiter[types.NamespacedName]{Limiter: rate.NewLimiter(retryQPS, retryBurst)},
	)
	return &Confirmer{
		reservations: reservations,
		getPod:       getPod,
		try:          try,
		queue:        workqueue.NewTypedRateLimitingQueue(limiter),
		doubts:       map[types.NamespacedName]*doubt{},
	}
}

// Run asks until ctx is done.
func (c *Confirmer) Run(ctx context.Context) { workers.Run(ctx, askers, c.queue, c.ask) }

// Add has the pod's reservation end unless the pod turns out to be bound.
func (c *Confirmer) Add(pod *v1.Pod) {
	key := keyOf(pod)
	c.mu.Lock()
	c.doubts[key] = &doubt{pod: pod}
	c.mu.Unlock()
	c.queue.Forget(key)
	c.queue.Add(key)
}

// Holds reports whether the pod must not be tried, since it may be bound. If it is not, try is called for it later.
func (c *Confirmer) Holds(pod *v1.Pod) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.doubts[keyOf(pod)]
	if d == nil || d.pod.UID != pod.UID {
		return false
	}
	d.held = true
	return true
}

// Remove ends the doubt about a pod that an event has shown as bound or gone, or for which another reservation is about
// to be made. Of a pod without UID, as a delete event without its object tells of it, the name counts.
func (c *Confirmer) Remove(pod *v1.Pod) {
	key := keyOf(pod)
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := c.doubts[key]; d != nil && (pod.UID == "" || d.pod.UID == pod.UID) {
		c.endLocked(key)
	}
}

func (c *Confirmer) endLocked(key types.NamespacedName) {
	delete(c.doubts, key)
	c.queue.Forget(key)
}

func (c *Confirmer) ask(ctx context.Context, key types.NamespacedName) {
	c.mu.Lock()
	d := c.doubts[key]
	c.mu.Unlock()
	if d == nil {
		return
	}
	asking, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	pod, err := c.getPod(asking, key.Namespace, key.Name)
	if apierrors.IsForbidden(err) {
		d.refusals++
	}
	if err != nil && !apierrors.IsNotFound(err) && d.refusals < maxRefusals {
		c.again(ctx, key, d, err)
		return
	}

	nodeName := ""
	if err == nil && pod.UID == d.pod.UID {
		nodeName = pod.Spec.NodeName
	}
	if c.settle(key, d, nodeName) {
		c.try(ctx, d.pod)
	}
}

// again has the question asked again, unless nobody wants to know any more.
func (c *Confirmer) again(ctx context.Context, key types.NamespacedName, d *doubt, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.doubts[key] != d {
		return
	}
	if c.queue.NumRequeues(key) == 0 {
		klog.FromContext(
			ctx,
		).Error(
			err,
			"Asking whether a pod is bound after all; asking again, ever more seldom",
			"pod",
			key,
		)
	}
	c.queue.AddRateLimited(key)
}

// settle keeps the reservation if the pod is bound to a node, and else ends it. It reports whether the pod is to be
// tried now.
func (c *Confirmer) settle(key types.NamespacedName, d *doubt, nodeName string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.doubts[key] != d:
		return false // another reservation was made, or an event has shown what became of the pod
	case nodeName != "" && c.reservations.ConfirmPod(d.pod, nodeName):
		return false // its event is yet to come
	case nodeName != "":
		c.endLocked(key) // the store has seen its event
		return false
	default:
		c.endLocked(key)
		c.reservations.ForgetPod(d.pod)
		return d.held
	}
}

func keyOf(pod *v1.Pod) types.NamespacedName {
	return types.NamespacedName(cache.MetaObjectToName(pod))
}
