package placementpolicy

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/klog/v2"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

// Compare returns, a line each, where the store differs from the caches of the informers that feed it: nothing in a
// scheduler at rest. A busy one shows differences that are gone a moment later. On SIGUSR2 the plugin logs them, as
// kube-scheduler does with those of its own cache.
func (pl *Plugin) Compare() ([]string, error) {
	return pl.compare(pl.handle.SharedInformerFactory())
}

func (s *shared) compare(factory informers.SharedInformerFactory) ([]string, error) {
	cluster := policystore.Cluster{WorkloadSizes: map[types.UID]int{}}
	for _, obj := range s.report.policies.List() {
		p, err := v1alpha1.FromUnstructured(obj.(*unstructured.Unstructured))
		if err != nil {
			continue // it governs nothing
		}
		if policy, err := p.ToPolicy(); err == nil {
			cluster.Policies = append(cluster.Policies, policy)
		}
	}
	var err error
	if cluster.Nodes, err = factory.Core().V1().Nodes().Lister().List(labels.Everything()); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	if cluster.Pods, err = factory.Core().V1().Pods().Lister().List(labels.Everything()); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	replicaSets, err := factory.Apps().V1().ReplicaSets().Lister().List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing replica sets: %w", err)
	}
	for _, rs := range replicaSets {
		addSize(cluster.WorkloadSizes, rs, rs.Spec.Replicas)
	}
	statefulSets, err := factory.Apps().V1().StatefulSets().Lister().List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing stateful sets: %w", err)
	}
	for _, ss := range statefulSets {
		addSize(cluster.WorkloadSizes, ss, ss.Spec.Replicas)
	}
	controllers, err := factory.Core().V1().ReplicationControllers().Lister().List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing replication controllers: %w", err)
	}
	for _, rc := range controllers {
		addSize(cluster.WorkloadSizes, rc, rc.Spec.Replicas)
	}
	return s.store.Compare(cluster), nil
}

func addSize(sizes map[types.UID]int, workload metav1.Object, replicas *int32) {
	if size, known := policystore.WorkloadSize(workload, replicas); known {
		sizes[workload.GetUID()] = size
	}
}

// compareOnSignal logs the result of Compare at each signal until ctx is done.
func (s *shared) compareOnSignal(ctx context.Context, factory informers.SharedInformerFactory) {
	if len(compareSignals) == 0 {
		return // signal.Notify would take all
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, compareSignals...)
	defer signal.Stop(signals)
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
			s.logComparison(ctx, factory)
		}
	}
}

func (s *shared) logComparison(ctx context.Context, factory informers.SharedInformerFactory) {
	logger := klog.FromContext(ctx)
	differences, err := s.compare(factory)
	if err != nil {
		logger.Error(err, "Comparing the placement policy store with the informers' caches")
		return
	}
	comparisons.Inc()
	comparerDifferences.Set(float64(len(differences)))
	logger.Info("Compared the placement policy store with the informers' caches", "differences", len(differences))
	for _, difference := range differences {
		logger.Info("The placement policy store differs", "difference", difference)
	}
}
