package waiting

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/internal/workers"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

const (
	// gatherDelay gathers the changes of a burst: the pods of a policy are looked through once for all of them.
	gatherDelay = 20 * time.Millisecond
	// minBackoff is the time from a pod's turn to its first attempt. It doubles with each further turn, up to
	// maxBackoff, which is the scheduler's own.
	minBackoff = 10 * time.Millisecond
	maxBackoff = 10 * time.Second
	// minUntried is the time after which a pod that was not tried gives way to others and is to be tried once more. It
	// doubles each time, up to maxUntried. The scheduler may be busy, another plugin may reject the pod first, or it
	// may hold a pod back that is just evicting others: then it counts on who kept the pod out.
	minUntried = time.Second
	maxUntried = time.Minute
)

// Pod is a pod that was kept out of a group, and how.
type Pod struct {
	*v1.Pod
	// Decision was taken in the pod's last scheduling cycle. For the member of a pod group it is the first one of the
	// group's cycle, which counts no reservations for other members, since these were undone at its end.
	Decision policystore.Decision
	// Member: the pod was tried as the member of a pod group.
	Member bool
	// Yields: the decision let the pod in, but it had to leave the place to a nominated pod that the store did not know
	// to be nominated. What ends that cannot be told from the decision, so any change may.
	Yields bool
	// Refused: the place was taken at the last moment, when the pod was to be reserved. It is tried again at once,
	// since another group must be open.
	Refused bool
}

// Line is the pods that wait. Its methods are safe for concurrent use.
type Line struct {
	store  *policystore.Store
	pods   corelisters.PodLister
	try    func(ctx context.Context, pods ...*v1.Pod)
	begins func(policy types.NamespacedName)

	// changed are the policies whose pods are to be looked through, turns the pods whose turn it is.
	changed workqueue.TypedDelayingInterface[types.NamespacedName]
	turns   workqueue.TypedDelayingInterface[types.UID]
	// backoff counts the turns of each pod, untried in how many calls of try it was not tried since its turn.
	backoff, untried workqueue.TypedRateLimiter[types.UID]
	clock            clock.PassiveClock

	// mu guards the two below and what is in them. It is taken before the store's lock, never while that is held; and
	// while it is held, neither try nor begins is called.
	mu    sync.Mutex
	all   map[types.UID]*waitingPod
	waits map[types.NamespacedName]*policyLine // by the policies that govern pods which wait; none is empty
}

// waitingPod is a pod that waits or that has waited and was tried since.
type waitingPod struct {
	Pod
	state
	// policy is where the pod waits. That is the zero value for a pod that no policy governs any more.
	policy types.NamespacedName
	// due is when its turn begins, after the back-off.
	due time.Time
	// seen is the number of changes of the policy before the pod was kept out.
	seen int
}

type state int

const (
	waits state = iota
	// inTurn: the pod is to be tried. overdue: it was, in vain, so others are, too.
	inTurn
	overdue
	// tried: a scheduling cycle has begun for the pod, and it has not been kept out since.
	tried
)

// New returns an empty line for pods that the store judges. pods lists the scheduler's pods, as far as its informer has
// them. try has pods tried at once, whatever the scheduler's back-off says. begins, which may be nil, is told when a
// pod begins to wait and no other of its policy does. Both are called without locks.
//
// The caller has [Line.PolicyChanged] subscribe to the store, and calls the other methods as the scheduling cycles and
// the pods' events come.
func New(store *policystore.Store, pods corelisters.PodLister, clock clock.WithTicker, try func(ctx context.Context, pods ...*v1.Pod),
	begins func(policy types.NamespacedName)) *Line {
	return &Line{
		store:  store,
		pods:   pods,
		try:    try,
		begins: begins,
		changed: workqueue.NewTypedDelayingQueueWithConfig(
			workqueue.TypedDelayingQueueConfig[types.NamespacedName]{Clock: clock}),
		turns: workqueue.NewTypedDelayingQueueWithConfig(
			workqueue.TypedDelayingQueueConfig[types.UID]{Clock: clock}),
		backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](minBackoff, maxBackoff),
		untried: workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](minUntried, maxUntried),
		clock:   clock,
		all:     map[types.UID]*waitingPod{},
		waits:   map[types.NamespacedName]*policyLine{},
	}
}

// Run has pods tried until ctx is done.
func (l *Line) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { workers.Run(ctx, 1, l.changed, l.look) })
	running.Go(func() { workers.Run(ctx, 1, l.turns, l.turn) })
	running.Wait()
}

