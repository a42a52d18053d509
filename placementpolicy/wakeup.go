package placementpolicy

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

// wakeupDelay gathers the changes of a burst: the waiting pods of a policy are looked through once for all of them.
const wakeupDelay = 20 * time.Millisecond

// wakeup activates the pods that the plugin has kept out of a group once the store lets them in. The scheduler has no
// event for most of what can do that, and for the rest it may ask before the store knows.
type wakeup struct {
	store     *policystore.Store
	pods      corelisters.PodLister
	activator fwk.PodActivator
	queue     workqueue.TypedDelayingInterface[types.NamespacedName]
	begins    func(policy types.NamespacedName) // called when a pod begins to wait, and no other of its policy does

	// mu guards the two below. It is taken before the store's lock, never while that is held; and while mu is held, the
	// scheduler is not called.
	mu       sync.Mutex
	lines    map[types.NamespacedName]*line
	policyOf map[types.UID]types.NamespacedName
}

func newWakeup(store *policystore.Store, pods corelisters.PodLister, activator fwk.PodActivator) *wakeup {
	return &wakeup{
		store:     store,
		pods:      pods,
		activator: activator,
		queue:     workqueue.NewTypedDelayingQueue[types.NamespacedName](),
		lines:     map[types.NamespacedName]*line{},
		policyOf:  map[types.UID]types.NamespacedName{},
	}
}

// run activates pods until ctx is done.
func (w *wakeup) run(ctx context.Context) { forEach(ctx, w.queue, w.activate) }

// add notes that the pod was kept out of a group.
func (w *wakeup) add(waiting waitingPod) {
	pod, policy := waiting.pod, waiting.decision.Policy
	w.mu.Lock()
	if l := w.lines[w.policyOf[pod.UID]]; l != nil {
		waiting.yields = waiting.yields || l.pods[pod.UID].yields
		w.removeLocked(pod.UID)
	}
	first := w.lines[policy] == nil
	if first {
		w.lines[policy] = &line{pods: map[types.UID]*waitingPod{}}
	}
	w.lines[policy].pods[pod.UID] = &waiting
	w.policyOf[pod.UID] = policy
	w.mu.Unlock()
	if first {
		w.begins(policy)
	}

	// The events that end the wait may have come before it was noted: that the pod is gone or bound, ...
	now, err := w.pods.Pods(pod.Namespace).Get(pod.Name)
	if err != nil || now.UID != pod.UID || now.Spec.NodeName != "" || now.DeletionTimestamp != nil {
		w.remove(pod.UID)
		return
	}
	// ... and that it may go to the group now.
	if decision, _ := w.store.Decide(pod); waiting.places(decision) > 0 {
		w.queue.AddAfter(policy, wakeupDelay)
	}
}

// remove drops the pod, which is placed, gone, or tried again.
func (w *wakeup) remove(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.removeLocked(uid)
}

// removeNamed is remove for a pod of which no more than the name is known any more.
func (w *wakeup) removeNamed(name klog.ObjectRef) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, line := range w.lines {
		for uid, waiting := range line.pods {
			if klog.KObj(waiting.pod) == name {
				w.removeLocked(uid)
			}
		}
	}
}

func (w *wakeup) removeLocked(uid types.UID) {
	policy, ok := w.policyOf[uid]
	if !ok {
		return
	}
	delete(w.policyOf, uid)
	delete(w.lines[policy].pods, uid)
	if len(w.lines[policy].pods) == 0 {
		delete(w.lines, policy)
	}
}

// reconsider has a look at the pod, which the store may now judge by its events instead of by its object.
func (w *wakeup) reconsider(uid types.UID) {
	w.mu.Lock()
	policy, waits := w.policyOf[uid]
	w.mu.Unlock()
	if waits {
		w.queue.AddAfter(policy, wakeupDelay)
	}
}

// policyChanged is the store's subscriber.
func (w *wakeup) policyChanged(policy types.NamespacedName) {
	if w.waits(policy) {
		w.queue.AddAfter(policy, wakeupDelay)
	}
}

// waits reports whether a pod waits that the policy has kept out of a group.
func (w *wakeup) waits(policy types.NamespacedName) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lines[policy] != nil
}

// activate activates the policy's waiting pods whose turn it is, again if they were not tried since: the scheduler lets a pod
// wait that is just evicting others, and counts on the plugin that kept it out to activate it once the last of those is gone.
func (w *wakeup) activate(ctx context.Context, policy types.NamespacedName) {
	w.mu.Lock()
	line := w.lines[policy]
	var waiting []*waitingPod
	if line != nil {
		waiting = slices.Collect(maps.Values(line.pods))
	}
	w.mu.Unlock()
	if line == nil {
		return
	}
	// Without the lock, which scheduling cycles take, since there may be thousands of pods to look through. Nobody else uses
	// what changes here.
	now := time.Now()
	next, again := line.next(w.store, waiting, now)
	if !again.IsZero() {
		w.queue.AddAfter(policy, again.Sub(now))
	}
	if len(next) > 0 {
		klog.FromContext(ctx).V(5).Info("Activating pods that their placement policy lets in now",
			"placementPolicy", klog.KRef(policy.Namespace, policy.Name), "pods", len(next))
		activate(ctx, w.activator, next...)
	}
}

// activate has the scheduler try the pods at once.
func activate(ctx context.Context, activator fwk.PodActivator, pods ...*v1.Pod) {
	byKey := make(map[string]*v1.Pod, len(pods))
	for _, pod := range pods {
		byKey[klog.KObj(pod).String()] = pod
	}
	activator.Activate(klog.FromContext(ctx), byKey)
}
