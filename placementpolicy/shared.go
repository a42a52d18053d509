package placementpolicy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

const (
	// resourceTimeout bounds how long New waits for an API server that does not answer.
	resourceTimeout = 30 * time.Second
	// maxRefusals is how often, once a second, the API server refuses to list policies before New believes it: one that has just
	// started does not know at once what there is and who may read it.
	maxRefusals = 4
	// syncTimeout bounds how long a scheduling cycle waits for the handlers; the pod is tried again after it.
	syncTimeout = 10 * time.Second
)

// shared is what the profiles of one scheduler have in common: the store, what feeds it, and who waits for it.
type shared struct {
	store     *policystore.Store
	wakeup    *wakeup
	narrowing *narrowing
	confirmer *confirmer
	status    *statusWriter
	report    *reporter

	// handlers are done when they have delivered everything that was there at the start. The scheduler waits for its
	// own handlers only, so waitForSync waits for these.
	handlers []cache.DoneChecker
}

// schedulers has the shared state of each scheduler in this process, by its informer factory, which is the one thing
// that the handles of its profiles have in common before they run.
var schedulers = struct {
	sync.Mutex
	shared map[informers.SharedInformerFactory]*shared
}{shared: map[informers.SharedInformerFactory]*shared{}}

// sharedFor returns the scheduler's shared state, which the first profile starts with the given store. A scheduler makes
// its profiles one after another.
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
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating client for placement policies: %w", err)
	}
	unlimited := rest.CopyConfig(config)
	unlimited.QPS = -1 // one question at a time is limit enough
	pods, err := corev1client.NewForConfig(unlimited)
	if err != nil {
		return nil, fmt.Errorf("creating client for pods: %w", err)
	}
	if err := checkResource(ctx, client); err != nil {
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
func startShared(ctx context.Context, handle fwk.Handle, client dynamic.Interface, pods corev1client.PodsGetter, store *policystore.Store) (*shared, error) {
	// Policies are read as unstructured objects: one that does not fit the type, stored before the schema was as strict
	// as it is, must not hide the others.
	policies := dynamicinformer.NewFilteredDynamicInformer(client, v1alpha1.Resource(), metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	updateStatus := func(ctx context.Context, policy *unstructured.Unstructured) error {
		_, err := client.Resource(v1alpha1.Resource()).Namespace(policy.GetNamespace()).UpdateStatus(ctx, policy, metav1.UpdateOptions{})
		return err
	}
	getPod := func(ctx context.Context, namespace, name string) (*v1.Pod, error) {
		return pods.Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	}
	s, err := newShared(ctx, handle, policies, store, updateStatus, getPod)
	if err != nil {
		return nil, err
	}
	go s.wakeup.run(ctx)
	go s.confirmer.run(ctx)
	go s.status.run(ctx)
	go s.compareOnSignal(ctx, handle.SharedInformerFactory())
	go policies.RunWithContext(ctx)
	return s, nil
}

// newShared makes the shared state and connects it to the informers.
func newShared(ctx context.Context, handle fwk.Handle, policies cache.SharedIndexInformer, store *policystore.Store,
	updateStatus func(context.Context, *unstructured.Unstructured) error,
	getPod func(ctx context.Context, namespace, name string) (*v1.Pod, error)) (*shared, error) {
	factory := handle.SharedInformerFactory()
	s := &shared{
		store:     store,
		wakeup:    newWakeup(store, factory.Core().V1().Pods().Lister(), handle),
		narrowing: newNarrowing(store),
		confirmer: newConfirmer(store, factory.Core().V1().Pods().Lister(), handle, getPod),
		report:    newReporter(handle.EventRecorder(), policies.GetStore()),
	}
	s.status = newStatusWriter(store, policies.GetStore(), s.wakeup.waits, s.report, updateStatus)
	s.wakeup.begins = s.status.policyChanged
	if err := s.addHandlers(ctx, factory, policies); err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, store.Subscribe(s.wakeup.policyChanged))
	context.AfterFunc(ctx, store.Subscribe(s.status.policyChanged))
	return s, nil
}

// forEach does something for each policy in the queue, one after another, until ctx is done.
func forEach(ctx context.Context, queue workqueue.TypedDelayingInterface[types.NamespacedName], do func(context.Context, types.NamespacedName)) {
	context.AfterFunc(ctx, queue.ShutDown)
	for {
		policy, shutdown := queue.Get()
		if shutdown {
			return
		}
		do(ctx, policy)
		queue.Done(policy)
	}
}

// checkResource makes sure that placement policies can be listed: otherwise every pod would wait for them in vain.
func checkResource(ctx context.Context, client dynamic.Interface) error {
	logger := klog.FromContext(ctx)
	refusals := 0
	var unanswered error // the first one: the last may only say that there was no time for another request
	err := wait.PollUntilContextTimeout(ctx, time.Second, resourceTimeout, true, func(ctx context.Context) (bool, error) {
		_, err := client.Resource(v1alpha1.Resource()).List(ctx, metav1.ListOptions{Limit: 1})
		var refused error
		switch {
		case err == nil:
			return true, nil
		case apierrors.IsNotFound(err):
			refused = fmt.Errorf("the resource %s is not installed: apply the CustomResourceDefinition in placementpolicy/v1alpha1/%s: %w",
				v1alpha1.Resource().GroupResource(), v1alpha1.CRDFile, err)
		case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
			refused = fmt.Errorf("the scheduler may not list %s: grant it list and watch, as examples/deploy does: %w",
				v1alpha1.Resource().GroupResource(), err)
		}
		if refused != nil {
			if refusals++; refusals == maxRefusals {
				return false, refused
			}
		}
		logger.Info("Waiting for the API server to list placement policies", "err", err)
		if unanswered == nil {
			unanswered = err
		}
		return false, nil
	})
	if wait.Interrupted(err) && unanswered != nil {
		return fmt.Errorf("waiting for the API server to list placement policies: %w", unanswered)
	}
	return err
}

// synced reports whether the store has all that was there when the scheduler started.
func (s *shared) synced() bool {
	for _, handler := range s.handlers {
		if !cache.IsDone(handler) {
			return false
		}
	}
	return true
}

// waitForSync returns once the store has all that was there when the scheduler started: a decision before that would
// not count the pods that run already.
func (s *shared) waitForSync(ctx context.Context) error {
	if s.synced() {
		return nil
	}
	ctx, cancel := context.WithTimeout(klog.NewContext(ctx, klog.FromContext(ctx).V(2)), syncTimeout)
	defer cancel()
	if !cache.WaitFor(ctx, "placement policies, pods, nodes and workloads", s.handlers...) {
		return fmt.Errorf("waiting for placement policies, pods, nodes and workloads to be loaded: %w", context.Cause(ctx))
	}
	return nil
}
