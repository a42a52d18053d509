package placementpolicy

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

const (
	// confirmationTimeout bounds how long one question to the API server may take.
	confirmationTimeout = 5 * time.Second
	// confirmationRetry is the time between two questions if the API server does not answer.
	confirmationRetry = time.Second
	// maxConfirmationRefusals is how often the API server may refuse to answer before the pod is taken for not bound. A server that
	// has just started refuses for a moment, one that does not let the scheduler get pods forever.
	maxConfirmationRefusals = 10
)

// confirmer ends the reservations of pods that could not be bound, once the API server has said that they are not: a bind may
// be stored although the scheduler saw an error. While the API server restarts, many are, and no event tells of them. If
// they did not go on counting, other pods would take their places. Until it is certain, the pod is not tried again: with
// another reservation it would count elsewhere.
type confirmer struct {
	store     *policystore.Store
	pods      corelisters.PodLister
	getPod    func(ctx context.Context, namespace, name string) (*v1.Pod, error)
	activator fwk.PodActivator
	queue     workqueue.TypedDelayingInterface[types.NamespacedName]

	mu      sync.Mutex // guards pending and the pods in it; also, no reservation is ended that was made after the question
	pending map[types.NamespacedName]*unreservedPod
}

// unreservedPod is a pod that could not be bound, as it seemed. If it is bound, it is pending until the informer shows that.
type unreservedPod struct {
	*v1.Pod
	kept     bool // from being tried
	refusals int  // only confirm uses it
}

func newConfirmer(store *policystore.Store, pods corelisters.PodLister, activator fwk.PodActivator,
	getPod func(ctx context.Context, namespace, name string) (*v1.Pod, error)) *confirmer {
	return &confirmer{
		store:     store,
		pods:      pods,
		getPod:    getPod,
		activator: activator,
		queue:     workqueue.NewTypedDelayingQueue[types.NamespacedName](),
		pending:   map[types.NamespacedName]*unreservedPod{},
	}
}

// run ends reservations until ctx is done.
func (c *confirmer) run(ctx context.Context) { forEach(ctx, c.queue, c.confirm) }

// add has the pod's reservation end unless the pod is bound.
func (c *confirmer) add(pod *v1.Pod) {
	key := types.NamespacedName(cache.MetaObjectToName(pod))
	c.mu.Lock()
	c.pending[key] = &unreservedPod{Pod: pod}
	c.mu.Unlock()
	c.queue.Add(key)
}

// keeps reports whether the pod must not be tried, since it may be bound. It is activated if it is not.
func (c *confirmer) keeps(pod *v1.Pod) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pending[types.NamespacedName(cache.MetaObjectToName(pod))]
	if p == nil || p.UID != pod.UID {
		return false
	}
	p.kept = true
	return true
}

// remove drops the pod, which is bound or gone, or for which another reservation is about to be made.
func (c *confirmer) remove(pod *v1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := types.NamespacedName(cache.MetaObjectToName(pod))
	if p := c.pending[key]; p != nil && (p.UID == pod.UID || pod.UID == "") { // of a pod that is gone only the name may be known
		delete(c.pending, key)
	}
}

func (c *confirmer) confirm(ctx context.Context, key types.NamespacedName) {
	c.mu.Lock()
	p := c.pending[key]
	c.mu.Unlock()
	if p == nil {
		return
	}
	asking, cancel := context.WithTimeout(ctx, confirmationTimeout)
	defer cancel()
	pod, err := c.getPod(asking, key.Namespace, key.Name)
	if apierrors.IsForbidden(err) {
		p.refusals++
	}
	if err != nil && !apierrors.IsNotFound(err) && p.refusals < maxConfirmationRefusals {
		klog.FromContext(ctx).Error(err, "Asking whether a pod is bound after all; trying again", "pod", key)
		c.queue.AddAfter(key, confirmationRetry)
		return
	}

	nodeName := ""
	if err == nil && pod.UID == p.UID {
		nodeName = pod.Spec.NodeName
	}
	if c.settle(key, p, nodeName) {
		activate(ctx, c.activator, p.Pod)
	}
}

// settle keeps the reservation if the pod is bound to a node, and else ends it. It reports whether the pod is to be tried now.
func (c *confirmer) settle(key types.NamespacedName, p *unreservedPod, nodeName string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending[key] != p {
		return false // another reservation was made, or the informer has shown what became of the pod
	}
	if nodeName == "" {
		delete(c.pending, key)
		if c.store.ForgetPod(p.Pod) {
			reservationsUndone.Inc()
		}
		return p.kept
	}
	c.store.ConfirmPod(p.Pod, nodeName)
	if shown, err := c.pods.Pods(key.Namespace).Get(key.Name); err == nil && shown.UID == p.UID && shown.Spec.NodeName != "" {
		delete(c.pending, key)
	}
	return false
}
