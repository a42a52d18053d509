package integration

import (
	"context"
	"flag"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var (
	killsFlag = flag.Int("kills", 4, "how often TestKilledInABurst kills a scheduler")
	burstFlag = flag.Int("burst", 100, "by how many pods TestKilledInABurst scales up before each kill")
)

// slowly is a configuration that makes the scheduler bind 50 pods a second, so that a burst takes its time.
func slowly(w *world) schedulerOptions {
	return schedulerOptions{
		Config: append(exampleConfig(w.t, w.namespace), "clientConnection: {qps: 50, burst: 10}\n"...),
	}
}

func TestKilledInABurst(t *testing.T) {
	t.Parallel()
	kills, burst := *killsFlag, *burstFlag
	w := newWorld(t)
	w.startScheduler(slowly(w))
	w.addNodes("m1 m2 o1 o2", room(int64(kills*burst)))
	w.setPolicy("web", strict40)
	w.deploy("web", 0)
	left := 0
	for size := burst; size <= kills*burst; size += burst {
		w.scale("web", size)
		w.waitForPlacements(size - burst*3/4)
		w.scheduler.Kill()
		pending := len(w.podsOn(""))
		t.Logf("killed with %d of %d pods still to place", pending, burst)
		left += pending
		w.startScheduler(slowly(w))
		w.requireSplit("web", size*4/10, size*6/10)
	}
	assert.Positive(t, left, "pods that a dead scheduler has left to the next")
}

// TestA2StandbyTakesOver kills the leader of two schedulers in the middle of a burst.
func TestA2StandbyTakesOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	elect := slowly(w)
	elect.ExtraArgs = []string{
		"--leader-elect=true",
		"--leader-elect-lease-duration=3s",
		"--leader-elect-renew-deadline=2s",
		"--leader-elect-retry-period=500ms",
	}
	w.startScheduler(elect)
	leader := w.scheduler
	w.addNodes("m1 m2 o1 o2")
	w.setPolicy("web", strict40)
	w.deploy("web", 10)
	w.requireSplit("web", 4, 6)

	w.startScheduler(elect) // the standby
	w.requireSplit("web", 4, 6)
	w.scale("web", 100)
	w.waitForPlacements(30)
	leader.Kill()
	t.Logf("%d pods are left to the standby", len(w.podsOn("")))
	w.scale("web", 120)
	w.requireSplit("web", 48, 72)
}

// TestAPIServerRestarted does not run beside other tests.
func TestAPIServerRestarted(t *testing.T) {
	w := newWorld(t)
	w.addNodes("m1 m2 o1 o2")
	w.setPolicy("web", strict40)
	w.deploy("web", 10)
	w.requireSplit("web", 4, 6)
	w.scale("web", 100)
	w.waitForPlacements(40)
	require.NoError(t, w.RestartAPIServer(w.ctx))
	w.requireSplit("web", 40, 60)
	require.NoError(t, w.scheduler.Err())
	// What happens from now on is still seen.
	w.deletePods(w.podsOn("m")[:10]...)
	w.requireSplit("web", 40, 60)
	w.setPolicy("web", policySpec("Strict", "Must", "50%"))
	w.scale("web", 120)
	w.requireSplit("web", 60, 60)
}

// waitForPlacements waits until so many pods have been placed. Unlike polling it sees that at once.
func (w *world) waitForPlacements(pods int) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, waitTimeout)
	defer cancel()
	placed := map[types.UID]bool{}
	for len(placed) < pods { // the API server ends the watches of slow readers
		watch, err := w.Client().CoreV1().Pods(
			w.namespace,
		).Watch(
			ctx,
			metav1.ListOptions{FieldSelector: "spec.nodeName!="},
		)
		require.NoError(w.t, err, "%d of %d pods were placed", len(placed), pods)
		for event := range watch.ResultChan() {
			if pod, ok := event.Object.(*v1.Pod); ok {
				placed[pod.UID] = true
			}
			if len(placed) >= pods {
				break
			}
		}
		watch.Stop()
	}
}
