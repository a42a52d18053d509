package perf

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/placement-policy/scheduler-plugin/placementpolicy"
)

// The scheduler's own plugin_execution_duration_seconds looks at one cycle in ten, and counts the framework's part too.
// So this variant puts a clock around each call; it is one of its own, so that the clock is in none of those that are
// compared.

// calls is how often an extension point was called, and how long it took in all. Calls at the same time are added up,
// and a call counts in full though the machine did something else meanwhile. On two cores that is most of the sum of
// short calls, but not of their median.
type calls struct {
	count, nanoseconds atomic.Int64
	// histogram has the calls by their length, in steps of ten nanoseconds; the last one has all that are longer.
	histogram [10_000]atomic.Int64
}

const histogramStep = 10 // nanoseconds

// times has the calls of a run.
type times struct {
	preFilter, filter, preScore, score, reserve calls
}

// timedPlugin takes the time of each call of the plugin in a scheduling cycle.
type timedPlugin struct {
	*placementpolicy.Plugin
	times *times
}

func newTimedPlugin(r *run) frameworkruntime.PluginFactory {
	factory := newPlugin(r)
	return func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		plugin, err := factory(ctx, args, handle)
		if err != nil {
			return nil, err
		}
		pl, ok := plugin.(*placementpolicy.Plugin)
		if !ok {
			return nil, fmt.Errorf("timing the plugin: expected %T, got %T", pl, plugin)
		}
		return &timedPlugin{Plugin: pl, times: &r.times}, nil
	}
}

func (pl *timedPlugin) PreFilter(
	ctx context.Context,
	state fwk.CycleState,
	pod *v1.Pod,
	nodes []fwk.NodeInfo,
) (*fwk.PreFilterResult, *fwk.Status) {
	start := now()
	result, status := pl.Plugin.PreFilter(ctx, state, pod, nodes)
	pl.times.preFilter.add(start, now())
	return result, status
}

func (pl *timedPlugin) Filter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	start := now()
	status := pl.Plugin.Filter(ctx, state, pod, node)
	pl.times.filter.add(start, now())
	return status
}

func (pl *timedPlugin) PreScore(
	ctx context.Context,
	state fwk.CycleState,
	pod *v1.Pod,
	nodes []fwk.NodeInfo,
) *fwk.Status {
	start := now()
	status := pl.Plugin.PreScore(ctx, state, pod, nodes)
	pl.times.preScore.add(start, now())
	return status
}

func (pl *timedPlugin) Score(
	ctx context.Context,
	state fwk.CycleState,
	pod *v1.Pod,
	node fwk.NodeInfo,
) (int64, *fwk.Status) {
	start := now()
	score, status := pl.Plugin.Score(ctx, state, pod, node)
	pl.times.score.add(start, now())
	return score, status
}

func (pl *timedPlugin) Reserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	start := now()
	status := pl.Plugin.Reserve(ctx, state, pod, nodeName)
	pl.times.reserve.add(start, now())
	return status
}

var epoch = time.Now()

// now is the monotonic clock alone, which is quicker to read than all of time.Now.
func now() time.Duration { return time.Since(epoch) }

func (c *calls) add(start, end time.Duration) {
	nanoseconds := int64(end - start)
	c.count.Add(1)
	c.nanoseconds.Add(nanoseconds)
	c.histogram[min(nanoseconds/histogramStep, int64(len(c.histogram)-1))].Add(1)
}

// median is how many nanoseconds the calls took in the median.
func (c *calls) median() float64 {
	var seen int64
	for i := range c.histogram {
		seen += c.histogram[i].Load()
		if 2*seen >= c.count.Load() {
			return histogramStep * (float64(i) + 0.5)
		}
	}
	return 0
}

// clockCost is how many nanoseconds a call that takes no time seems to take.
func clockCost() float64 {
	const reads = 1_000_000
	var total time.Duration
	for range reads {
		start := now()
		total += now() - start
	}
	return float64(total) / reads
}
