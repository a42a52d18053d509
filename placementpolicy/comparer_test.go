package placementpolicy

import (
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The first use of os/signal starts a goroutine for good, which must not be in a synctest bubble.
func init() { signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR2) }

func TestCompare(t *testing.T) {
	handle := newHandle(serve(policyObject(t, "web", strict40)))
	plugin, err := New(t.Context(), nil, handle)
	require.NoError(t, err)
	handle.factory.Start(t.Context().Done())
	pl := plugin.(*Plugin)
	require.NoError(t, pl.waitForSync(t.Context()))

	assert.Empty(t, pl.Compare())

	pl.Store().AddPod(webPod("ghost").UID("ghost").Obj())
	assert.Contains(t, pl.Compare(), "pod ghost: only the store has it")
}
