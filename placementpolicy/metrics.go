package placementpolicy

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// notFiltered counts the policies that reporter.notFiltered has reported.
var notFiltered = metrics.NewCounter(&metrics.CounterOpts{
	Subsystem:      "scheduler",
	Name:           "placement_policy_not_filtered_total",
	Help:           "Number of Strict placement policies that act as BestEffort because a profile enables the plugin without its PreFilter and Filter points.",
	StabilityLevel: metrics.ALPHA,
})

// registerMetrics adds the plugin's metrics to those that the scheduler serves.
var registerMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(notFiltered)
})
