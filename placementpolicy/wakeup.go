package placementpolicy

import (
	"context"
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

	// mu guards the two below. It is taken before the store's lock, never while that is held; and while mu is held, the
	// scheduler is not called.
	mu       sync.Mutex
	byPolicy map[types.NamespacedName]map[types.UID]waitingPod
	policyOf map[types.UID]types.NamespacedName
}

// waitingPod is a pod that was kept out of a group.
type waitingPod struct {
	pod *v1.Pod
	// decision was taken in the pod's last cycle. For the member of a pod group it is the first one of the group's cycle,
	// which counts no reservations for other members, since these were undone at its end.
	decision policystore.Decision
	member   bool
	// yields: the decision let the pod in, but it had to leave the place to a nominated pod that the store did not
	// know to be nominated. What ends that cannot be told from the decision, so any change may.
	yields bool
}

func newWakeup(store *policystore.Store, pods corelisters.PodLister, activator fwk.PodActivator) *wakeup {
	return &wakeup{
		store:     store,
		pods:      pods,
		activator: activator,
		queue:     workqueue.NewTypedDelayingQueue[types.NamespacedName](),
		byPolicy:  map[types.NamespacedName]map[types.UID]waitingPod{},
		policyOf:  map[types.UID]types.NamespacedName{},
	}
}

// run activates pods until ctx is done.
func (w *wakeup) run(ctx context.Context) { forEach(ctx, w.queue, w.activate) }

// add notes that the pod was kept out of a group.
func (w *wakeup) add(waiting waitingPod) {
	pod, policy := waiting.pod, waiting.decision.Policy
	w.mu.Lock()
	if before, ok := w.byPolicy[w.policyOf[pod.UID]][pod.UID]; ok {
		waiting.yields = waiting.yields || before.yields
		w.removeLocked(pod.UID)
	}
	if w.byPolicy[policy] == nil {
		w.byPolicy[policy] = map[types.UID]waitingPod{}
	}
	w.byPolicy[policy][pod.UID] = waiting
	w.policyOf[pod.UID] = policy
	w.mu.Unlock()

	// The events that end the wait may have come before it was noted: that the pod is gone or bound, ...
	now, err := w.pods.Pods(pod.Namespace).Get(pod.Name)
	if err != nil || now.UID != pod.UID || now.Spec.NodeName != "" {
		w.remove(pod.UID)
		return
	}
	// ... and that it may go to the group now.
	if w.letsIn(waiting) {
		w.queue.AddAfter(policy, wakeupDelay)
	}
}

// letsIn reports whether the store may now let the pod in where it was kept out.
func (w *wakeup) letsIn(waiting waitingPod) bool {
	now, governed := w.store.Decide(waiting.pod)
	if !governed || now.AllowsMoreThan(waiting.decision) {
		return true
	}
	// A group that was open may still have had too few places for all members.
	then := waiting.decision
	return waiting.member &&
		(now.Quota(policystore.Target)-now.Managed > then.Quota(policystore.Target)-then.Managed ||
			now.Quota(policystore.Other)-now.Other > then.Quota(policystore.Other)-then.Other)
}

// remove drops the pod, which is placed, gone, or tried again.
func (w *wakeup) remove(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.removeLocked(uid)
}

func (w *wakeup) removeLocked(uid types.UID) {
	policy, ok := w.policyOf[uid]
	if !ok {
		return
	}
	delete(w.policyOf, uid)
	delete(w.byPolicy[policy], uid)
	if len(w.byPolicy[policy]) == 0 {
		delete(w.byPolicy, policy)
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
	w.mu.Lock()
	waiting := len(w.byPolicy[policy]) > 0
	w.mu.Unlock()
	if waiting {
		w.queue.AddAfter(policy, wakeupDelay)
	}
}

// count returns how many pods wait that the policy has kept out of a group.
func (w *wakeup) count(policy types.NamespacedName) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.byPolicy[policy])
}

// activate activates those of the policy's waiting pods that are let in where they were kept out. They are not struck off
// the list before they are tried again: the scheduler lets a pod wait that is just evicting others, and counts on the
// plugin that kept it out to activate it once the last of those is gone.
func (w *wakeup) activate(ctx context.Context, policy types.NamespacedName) {
	logger := klog.FromContext(ctx)
	pods := map[string]*v1.Pod{}
	w.mu.Lock()
	for _, waiting := range w.byPolicy[policy] {
		if waiting.yields || w.letsIn(waiting) {
			pods[klog.KObj(waiting.pod).String()] = waiting.pod
		}
	}
	w.mu.Unlock()
	if len(pods) > 0 {
		logger.V(5).Info("Activating pods that their placement policy lets in now", "placementPolicy", klog.KRef(policy.Namespace, policy.Name), "pods", len(pods))
		w.activator.Activate(logger, pods)
	}
}
