package placementpolicy

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

// prefix and stability of all metrics: they are served with the scheduler's own, under its prefix.
const (
	metricsPrefix = "scheduler_placement_policy_"
	stability     = metrics.ALPHA
)

// notFiltered counts the policies that reporter.notFiltered has reported.
var notFiltered = metrics.NewCounter(&metrics.CounterOpts{
	Name:           metricsPrefix + "not_filtered_total",
	Help:           "Number of Strict placement policies that act as BestEffort because a profile enables the plugin without its PreFilter and Filter points.",
	StabilityLevel: stability,
})

// Outcomes of decisions, as PreFilter takes them, and of reservations.
const (
	ungoverned = "ungoverned"
	open       = "open"
	restricted = "restricted"

	reserved = "reserved"
	rejected = "rejected"
)

var (
	decisions = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: metricsPrefix + "decisions_total",
		Help: "Number of decisions on pods to be scheduled, by outcome: ungoverned (by any policy), open (all nodes), " +
			"restricted (to some groups of nodes).",
		StabilityLevel: stability,
	}, []string{"outcome"})
	reservations = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: metricsPrefix + "reservations_total",
		Help: "Number of nodes that were to be reserved for pods, by outcome: reserved, or rejected (another pod had taken the last place " +
			"of a Strict policy meanwhile).",
		StabilityLevel: stability,
	}, []string{"outcome"})
	reservationsUndone = metrics.NewCounter(&metrics.CounterOpts{
		Name:           metricsPrefix + "reservations_undone_total",
		Help:           "Number of reservations that were undone, because the pod could not be bound, or in the simulation for a pod group.",
		StabilityLevel: stability,
	})
	// counters are the counters of decisions and reservations, by outcome, looked up once.
	counters = map[string]metrics.CounterMetric{}
)

func countDecision(d policystore.Decision, governed bool) {
	outcome := open
	switch {
	case !governed:
		outcome = ungoverned
	case !d.AllowsAll():
		outcome = restricted
	}
	counters[outcome].Inc()
}

// What Plugin.Compare has found when SIGUSR2 asked for it.
var (
	comparisons = metrics.NewCounter(&metrics.CounterOpts{
		Name:           metricsPrefix + "comparisons_total",
		Help:           "Number of comparisons of the plugin's store with the informers' caches, which SIGUSR2 asks for.",
		StabilityLevel: stability,
	})
	comparerDifferences = metrics.NewGauge(&metrics.GaugeOpts{
		Name:           metricsPrefix + "comparer_differences",
		Help:           "Number of differences that the last comparison of the plugin's store with the informers' caches has found.",
		StabilityLevel: stability,
	})
)

// registerMetrics adds the plugin's metrics to those that the scheduler serves.
var registerMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(decisions, reservations, reservationsUndone, notFiltered, comparisons, comparerDifferences)
	for _, outcome := range []string{ungoverned, open, restricted} {
		counters[outcome] = decisions.WithLabelValues(outcome)
	}
	for _, outcome := range []string{reserved, rejected} {
		counters[outcome] = reservations.WithLabelValues(outcome)
	}
	legacyregistry.CustomMustRegister(&policyCollector{})
})

// policyMetrics are gauges with one series a policy, which goes with it. The pods of all cohorts of a policy are added up.
var policyMetrics = []struct {
	desc *metrics.Desc
	of   func(policystore.Cohort) int
}{
	{policyDesc("qualifying_pods", "Number of active pods that the placement policy governs, pending ones too."),
		func(c policystore.Cohort) int { return c.Qualifying }},
	{policyDesc("managed_pods", "Number of pods placed in the target group of the placement policy that governs them."),
		func(c policystore.Cohort) int { return c.Managed }},
	{policyDesc("other_pods", "Number of pods placed outside the target group of the placement policy that governs them."),
		func(c policystore.Cohort) int { return c.Other }},
	{policyDesc("target_pods", "Number of pods that the placement policy wants in its target group."),
		func(c policystore.Cohort) int { return c.Target }},
}

func policyDesc(name, help string) *metrics.Desc {
	return metrics.NewDesc(metricsPrefix+name, help, []string{"namespace", "policy"}, nil, stability, "")
}

// policyCollector reads the stores of this process's schedulers, of which there is one but in tests, when it is scraped.
type policyCollector struct {
	metrics.BaseStableCollector
}

// DescribeWithStability implements metrics.StableCollector.
func (*policyCollector) DescribeWithStability(ch chan<- *metrics.Desc) {
	for _, m := range policyMetrics {
		ch <- m.desc
	}
}

// CollectWithStability implements metrics.StableCollector.
func (*policyCollector) CollectWithStability(ch chan<- metrics.Metric) {
	schedulers.Lock()
	running := slices.Collect(maps.Values(schedulers.shared))
	schedulers.Unlock()
	for _, s := range running {
		for _, key := range s.store.Policies() {
			info, ok := s.store.Policy(key)
			if !ok || info.Err != nil {
				continue
			}
			for _, m := range policyMetrics {
				pods := 0
				for _, cohort := range info.Cohorts {
					pods += m.of(cohort)
				}
				ch <- metrics.NewLazyConstMetric(m.desc, metrics.GaugeValue, float64(pods), key.Namespace, key.Name)
			}
		}
	}
}
