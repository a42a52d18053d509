package placementpolicy

import (
	"context"
	"os"
	"os/signal"

	"k8s.io/klog/v2"
)

// Compare returns, a line each, where the store differs from the caches of the informers that feed it: nothing in a
// scheduler at rest. A busy one shows differences that are gone a moment later. On SIGUSR2 the plugin logs them, as
// kube-scheduler does with those of its own cache.
func (pl *Plugin) Compare() []string { return pl.compare() }

func (s *shared) compare() []string { return s.store.Compare(s.feeder.Cluster()) }

// compareOnSignal logs the result of Compare at each signal until ctx is done.
func (s *shared) compareOnSignal(ctx context.Context) {
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
			s.logComparison(ctx)
		}
	}
}

func (s *shared) logComparison(ctx context.Context) {
	logger := klog.FromContext(ctx)
	differences := s.compare()
	comparisons.Inc()
	comparerDifferences.Set(float64(len(differences)))
	logger.Info("Compared the placement policy store with the informers' caches", "differences", len(differences))
	for _, difference := range differences {
		logger.Info("The placement policy store differs", "difference", difference)
	}
}
