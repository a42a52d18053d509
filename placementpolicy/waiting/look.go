package waiting

import (
	"cmp"
	"context"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

// policyLine is the pods that wait for one policy.
type policyLine struct {
	pods map[*waitingPod]struct{}
	// changes is how often the policy, its cohorts or their counts have changed since the first of them waits.
	changes int
	// batches has the cohorts of which it is the turn of some pods, and of how many at least, even if there are not as
	// many places.
	batches map[policystore.CohortID]int
}

// judged is a waiting pod and what the store says of it.
type judged struct {
	*waitingPod
	changed bool // its policy, since it was kept out
	now     policystore.Decision
	places  int
}

// look gives the pods of a policy their turn that it now lets in, and lets those go that another policy governs.
func (l *Line) look(_ context.Context, policy types.NamespacedName) {
	l.mu.Lock()
	var pods []*judged
	if line := l.waits[policy]; line != nil {
		for w := range line.pods {
			pods = append(pods, &judged{waitingPod: w, changed: w.Yields && line.changes > w.seen})
		}
	}
	l.mu.Unlock()
	// Without the lock, which scheduling cycles take, since there may be thousands of pods.
	var welcome []*judged
	for _, p := range pods {
		p.now, _ = l.store.Decide(p.Pod.Pod)
		if p.places = p.Pod.places(p.now); p.changed {
			p.places = math.MaxInt
		}
		if p.places > 0 {
			welcome = append(welcome, p)
		}
	}
	slices.SortFunc(welcome, func(a, b *judged) int { return compareTurns(a.Pod.Pod, b.Pod.Pod) })

	l.mu.Lock()
	begun := l.moveLocked(policy, pods)
	if line := l.waits[policy]; line != nil {
		for _, p := range pods {
			if p.places == 0 && line.has(p.waitingPod) { // others were faster
				p.state = waits
				l.untried.Forget(p.UID)
			}
		}
		l.giveTurnsLocked(line, welcome)
	}
	l.mu.Unlock()
	for _, policy := range begun {
		l.tell(true, policy)
	}
}

// moveLocked has the pods wait for the policies that govern them now. It returns those for which none waited before.
func (l *Line) moveLocked(from types.NamespacedName, pods []*judged) (begun []types.NamespacedName) {
	for _, p := range pods {
		to := p.now.Policy
		if to == from || !l.waits[from].has(p.waitingPod) {
			continue
		}
		l.leaveLocked(p.waitingPod)
		if l.enterLocked(p.waitingPod, to) {
			begun = append(begun, to)
		}
		p.seen = -1       // whom it has yielded to does not matter there
		l.changed.Add(to) // which may have changed since it was asked, when nobody waited for it
	}
	return begun
}

// giveTurnsLocked gives as many pods of each cohort their turn as it has places. All that are given may go somewhere.
func (l *Line) giveTurnsLocked(line *policyLine, pods []*judged) {
	inTurnOf, batches := map[policystore.CohortID]int{}, map[policystore.CohortID]int{}
	for _, p := range pods {
		if p.state == inTurn && line.has(p.waitingPod) {
			inTurnOf[p.now.CohortID()]++
		}
	}
	for _, p := range pods {
		cohort := p.now.CohortID()
		if p.state != waits || !line.has(p.waitingPod) {
			continue
		}
		if _, known := batches[cohort]; !known {
			batch, given := line.batches[cohort]
			if given && inTurnOf[cohort] == 0 { // all were tried, and there are places all the same
				batch = 2 * max(1, batch)
			}
			batches[cohort] = batch
		}
		if inTurnOf[cohort] < max(p.places, batches[cohort]) {
			l.takeTurnLocked(p.waitingPod)
			inTurnOf[cohort]++
		}
	}
	line.batches = batches
}

// has reports whether the pod waits for the policy. For a policy for which none waits the line is nil.
func (line *policyLine) has(w *waitingPod) bool {
	if line == nil {
		return false
	}
	_, ok := line.pods[w]
	return ok
}

// places returns how many pods of the cohort may now go where the pod was kept out.
func (p *Pod) places(now policystore.Decision) int {
	if p.Refused {
		return math.MaxInt
	}
	then := p.Decision
	places := now.NewPlaces(then)
	// A group that was open may still have had too few places for all members, and these are tried together.
	more := places > 0
	for g := range now.Groups() {
		more = more || now.Free(g) > then.Free(g)
	}
	if p.Member && more {
		return math.MaxInt
	}
	return places
}

// compareTurns has pods of higher priority come first, then older ones, much as the scheduler's queue does.
func compareTurns(a, b *v1.Pod) int {
	return cmp.Or(
		cmp.Compare(corev1helpers.PodPriority(b), corev1helpers.PodPriority(a)),
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Name, b.Name),
	)
}
