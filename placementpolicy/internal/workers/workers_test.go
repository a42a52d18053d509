package workers

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/util/workqueue"
)

func TestSeveralWorkersDoDifferentItemsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		queue := workqueue.NewTyped[string]()
		var running, most atomic.Int32
		var workers sync.WaitGroup
		workers.Go(func() {
			Run(ctx, 2, queue, func(context.Context, string) {
				most.Store(max(most.Load(), running.Add(1)))
				time.Sleep(time.Second)
				running.Add(-1)
			})
		})
		for _, item := range []string{"a", "b", "c", "a"} {
			queue.Add(item)
		}
		time.Sleep(1500 * time.Millisecond)
		assert.Equal(t, int32(1), running.Load(), "c alone is left: a was asked for once more before it began")
		assert.Equal(t, int32(2), most.Load())
		cancel()
		workers.Wait()
	})
}

func TestAWorkerGoesOnAfterAPanic(t *testing.T) {
	reallyCrash := utilruntime.ReallyCrash
	utilruntime.ReallyCrash = false
	defer func() { utilruntime.ReallyCrash = reallyCrash }()
	synctest.Test(t, func(t *testing.T) {
		queue := workqueue.NewTyped[string]()
		var done []string
		go Run(t.Context(), 1, queue, func(_ context.Context, item string) {
			if item == "bad" {
				panic("a fault in the code")
			}
			done = append(done, item)
		})
		queue.Add("bad")
		queue.Add("good")
		time.Sleep(2 * restartDelay)
		synctest.Wait()
		assert.Equal(t, []string{"good"}, done)
	})
}
