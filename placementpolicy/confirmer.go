package placementpolicy

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

const (
	// confirmationTimeout bounds how long one question to the API server may take.
	confirmationTimeout = 5 * time.Second
	// confirmationRetry is the time between two questions if the API server does not answer.
	confirmationRetry = time.Second
)

// confirmer ends the reservations of pods that could not be bound, once the API server has said that they are not: a bind may
// be stored although the scheduler saw an error. While the API server restarts, many are, and no event tells of them. If
// they did not go on counting, other pods would take their places.
type confirmer struct {
	store  *policystore.Store
	getPod func(ctx context.Context, namespace, name string) (*v1.Pod, error)
	queue  workqueue.TypedDelayingInterface[types.NamespacedName]

	mu      sync.Mutex // guards pending, and that a reservation is not ended that was made after the question
	pending map[types.NamespacedName]*unreservedPod
}

// unreservedPod is a pod after a failed attempt to place it.
type unreservedPod struct{ pod *v1.Pod }

func newConfirmer(store *policystore.Store, getPod func(ctx context.Context, namespace, name string) (*v1.Pod, error)) *confirmer {
	return &confirmer{
		store:   store,
		getPod:  getPod,
		queue:   workqueue.NewTypedDelayingQueue[types.NamespacedName](),
		pending: map[types.NamespacedName]*unreservedPod{},
	}
}

// run ends reservations until ctx is done.
func (c *confirmer) run(ctx context.Context) { forEach(ctx, c.queue, c.confirm) }

// add has the pod's reservation end unless the pod is bound.
func (c *confirmer) add(pod *v1.Pod) {
	key := types.NamespacedName(cache.MetaObjectToName(pod))
	c.mu.Lock()
	c.pending[key] = &unreservedPod{pod}
	c.mu.Unlock()
	c.queue.Add(key)
}

// remove has the pod's reservation stay: it is about to be made anew.
func (c *confirmer) remove(pod *v1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, types.NamespacedName(cache.MetaObjectToName(pod)))
}

func (c *confirmer) confirm(ctx context.Context, key types.NamespacedName) {
	c.mu.Lock()
	unreserved := c.pending[key]
	c.mu.Unlock()
	if unreserved == nil {
		return
	}
	asking, cancel := context.WithTimeout(ctx, confirmationTimeout)
	defer cancel()
	pod, err := c.getPod(asking, key.Namespace, key.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		// A server that has just started may even say that the scheduler may not ask.
		klog.FromContext(ctx).Error(err, "Asking whether a pod is bound after all; trying again", "pod", key)
		c.queue.AddAfter(key, confirmationRetry)
		return
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending[key] != unreserved {
		return // tried again meanwhile
	}
	delete(c.pending, key)
	if err == nil && pod.UID == unreserved.pod.UID && pod.Spec.NodeName != "" {
		return // its event will come
	}
	if c.store.ForgetPod(unreserved.pod) {
		reservationsUndone.Inc()
	}
}
