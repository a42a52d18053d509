package placementpolicy

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
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
	activator fwk.PodActivator
	queue     workqueue.TypedDelayingInterface[types.NamespacedName]

	mu       sync.Mutex // guards the two below; taken before the store's lock, never while it is held
	byPolicy map[types.NamespacedName]map[types.UID]waitingPod
	policyOf map[types.UID]types.NamespacedName
}

// waitingPod is a pod and the decision that kept it out of a group.
type waitingPod struct {
	pod      *v1.Pod
	decision policystore.Decision
}

func newWakeup(store *policystore.Store, activator fwk.PodActivator) *wakeup {
	return &wakeup{
		store:     store,
		activator: activator,
		queue:     workqueue.NewTypedDelayingQueue[types.NamespacedName](),
		byPolicy:  map[types.NamespacedName]map[types.UID]waitingPod{},
		policyOf:  map[types.UID]types.NamespacedName{},
	}
}

// run activates pods until ctx is done.
func (w *wakeup) run(ctx context.Context) {
	context.AfterFunc(ctx, w.queue.ShutDown)
	for {
		policy, shutdown := w.queue.Get()
		if shutdown {
			return
		}
		w.activate(ctx, policy)
		w.queue.Done(policy)
	}
}

// add notes that the decision keeps the pod out of a group.
func (w *wakeup) add(pod *v1.Pod, decision policystore.Decision) {
	w.mu.Lock()
	if w.byPolicy[decision.Policy] == nil {
		w.byPolicy[decision.Policy] = map[types.UID]waitingPod{}
	}
	w.byPolicy[decision.Policy][pod.UID] = waitingPod{pod, decision}
	w.policyOf[pod.UID] = decision.Policy
	w.mu.Unlock()

	// What has changed between the decision and now told nobody of this pod.
	if now, governed := w.store.Decide(pod); !governed || now.AllowsMoreThan(decision) {
		w.queue.AddAfter(decision.Policy, wakeupDelay)
	}
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

// policyChanged is the store's subscriber.
func (w *wakeup) policyChanged(policy types.NamespacedName) {
	w.mu.Lock()
	waiting := len(w.byPolicy[policy]) > 0
	w.mu.Unlock()
	if waiting {
		w.queue.AddAfter(policy, wakeupDelay)
	}
}

// activate activates those of the policy's waiting pods that are let in where they were kept out.
func (w *wakeup) activate(ctx context.Context, policy types.NamespacedName) {
	logger := klog.FromContext(ctx)
	pods := map[string]*v1.Pod{}
	w.mu.Lock()
	for uid, waiting := range w.byPolicy[policy] {
		if now, governed := w.store.Decide(waiting.pod); !governed || now.AllowsMoreThan(waiting.decision) {
			pods[klog.KObj(waiting.pod).String()] = waiting.pod
			w.removeLocked(uid)
		}
	}
	w.mu.Unlock()
	if len(pods) > 0 {
		logger.V(5).Info("Activating pods that their placement policy lets in now", "placementPolicy", klog.KRef(policy.Namespace, policy.Name), "pods", len(pods))
		w.activator.Activate(logger, pods)
	}
}
