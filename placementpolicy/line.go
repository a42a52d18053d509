package placementpolicy

import (
	"cmp"
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

const (
	// turnTime is how long pods whose turn it is have to take the places that are open. After that it is the turn of others.
	turnTime = 100 * time.Millisecond
	// maxTurnTime is how long they have if the scheduler has not tried them yet.
	maxTurnTime = time.Second
)

// line is the pods that one policy has kept out of a group. When places become open there, it is the turn of as many pods of a
// cohort as it has places: if all tried, of thousands, the scheduler would do nothing else for long. Pods that cannot use the
// place, which only the scheduler's filters can tell, soon give way to twice as many.
type line struct {
	pods map[types.UID]*waitingPod
	// turns are those of the cohorts of which pods were left out.
	turns map[policystore.CohortID]turns
}

type turns struct {
	// batch is of how many pods of the cohort it is the turn, even if there are not as many places.
	batch int
	// next is when it is the turn of those that were left out.
	next time.Time
}

// waitingPod is a pod that was kept out of a group.
type waitingPod struct {
	pod *v1.Pod
	// decision was taken in the pod's last cycle. For the member of a pod group it is the first one of the group's cycle,
	// which counts no reservations for other members, since these were undone at its end.
	decision policystore.Decision
	member   bool
	// yields: the decision let the pod in, but it had to leave the place to a nominated pod that the store did not
	// know to be nominated. What ends that cannot be told from the decision, so any change may.
	yields bool
	// turn is since when it is the pod's turn, zero if it is not. activated is when the pod was activated last.
	turn, activated time.Time
}

// places returns how many pods of the cohort may now go where the pod was kept out.
func (p *waitingPod) places(now policystore.Decision) int {
	then := p.decision
	places := now.NewPlaces(then)
	// A group that was open may still have had too few places for all members, and these are tried together.
	more := places > 0
	for g := range now.Groups() {
		more = more || now.Free(g) > then.Free(g)
	}
	if p.member && more {
		return math.MaxInt
	}
	return places
}

// next returns those of the waiting pods that are to be activated now, and when to look again, if at all. Pods stay in the
// line until they are tried.
func (l *line) next(store *policystore.Store, waiting []*waitingPod, now time.Time) (pods []*v1.Pod, again time.Time) {
	lookAt := func(t time.Time) {
		if again.IsZero() || t.Before(again) {
			again = t
		}
	}
	type candidate struct {
		*waitingPod
		places int
	}
	candidates := map[policystore.CohortID][]candidate{}
	inTurn := map[policystore.CohortID]int{}
	for _, p := range waiting {
		decision, _ := store.Decide(p.pod)
		cohort, places := decision.CohortID(), p.places(decision)
		if p.yields {
			places = math.MaxInt
		}
		switch {
		case places == 0:
			p.turn = time.Time{} // others were faster
			continue
		case p.turn.IsZero():
			candidates[cohort] = append(candidates[cohort], candidate{p, places})
			continue
		}
		// Not tried: the scheduler is busy or holds the pod back, or another plugin rejects it before this one is asked.
		if now.Sub(p.turn) < maxTurnTime {
			inTurn[cohort]++
		}
		if next := p.activated.Add(p.activated.Sub(p.turn)); now.Before(next) { // ever more seldom
			lookAt(next)
		} else {
			p.activated = now
			pods = append(pods, p.pod)
		}
	}

	leftOut := map[policystore.CohortID]turns{}
	for cohort, candidates := range candidates {
		t := l.turns[cohort]
		due := !now.Before(t.next)
		if due && !t.next.IsZero() && inTurn[cohort] == 0 {
			t.batch = 2 * max(1, t.batch)
		}
		slices.SortFunc(candidates, func(a, b candidate) int { return compareTurns(a.pod, b.pod) })
		for _, c := range candidates {
			if inTurn[cohort] >= max(c.places, t.batch) {
				if due {
					t.next = now.Add(turnTime)
				}
				leftOut[cohort] = t
				lookAt(t.next)
				break
			}
			inTurn[cohort]++
			c.turn, c.activated = now, now
			pods = append(pods, c.pod)
		}
	}
	l.turns = leftOut
	return pods, again
}

// compareTurns has pods of higher priority come first, then older ones, much as the scheduler's queue does.
func compareTurns(a, b *v1.Pod) int {
	return cmp.Or(
		cmp.Compare(corev1helpers.PodPriority(b), corev1helpers.PodPriority(a)),
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Name, b.Name),
	)
}
