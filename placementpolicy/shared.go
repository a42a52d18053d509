package placementpolicy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/confirmer"
	"github.com/placement-policy/scheduler-plugin/placementpolicy/feeder"
	"github.com/placement-policy/scheduler-plugin/placementpolicy/report"
	"github.com/placement-policy/scheduler-plugin/placementpolicy/waiting"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

// syncTimeout bounds how long a scheduling cycle waits until all is loaded; the pod is tried again after it.
const syncTimeout = 10 * time.Second

// shared is what the profiles of one scheduler have in common: the store, what feeds it, and who waits for it.
type shared struct {
	store     *policystore.Store
	waiting   *waiting.Line
	narrowing *narrowing
	confirmer *confirmer.Confirmer
	feeder    *feeder.Feeder
	report    *report.Reporter
	// lastPermitted is of the last governed pod that came to Permit, if no cycle has begun since.
	lastPermitted atomic.Pointer[permitState]
}

// schedulers has the shared state of each scheduler in this process, by its informer factory, which is the one thing
// that the handles of its profiles have in common before they run.
var schedulers = struct {
	sync.Mutex
	shared map[informers.SharedInformerFactory]*shared
}{shared: map[informers.SharedInformerFactory]*shared{}}

// sharedFor returns the scheduler's shared state, which the first profile starts with the given store. A scheduler
// makes its profiles one after another.
func sharedFor(ctx context.Context, handle fwk.Handle, store *policystore.Store) (*shared, error) {
	factory, config := handle.SharedInformerFactory(), handle.KubeConfig()
	if factory == nil || config == nil {
		return nil, errors.New("the scheduler's handle has no informer factory or no client configuration")
	}
	schedulers.Lock()
	s := schedulers.shared[factory]
	schedulers.Unlock()
	if s != nil {
		return s, nil
	}
	unlimited := rest.CopyConfig(config)
	unlimited.QPS = -1 // the reporter has a limit, and one question at a time is limit enough
	client, err := dynamic.NewForConfig(unlimited)
	if err != nil {
		return nil, fmt.Errorf("creating client for placement policies: %w", err)
	}
	pods, err := corev1client.NewForConfig(unlimited)
	if err != nil {
		return nil, fmt.Errorf("creating client for pods: %w", err)
	}
	if err := feeder.CheckResource(ctx, client); err != nil {
		return nil, err
	}
	s, err = startShared(ctx, handle, client, pods, store)
	if err != nil {
		return nil, err
	}
	schedulers.Lock()
	schedulers.shared[factory] = s
	schedulers.Unlock()
	context.AfterFunc(ctx, func() {
		schedulers.Lock()
		defer schedulers.Unlock()
		delete(schedulers.shared, factory)
	})
	return s, nil
}

// startShared makes the shared state and starts what runs beside the scheduler.
func startShared(
	ctx context.Context,
	handle fwk.Handle,
	client dynamic.Interface,
	pods corev1client.PodsGetter,
	store *policystore.Store,
) (*shared, error) {
	getPod := func(ctx context.Context, namespace, name string) (*v1.Pod, error) {
		return pods.Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	}
	s, err := newShared(ctx, handle, feeder.NewPolicyInformer(client), client, store, getPod)
	if err != nil {
		return nil, err
	}
	go s.waiting.Run(ctx)
	go s.confirmer.Run(ctx)
	go s.report.Run(ctx)
	go s.awaitLeading(ctx)
	go s.compareOnSignal(ctx)
	go s.feeder.Run(ctx)
	return s, nil
}

// newShared makes the shared state and connects it to the informers.
func newShared(ctx context.Context, handle fwk.Handle, policies cache.SharedIndexInformer, client dynamic.Interface,
	store *policystore.Store,
	getPod func(ctx context.Context, namespace, name string) (*v1.Pod, error)) (*shared, error) {
	factory := handle.SharedInformerFactory()
	s := &shared{store: store, narrowing: newNarrowing(store)}
	try := func(ctx context.Context, pods ...*v1.Pod) { activate(ctx, handle, pods...) }
	begins := func(policy types.NamespacedName) { s.report.PolicyChanged(policy) }
	s.waiting = waiting.New(store, factory.Core().V1().Pods().Lister(), clock.RealClock{}, try, begins)
	s.confirmer = confirmer.New(store, getPod, try)
	var err error
	s.feeder, err = feeder.New(ctx, store, factory, policies, feeder.Hooks{
		BeforePod:   s.beforePod,
		AfterPod:    s.afterPod,
		AfterNode:   func(node *v1.Node) { s.narrowing.nodeChanged(node.Name) },
		AfterPolicy: s.narrowing.policyChanged,
	})
	if err != nil {
		return nil, err
	}
	s.report = report.New(report.Options{
		Store:    store,
		Policies: policies.GetStore(),
		Synced:   s.feeder.Synced,
		Client:   client,
		Recorder: handle.EventRecorder(),
		Waiting:  s.waiting.Waits,
	})
	registerMetrics()
	context.AfterFunc(ctx, store.Subscribe(s.waiting.PolicyChanged))
	return s, nil
}

// activate has the scheduler try the pods at once.
func activate(ctx context.Context, activator fwk.PodActivator, pods ...*v1.Pod) {
	byKey := make(map[string]*v1.Pod, len(pods))
	for _, pod := range pods {
		byKey[klog.KObj(pod).String()] = pod
	}
	logger := klog.FromContext(ctx)
	logger.V(5).Info("Activating pods", "pods", klog.KObjSlice(pods))
	activator.Activate(logger, byKey)
}

// beforePod hears of a pod's event before the store does: once the pod is settled the API server must not be asked any
// more.
func (s *shared) beforePod(old, pod *v1.Pod) {
	if isSettled(old, pod) {
		s.confirmer.Remove(old)
	}
}

// afterPod hears of a pod's event after the store did.
func (s *shared) afterPod(old, pod *v1.Pod) {
	if pod == nil {
		s.narrowing.nodeChanged(old.Spec.NodeName)
	}
	switch {
	case old == nil:
		s.waiting.Reconsider(pod)
	case isSettled(old, pod) || pod.DeletionTimestamp != nil:
		s.waiting.Remove(old)
	}
}

// isSettled reports whether the event shows a pod bound or gone.
func isSettled(old, pod *v1.Pod) bool {
	return old != nil && (pod == nil || old.Spec.NodeName == "" && pod.Spec.NodeName != "")
}

// waitForSync begins a scheduling cycle, of which only a replica that leads has any. It returns once the store has all
// that was there when the scheduler started: a decision before that would not count the pods that run already. The
// scheduler waits for handlers of its own only.
func (s *shared) waitForSync(ctx context.Context) error {
	s.report.Schedules()
	if s.feeder.Synced() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	return s.feeder.WaitForSync(ctx)
}
