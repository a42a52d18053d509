// Package workers runs what works through a queue beside the scheduling cycles, as controllers do.
package workers

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
)

// restartDelay is the time after which a worker that has panicked goes on.
const restartDelay = time.Second

// Run has n workers do something for each item of the queue until ctx is done, and returns when the last of them has
// ended. Two never work on the same item at once. A panic is handled as in every controller: it is logged and ends the
// process or, if utilruntime.ReallyCrash is off, the worker goes on with the next item.
func Run[T comparable](ctx context.Context, n int, queue workqueue.TypedInterface[T], do func(context.Context, T)) {
	stop := context.AfterFunc(ctx, queue.ShutDown)
	defer stop()
	var workers sync.WaitGroup
	for range n {
		workers.Go(func() {
			wait.UntilWithContext(ctx, func(ctx context.Context) {
				for next(ctx, queue, do) {
				}
			}, restartDelay)
		})
	}
	workers.Wait()
}

func next[T comparable](ctx context.Context, queue workqueue.TypedInterface[T], do func(context.Context, T)) bool {
	item, shutdown := queue.Get()
	if shutdown {
		return false
	}
	defer queue.Done(item)
	do(ctx, item)
	return true
}
