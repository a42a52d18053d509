//go:build unix

package placementpolicy

import (
	"os"
	"syscall"
)

// compareSignals are the signals on which the plugin compares its store, as kube-scheduler does with its cache.
var compareSignals = []os.Signal{syscall.SIGUSR2}
