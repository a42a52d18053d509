//go:build !unix

package placementpolicy

import "os"

var compareSignals []os.Signal // there is no SIGUSR2
