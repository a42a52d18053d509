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

// line is the pods that one policy has kept out of a group. When places become open there, it is the turn of as many pods as
// there are places: if all tried, of thousands, the scheduler would do nothing else for long. Pods that cannot use the place,
// which only the scheduler's filters can tell, soon give way to twice as many.
type line struct {
	pods map[types.UID]*waitingPod
	// batch is of how many pods of a cohort it is the turn, even if there are not as many places.
	batch int
	// nextTurn is when it is the turn of those that were left out; zero if there are none.
	nextTurn time.Time
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
	// turn is since when it is the pod's turn; zero if it is not.
	turn time.Time
}

// places returns how many pods of the cohort may now go where the pod was kept out.
func (p *waitingPod) places(now policystore.Decision) int {
	then := p.decision
	places := now.NewPlaces(then)
	// A group that was open may still have had too few places for all members, and these are tried together.
	if p.member && (places > 0 ||
		now.Quota(policystore.Target)-now.Managed > then.Quota(policystore.Target)-then.Managed ||
		now.Quota(policystore.Other)-now.Other > then.Quota(policystore.Other)-then.Other) {
		return math.MaxInt
	}
	return places
}

// next returns the pods whose turn it is now and, if others must wait for theirs, when it comes. Pods stay in the line until
// they are tried.
func (l *line) next(store *policystore.Store, now time.Time) (pods []*v1.Pod, nextTurn time.Time) {
	type candidate struct {
		*waitingPod
		cohort policystore.CohortID
		places int
	}
	var candidates []candidate
	inTurn := map[policystore.CohortID]int{}
	for _, p := range l.pods {
		decision, _ := store.Decide(p.pod)
		places := p.places(decision)
		if p.yields {
			places = math.MaxInt
		}
		switch {
		case places == 0:
		case p.turn.IsZero():
			candidates = append(candidates, candidate{p, decision.Cohort(), places})
		default: // not tried yet
			pods = append(pods, p.pod)
			if now.Sub(p.turn) < maxTurnTime {
				inTurn[decision.Cohort()]++
			}
		}
	}

	due := !now.Before(l.nextTurn)
	if due && !l.nextTurn.IsZero() && len(inTurn) == 0 {
		l.batch = 2 * max(1, l.batch)
	}
	slices.SortFunc(candidates, func(a, b candidate) int { return compareTurns(a.pod, b.pod) })
	left := false
	for _, c := range candidates {
		if inTurn[c.cohort] >= max(c.places, l.batch) {
			left = true
			continue
		}
		inTurn[c.cohort]++
		c.turn = now
		pods = append(pods, c.pod)
	}
	switch {
	case !left:
		l.batch, l.nextTurn = 0, time.Time{}
	case due:
		l.nextTurn = now.Add(turnTime)
	}
	return pods, l.nextTurn
}

// compareTurns has pods of higher priority come first, then older ones, as in the scheduler's queue.
func compareTurns(a, b *v1.Pod) int {
	return cmp.Or(
		cmp.Compare(corev1helpers.PodPriority(b), corev1helpers.PodPriority(a)),
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Name, b.Name),
	)
}
