package perf

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/kubernetes/pkg/scheduler"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"
	"k8s.io/kubernetes/test/utils/client-go/ktesting"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

// readyTimeout is how long what was created may take to arrive where it is needed.
const readyTimeout = time.Minute

// run is a run of a variant, on a cluster of its own, and what it measures.
type run struct {
	workload
	store *policystore.Store // the plugin's, if there is one
	times times              // of the variant timed

	started, ended time.Time // when the first pod was created, and when the last one was bound
	bound          int
	done           chan struct{} // closed when all pods are bound; started and ended may be read then

	cycles cycles // that there have been before the run; then, in the run
	placed placement
}

// measure runs the variant.
func measure(b *testing.B, v variant, repetition int) *run {
	r := &run{workload: newWorkload(v, repetition), store: policystore.New(), done: make(chan struct{})}
	topic := fmt.Sprintf("%s-%d", v.Name, repetition)
	perf.RunBenchmarkPerfScheduling(b, r.writeConfig(b), topic, v.registry(r), perf.WithNodeUpdateFn(r.prepare))
	return r
}

// throughput is how many pods were scheduled in a second.
func (r *run) throughput() float64 {
	return float64(r.Pods) / r.ended.Sub(r.started).Seconds()
}

// prepare comes between the creation of the nodes and that of the pods.
func (r *run) prepare(tCtx ktesting.TContext, s *scheduler.Scheduler, _ *perf.Workload, nodes *v1.NodeList) error {
	factory := s.Profiles[v1.DefaultSchedulerName].SharedInformerFactory()
	if err := r.awaitNodes(tCtx, factory); err != nil {
		return err
	}
	if r.Variant.Policies != "" {
		if err := r.createPolicies(tCtx, tCtx.Dynamic()); err != nil {
			return err
		}
	}
	if err := r.watchPods(factory); err != nil {
		return err
	}
	var err error
	if r.cycles, err = cyclesSoFar(); err != nil {
		return err
	}
	client := tCtx.Client()
	tCtx.TB().Cleanup(func() { // the API server still runs then
		if err := r.finish(client, nodes); err != nil {
			tCtx.TB().Errorf("%s: %v", r.Variant.Name, err)
		}
	})
	runtime.GC() // of what earlier runs and the preparation left
	return nil
}

// awaitNodes returns when the scheduler knows all nodes.
func (r *run) awaitNodes(ctx context.Context, factory informers.SharedInformerFactory) error {
	lister := factory.Core().V1().Nodes().Lister()
	return wait.PollUntilContextTimeout(
		ctx,
		100*time.Millisecond,
		readyTimeout,
		true,
		func(context.Context) (bool, error) {
			nodes, err := lister.List(labels.Everything())
			return len(nodes) == r.Nodes, err
		},
	)
}

// watchPods takes the times at which the scheduler's informer sees the first pod, and the last one bound.
// scheduler_perf's own SchedulingDuration looks once a second only.
func (r *run) watchPods(factory informers.SharedInformerFactory) error {
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) {
			if r.started.IsZero() {
				r.started = time.Now()
			}
		},
		UpdateFunc: func(before, after any) {
			if before.(*v1.Pod).Spec.NodeName != "" || after.(*v1.Pod).Spec.NodeName == "" {
				return
			}
			if r.bound++; r.bound == r.Pods {
				r.ended = time.Now()
				close(r.done)
			}
		},
	})
	return err
}

// finish takes the results of the run.
func (r *run) finish(client clientset.Interface, nodes *v1.NodeList) error {
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	select {
	case <-r.done:
	case <-ctx.Done():
		return errors.New("not all pods were bound")
	}
	so, err := cyclesSoFar()
	if err != nil {
		return err
	}
	r.cycles = so.since(r.cycles)
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing the pods: %w", err)
	}
	r.placed = newPlacement(pods, nodes)
	return r.check()
}

// check fails if the pods are not where they belong.
func (r *run) check() error {
	switch {
	case r.placed.pods != r.Pods:
		return fmt.Errorf("%d pods were placed, expected %d", r.placed.pods, r.Pods)
	case r.Variant.governs() && r.placed.misplaced > 0:
		return fmt.Errorf("%d of %d pods are in the wrong group", r.placed.misplaced, r.placed.pods)
	}
	return nil
}

// cycles is how many scheduling cycles there were, and how long their algorithms (PreFilter to Score) took in all.
type cycles struct {
	count    uint64
	duration time.Duration
}

func (c cycles) since(earlier cycles) cycles {
	return cycles{count: c.count - earlier.count, duration: c.duration - earlier.duration}
}

func (c cycles) mean() time.Duration { return c.duration / time.Duration(max(1, c.count)) }

// cyclesSoFar has the cycles of all runs: nothing resets this metric.
func cyclesSoFar() (cycles, error) {
	const metric = "scheduler_scheduling_algorithm_duration_seconds"
	histograms, err := testutil.GetHistogramVecFromGatherer(legacyregistry.DefaultGatherer, metric, nil)
	if err != nil {
		return cycles{}, fmt.Errorf("reading the metric: %w", err)
	}
	sum := histograms[0].GetSampleSum()
	return cycles{count: histograms[0].GetSampleCount(), duration: time.Duration(sum * float64(time.Second))}, nil
}
