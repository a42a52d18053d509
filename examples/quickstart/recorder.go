package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"

	"github.com/placement-policy/scheduler-plugin/examples/internal/controlplane"
	"github.com/placement-policy/scheduler-plugin/placementpolicy/feeder"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

// restShown is how long a recording shows the end of each step.
const restShown = time.Second

// recording is where the pods of a policy were over time.
type recording struct {
	title   string
	groups  []string // names
	samples []sample // one for each time that numbers have changed
	steps   []mark   // when each began
	events  []mark   // what happened on the way
}

// sample is how many pods are placed in each group, and how many of these pods belong there.
type sample struct {
	at           time.Duration
	pods, belong []int
}

type mark struct {
	at   time.Duration
	text string
}

// recorder makes a recording. It follows the API server with a store of its own, so that it owes nothing to any
// scheduler. step, mark and rest do nothing if it is nil.
type recorder struct {
	mu sync.Mutex // guards the two below
	recording
	begun time.Time
}

func newRecorder(title string) *recorder { return &recorder{recording: recording{title: title}} }

// start records the pods of the policy until ctx is done.
func (r *recorder) start(ctx context.Context, cp *controlplane.ControlPlane, policy types.NamespacedName) error {
	store := policystore.New()
	factory := informers.NewSharedInformerFactory(cp.Client(), 0)
	f, err := feeder.New(ctx, store, factory, feeder.NewPolicyInformer(cp.Dynamic()), feeder.Hooks{})
	if err != nil {
		return err
	}
	r.begun = time.Now()
	store.Subscribe(func(types.NamespacedName) {
		r.mu.Lock() // until the sample is noted, so that they are in order
		defer r.mu.Unlock()
		if info, ok := store.Policy(policy); ok && ctx.Err() == nil {
			r.note(info)
		}
	})
	factory.Start(ctx.Done())
	go f.Run(ctx)
	return f.WaitForSync(ctx)
}

// recorded returns the recording up to now.
func (r *recorder) recorded() recording {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.recording
}

// note notes the numbers if they are new.
func (r *recorder) note(info policystore.PolicyInfo) {
	r.groups = nil
	now := sample{at: time.Since(r.begun)}
	for g := range info.Groups() {
		r.groups = append(r.groups, info.GroupName(g))
		pods, belong := 0, 0
		for _, c := range info.Cohorts {
			placed := 0
			for _, n := range c.Placed {
				placed += n
			}
			pods += c.Placed[len(r.groups)-1]
			belong += info.Quota(g, placed)
		}
		now.pods, now.belong = append(now.pods, pods), append(now.belong, belong)
	}
	if n := len(r.samples); n > 0 {
		last := r.samples[n-1]
		if slices.Equal(last.pods, now.pods) && slices.Equal(last.belong, now.belong) {
			return
		}
	}
	r.samples = append(r.samples, now)
}

// step notes that a step begins.
func (r *recorder) step(title string) {
	if r != nil {
		r.add(&r.steps, title)
	}
}

// rest waits a moment, so that the end of a step can be seen.
func (r *recorder) rest(ctx context.Context) {
	if r == nil {
		return
	}
	select {
	case <-time.After(restShown):
	case <-ctx.Done():
	}
}

// mark notes that something has happened.
func (r *recorder) mark(text string) {
	if r != nil {
		r.add(&r.events, text)
	}
}

func (r *recorder) add(marks *[]mark, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*marks = append(*marks, mark{time.Since(r.begun), text})
}
