package placementpolicy

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	// Has client-go's leader election set the gauge that isStandby reads.
	_ "k8s.io/component-base/metrics/prometheus/clientgo/leaderelection"
	"k8s.io/klog/v2"
)

const (
	// leadingInterval is how often a replica that has had nothing to schedule looks whether it leads.
	leadingInterval = 10 * time.Second
	leaderGauge     = "leader_election_master_status"
)

// awaitLeading tells the reporter that this replica schedules, once it is sure to lead. The first scheduling cycle
// tells it sooner; but there may be nothing to schedule, and the counts change all the same.
func (s *shared) awaitLeading(ctx context.Context) {
	loaded := false
	_ = wait.PollUntilContextCancel(ctx, leadingInterval, false, func(ctx context.Context) (bool, error) {
		if !loaded { // a scheduler that takes part in an election begins to right after its informers have synced
			loaded = s.feeder.Synced()
			return false, nil
		}
		standby, err := isStandby(legacyregistry.DefaultGatherer)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Looking whether this scheduler leads")
			return false, nil
		}
		if !standby {
			s.report.Schedules()
		}
		return !standby, nil
	})
}

// isStandby reports whether the process takes part in a leader election and does not lead. A plugin has no other way
// to know.
func isStandby(gatherer metrics.Gatherer) (bool, error) {
	families, err := gatherer.Gather()
	if err != nil {
		return false, err
	}
	standby := false
	for _, family := range families {
		if family.GetName() != leaderGauge {
			continue
		}
		for _, election := range family.GetMetric() {
			if election.GetGauge().GetValue() == 1 {
				return false, nil
			}
			standby = true
		}
	}
	return standby, nil
}
