package report

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
)

// MetricsPrefix is what the names of all metrics begin with: a scheduler serves them with its own.
const MetricsPrefix = "scheduler_placement_policy_"

var notFiltered = metrics.NewCounter(&metrics.CounterOpts{
	Name: MetricsPrefix + "not_filtered_total",
	Help: "Number of Strict placement policies that act as BestEffort because a profile enables the plugin without its " +
		"PreFilter and Filter points.",
	StabilityLevel: metrics.ALPHA,
})

var syncedDesc = metrics.NewDesc(
	MetricsPrefix+"synced",
	"1 if placement policies, pods, nodes and workloads are loaded, 0 if pods wait for that.",
	nil,
	nil,
	metrics.ALPHA,
	"",
)

// policyMetrics are gauges with one series a policy, which goes with it.
var policyMetrics = []struct {
	desc *metrics.Desc
	of   func(v1alpha1.PlacementPolicyStatus) int32
}{
	{policyDesc("qualifying_pods", "Number of active pods that the placement policy governs, pending ones too."),
		func(s v1alpha1.PlacementPolicyStatus) int32 { return s.QualifyingPods }},
	{policyDesc("managed_pods", "Number of pods placed in any group but the last of the placement policy "+
		"that governs them."),
		func(s v1alpha1.PlacementPolicyStatus) int32 { return s.ManagedPods }},
	{policyDesc("other_pods", "Number of pods placed in the last group of the placement policy that governs them."),
		func(s v1alpha1.PlacementPolicyStatus) int32 { return s.OtherPods }},
	{policyDesc("target_pods", "Number of qualifying pods that belong in the groups but the last of the "+
		"placement policy."),
		func(s v1alpha1.PlacementPolicyStatus) int32 { return s.TargetPods }},
	{policyDesc("on_target", "1 if each pod of the placement policy is placed where it belongs, 0 if not."),
		onTargetValue},
}

// policyDesc describes a gauge of policies. Prometheus has a label `namespace` of its own for where it finds a
// scheduler.
func policyDesc(name, help string, labels ...string) *metrics.Desc {
	labels = append([]string{"policy_namespace", "policy"}, labels...)
	return metrics.NewDesc(MetricsPrefix+name, help, labels, nil, metrics.ALPHA, "")
}

// groupMetrics are gauges with one series for each group of a policy: at most 8.
var groupMetrics = []struct {
	desc *metrics.Desc
	of   func(v1alpha1.GroupStatus) int32
}{
	{policyDesc("group_pods", "Number of pods placed in the group of the placement policy that governs them.", "group"),
		func(g v1alpha1.GroupStatus) int32 { return g.Pods }},
	{policyDesc("group_target_pods", "Number of qualifying pods that belong in the group of the placement policy.",
		"group"),
		func(g v1alpha1.GroupStatus) int32 { return g.TargetPods }},
}

func onTargetValue(s v1alpha1.PlacementPolicyStatus) int32 {
	if len(s.OffTargetCohorts) == 0 {
		return 1
	}
	return 0
}

// served are the reporters that run in this process, in the order of their start: one, but in tests.
var served struct {
	sync.Mutex
	reporters []*Reporter
}

var registerMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(notFiltered)
	legacyregistry.CustomMustRegister(&collector{})
})

// serveMetrics adds the reporter to those whose metrics are served, and returns a function that ends it.
func serveMetrics(r *Reporter) (end func()) {
	registerMetrics()
	served.Lock()
	defer served.Unlock()
	served.reporters = append(served.reporters, r)
	return func() {
		served.Lock()
		defer served.Unlock()
		served.reporters = slices.DeleteFunc(served.reporters, func(other *Reporter) bool { return other == r })
	}
}

// collector reads the stores when it is scraped.
type collector struct {
	metrics.BaseStableCollector
}

// DescribeWithStability implements metrics.StableCollector.
func (*collector) DescribeWithStability(ch chan<- *metrics.Desc) {
	ch <- syncedDesc
	for _, m := range policyMetrics {
		ch <- m.desc
	}
	for _, m := range groupMetrics {
		ch <- m.desc
	}
}

// CollectWithStability implements metrics.StableCollector. A policy has one series whatever happens, since a second
// one would break the whole scrape: where two stores have it, the first reporter's.
func (*collector) CollectWithStability(ch chan<- metrics.Metric) {
	served.Lock()
	reporters := slices.Clone(served.reporters)
	served.Unlock()
	if len(reporters) == 0 {
		return
	}
	synced := 1.0
	seen := map[types.NamespacedName]bool{}
	for _, r := range reporters {
		if !r.Synced() {
			synced = 0
		}
		for _, key := range r.Store.Policies() {
			info, ok := r.Store.Policy(key)
			if !ok || info.Err != nil || seen[key] {
				continue
			}
			seen[key] = true
			status := statusOf(v1alpha1.PlacementPolicyStatus{}, 0, info, false)
			for _, m := range policyMetrics {
				ch <- metrics.NewLazyConstMetric(m.desc, metrics.GaugeValue, float64(m.of(status)), key.Namespace, key.Name)
			}
			for _, m := range groupMetrics {
				for _, g := range status.Groups {
					ch <- metrics.NewLazyConstMetric(m.desc, metrics.GaugeValue, float64(m.of(g)), key.Namespace, key.Name, g.Name)
				}
			}
		}
	}
	ch <- metrics.NewLazyConstMetric(syncedDesc, metrics.GaugeValue, synced)
}