// Add has the pod wait. More calls in the same cycle, as for other nodes, cost no more than a map lookup.
func (l *Line) Add(p Pod) {
	l.mu.Lock()
	w := l.all[p.UID]
	if w != nil && w.state != tried && !p.Refused {
		w.Yields = w.Yields || p.Yields
		l.mu.Unlock()
		return
	}
	if w != nil {
		l.leaveLocked(w)
	}
	w = &waitingPod{Pod: p}
	l.all[p.UID] = w
	first := l.enterLocked(w, p.Decision.Policy)
	if p.Refused {
		l.takeTurnLocked(w)
	}
	l.mu.Unlock()
	l.tell(first, p.Decision.Policy)

	// What ends the wait may have come before it was noted: that the pod is gone or bound, ...
	now, err := l.pods.Pods(p.Namespace).Get(p.Name)
	if err != nil || now.UID != p.UID || now.Spec.NodeName != "" || now.DeletionTimestamp != nil {
		l.Remove(p.Pod)
		return
	}
	// ... or that it may go to the group now, or that another policy governs it.
	if now, _ := l.store.Decide(p.Pod); now.Policy != p.Decision.Policy || p.places(now) > 0 {
		l.changed.AddAfter(p.Decision.Policy, gatherDelay)
	}
}

// Tried tells that a scheduling cycle begins for the pod. It waits no more, unless it is added again.
func (l *Line) Tried(pod *v1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.all[pod.UID]
	if w == nil || w.state == tried {
		return
	}
	if w.state != waits { // if it cannot use the place, others may
		l.untried.Forget(w.UID)
		l.changed.AddAfter(w.policy, gatherDelay)
	}
	l.leaveLocked(w)
	w.state = tried
}

// Remove forgets a pod that is placed, bound or gone. Of a pod without UID, as a delete event without its object tells
// of it, the name counts.
func (l *Line) Remove(pod *v1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if pod.UID != "" {
		l.removeLocked(l.all[pod.UID])
		return
	}
	for _, w := range l.all {
		if w.Namespace == pod.Namespace && w.Name == pod.Name {
			l.removeLocked(w)
		}
	}
}

func (l *Line) removeLocked(w *waitingPod) {
	if w == nil {
		return
	}
	l.leaveLocked(w)
	delete(l.all, w.UID)
	l.backoff.Forget(w.UID)
	l.untried.Forget(w.UID)
}

// Reconsider has a look at a pod that the store may now judge by its events instead of by its object: it was tried
// before they came.
func (l *Line) Reconsider(pod *v1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.all[pod.UID]; w != nil && w.state != tried {
		l.changed.AddAfter(w.policy, gatherDelay)
	}
}

// PolicyChanged is for [policystore.Store.Subscribe].
func (l *Line) PolicyChanged(policy types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if line := l.waits[policy]; line != nil {
		line.changes++
		l.changed.AddAfter(policy, gatherDelay)
	}
}

// Waits reports whether a pod waits that the policy governs.
func (l *Line) Waits(policy types.NamespacedName) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waits[policy] != nil
}

// enterLocked has the pod wait for the policy, and reports whether it is the first one.
func (l *Line) enterLocked(w *waitingPod, policy types.NamespacedName) (first bool) {
	line := l.waits[policy]
	if line == nil {
		first = true
		line = &policyLine{pods: map[*waitingPod]struct{}{}}
		l.waits[policy] = line
	}
	line.pods[w] = struct{}{}
	w.policy, w.seen = policy, line.changes
	return first
}

// leaveLocked takes the pod out of where it waits, if it does.
func (l *Line) leaveLocked(w *waitingPod) {
	line := l.waits[w.policy]
	if line == nil {
		return
	}
	delete(line.pods, w)
	if len(line.pods) == 0 {
		delete(l.waits, w.policy)
	}
}

// takeTurnLocked has the pod tried, after a back-off if it has had its turn before.
func (l *Line) takeTurnLocked(w *waitingPod) {
	wait := l.backoff.When(w.UID)
	w.state, w.due = inTurn, l.clock.Now().Add(wait)
	l.turns.AddAfter(w.UID, wait)
}

// turn has the pod tried whose turn it is, and again later if it is not tried by then.
func (l *Line) turn(ctx context.Context, uid types.UID) {
	if pod := l.dueNow(uid); pod != nil {
		l.try(ctx, pod)
	}
}

func (l *Line) dueNow(uid types.UID) *v1.Pod {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.all[uid]
	if w == nil || w.state != inTurn && w.state != overdue {
		return nil
	}
	if wait := w.due.Sub(l.clock.Now()); wait > 0 { // what brought it here was for an earlier turn
		l.turns.AddAfter(uid, wait)
		return nil
	}
	if l.untried.NumRequeues(uid) > 0 { // it is not the first call
		w.state = overdue
		l.changed.Add(w.policy)
	}
	l.turns.AddAfter(uid, l.untried.When(uid))
	return w.Pod.Pod
}

func (l *Line) tell(begins bool, policy types.NamespacedName) {
	if begins && l.begins != nil && policy != (types.NamespacedName{}) {
		l.begins(policy)
	}
}
