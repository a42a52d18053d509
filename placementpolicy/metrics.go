package placementpolicy

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/report"
)

// Outcomes of reservations.
const (
	reserved = "reserved"
	rejected = "rejected"
)

var reservations = metrics.NewCounterVec(&metrics.CounterOpts{
	Name: report.MetricsPrefix + "reservations_total",
	Help: "Number of nodes that were to be reserved for pods, by outcome: reserved, or rejected (another pod had taken the last " +
		"place of a Strict policy meanwhile).",
	StabilityLevel: metrics.ALPHA,
}, []string{"outcome"})

// counters are the counters of reservations, by outcome, looked up once.
var counters = map[string]metrics.CounterMetric{}

// What Plugin.Compare has found when SIGUSR2 asked for it.
var (
	comparisons = metrics.NewCounter(&metrics.CounterOpts{
		Name:           report.MetricsPrefix + "comparisons_total",
		Help:           "Number of comparisons of the plugin's store with the informers' caches, which SIGUSR2 asks for.",
		StabilityLevel: metrics.ALPHA,
	})
	comparerDifferences = metrics.NewGauge(&metrics.GaugeOpts{
		Name: report.MetricsPrefix + "comparer_differences",
		Help: "Number of differences that the last comparison of the plugin's store with the informers' caches has " +
			"found.",
		StabilityLevel: metrics.ALPHA,
	})
)

// registerMetrics adds the plugin's own metrics to those that the scheduler serves.
var registerMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(reservations, comparisons, comparerDifferences)
	for _, outcome := range []string{reserved, rejected} {
		counters[outcome] = reservations.WithLabelValues(outcome)
	}
})
