package integration

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// TestWritesPerPod counts what the scheduler's user writes, according to the API server's audit log. It does not run
// beside other tests.
func TestWritesPerPod(t *testing.T) {
	w := newWorld(t)
	w.addNodes("m1 o1")
	w.setPolicy("web", strict40)
	before, err := w.WriteRequests(schedulerUser)
	require.NoError(t, err)
	w.deploy("web", 50)
	w.requireSplit("web", 20, 30)

	w.eventually(func(c *assert.CollectT) {
		after, err := w.WriteRequests(schedulerUser)
		require.NoError(c, err)
		for key, n := range before {
			after[key] -= n
		}
		assert.Equal(c, 50, after["create pods/binding"])
		assert.GreaterOrEqual(c, after["create events"], 50, "one for each pod, that it is placed")
		for key, n := range after {
			switch key {
			case "create pods/binding", "create events", "patch events":
			case "create leases", "update leases": // leader election
			case "patch placementpolicies/status": // beside the scheduling cycles, see below
			case "create tokenreviews", "create subjectaccessreviews": // for the tests, which read metrics
			default: // such as patch pods/status: no pod was unschedulable
				assert.Zero(c, n, key)
			}
		}
	})
	statuses := 0
	require.NoError(t, w.AuditEvents(func(event *auditv1.Event) {
		if event.User.Username == schedulerUser && event.ObjectRef != nil &&
			event.ObjectRef.Resource == "placementpolicies" {
			assert.Equal(t, "status", event.ObjectRef.Subresource)
			if event.ObjectRef.Namespace == w.namespace {
				statuses++
			}
		}
	}))
	assert.Less(t, statuses, 25, "one a second, not one for each pod")
}
