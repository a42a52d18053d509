package feeder

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

// pollInterval is how often WaitForSync looks.
const pollInterval = 50 * time.Millisecond

// Hooks are told of events beside the store. Any of them may be nil. Those of one kind of object are called one after
// another.
type Hooks struct {
	// BeforePod is told of a pod's event before the store is, AfterPod after it. old is nil if the pod was added, pod
	// if it was deleted. Of a deleted pod no more may be known than namespace and name. If another pod of the same
	// name has taken its place, that is told as a deletion and an addition.
	BeforePod, AfterPod func(old, pod *v1.Pod)
	// AfterNode is told, after the store, that a node was added or has changed.
	AfterNode func(node *v1.Node)
	// AfterPolicy is told, after the store, that a policy was added, deleted, or has another spec.
	AfterPolicy func(policy types.NamespacedName)
}

// Feeder feeds a store. Its methods are safe for concurrent use.
type Feeder struct {
	logger   klog.Logger
	store    *policystore.Store
	hooks    Hooks
	policies cache.SharedIndexInformer
	// pods, nodes and workloads are informers of the factory, which somebody else runs.
	pods, nodes cache.SharedIndexInformer
	workloads   []cache.SharedIndexInformer

	begun   time.Time
	sources []source
	// synced: all sources are. That does not end.
	synced atomic.Bool
	// policyError is why policies could not be listed or watched when it was last tried in vain.
	policyError atomic.Pointer[error]
}

// source is one kind of object that the store is fed with.
type source struct {
	name string
	// synced reports whether all objects that were there at the start have been delivered.
	synced cache.InformerSynced
}

// New returns a feeder of the store, fed by informers of the factory for nodes, pods, ReplicaSets, StatefulSets and
// ReplicationControllers, and by one for placement policies, as [NewPolicyInformer] makes it. None of them may have
// been started: the caller starts the factory afterwards, and [Feeder.Run] runs the one for policies. ctx has the
// logger.
func New(ctx context.Context, store *policystore.Store, factory informers.SharedInformerFactory,
	policies cache.SharedIndexInformer, hooks Hooks) (*Feeder, error) {
	f := &Feeder{
		logger:   klog.FromContext(ctx),
		store:    store,
		hooks:    hooks,
		policies: policies,
		pods:     factory.Core().V1().Pods().Informer(),
		nodes:    factory.Core().V1().Nodes().Informer(),
		workloads: []cache.SharedIndexInformer{
			factory.Apps().V1().ReplicaSets().Informer(),
			factory.Apps().V1().StatefulSets().Informer(),
			factory.Core().V1().ReplicationControllers().Informer(),
		},
		begun: time.Now(),
	}
	err := policies.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		f.policyError.Store(&err)
		cache.DefaultWatchErrorHandler(ctx, r, err)
	})
	if err != nil {
		return nil, fmt.Errorf("feeding a store from an informer for placement policies: %w", err)
	}
	if err := f.addHandlers(); err != nil {
		return nil, err
	}
	return f, nil
}

// Run runs the informer for policies until ctx is done. It does not run those of the factory.
func (f *Feeder) Run(ctx context.Context) { f.policies.RunWithContext(ctx) }

// Synced reports whether the store has all that was there at the start. Before that its counts are too low.
func (f *Feeder) Synced() bool {
	if f.synced.Load() {
		return true
	}
	for _, s := range f.sources {
		if !s.synced() {
			return false
		}
	}
	f.synced.Store(true)
	return true
}

// WaitForSync returns once the store has all that was there at the start, or when ctx is done with an error that says
// what it waits for, since when and, if policies are what is missing, why.
func (f *Feeder) WaitForSync(ctx context.Context) error {
	if f.Synced() {
		return nil
	}
	synced := func(context.Context) (bool, error) { return f.Synced(), nil }
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, synced)
	if err == nil {
		return nil
	}
	var missing []string
	why := ""
	for _, s := range f.sources {
		if s.synced() {
			continue
		}
		missing = append(missing, s.name)
		if reason := f.policyError.Load(); s.name == policySource && reason != nil {
			why = fmt.Sprintf(" (%v)", *reason)
		}
	}
	return fmt.Errorf("waiting for %s to be loaded, for %s by now%s: %w",
		strings.Join(missing, ", "), time.Since(f.begun).Round(time.Second), why, err)
}

// Cluster returns what the informers have, for [policystore.Store.Compare].
func (f *Feeder) Cluster() policystore.Cluster {
	cluster := policystore.Cluster{
		Nodes:         list[*v1.Node](f.nodes),
		Pods:          list[*v1.Pod](f.pods),
		WorkloadSizes: map[types.UID]int{},
	}
	for _, obj := range list[*unstructured.Unstructured](f.policies) {
		p, err := v1alpha1.FromUnstructured(obj)
		if err != nil {
			continue // it governs nothing
		}
		if policy, err := p.ToPolicy(); err == nil {
			cluster.Policies = append(cluster.Policies, policy)
		}
	}
	for _, informer := range f.workloads {
		for _, obj := range list[metav1.Object](informer) {
			if size, known := policystore.WorkloadSize(obj, replicasOf(obj)); known {
				cluster.WorkloadSizes[obj.GetUID()] = size
			}
		}
	}
	return cluster
}

func list[T any](informer cache.SharedIndexInformer) []T {
	var all []T
	for _, obj := range informer.GetStore().List() {
		if t, ok := obj.(T); ok {
			all = append(all, t)
		}
	}
	return all
}
