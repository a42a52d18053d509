package report

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// byUrgency is the order of the reporter's work, as the Queue of a work queue: policies come as they were added, but
// those that were postponed after all others. If one of these changes, it is looked at again at once, and comes back
// to its place if it is postponed again.
type byUrgency struct {
	mu           sync.Mutex // guards all
	urgent, rest []types.NamespacedName
	// in is which of the two lists a policy is in. What else is in them has left.
	in map[types.NamespacedName]list
	// postponed go to the rest when they are added next.
	postponed map[types.NamespacedName]bool
	// last is from where a policy came out last.
	last map[types.NamespacedName]list
}

type list int

const (
	inUrgent list = iota + 1
	inRest
)

func newByUrgency() *byUrgency {
	return &byUrgency{
		in:        map[types.NamespacedName]list{},
		postponed: map[types.NamespacedName]bool{},
		last:      map[types.NamespacedName]list{},
	}
}

// postpone has the policy, which came out of the queue and is about to be added again, come after all others. It
// returns false if it has come after all others.
func (q *byUrgency) postpone(policy types.NamespacedName) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.last[policy] == inRest {
		return false
	}
	q.postponed[policy] = true
	return true
}

// forget drops what is known of a policy that is not in the queue.
func (q *byUrgency) forget(policy types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.last, policy)
	delete(q.postponed, policy)
}

// Push implements workqueue.Queue.
func (q *byUrgency) Push(policy types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.postponed[policy] {
		delete(q.postponed, policy)
		q.rest = append(q.rest, policy)
		q.in[policy] = inRest
		return
	}
	q.urgent = append(q.urgent, policy)
	q.in[policy] = inUrgent
}

// Touch implements workqueue.Queue.
func (q *byUrgency) Touch(policy types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.in[policy] == inRest {
		q.urgent = append(q.urgent, policy)
		q.in[policy] = inUrgent
	}
}

// Len implements workqueue.Queue.
func (q *byUrgency) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.in)
}

// Pop implements workqueue.Queue. It is called only if Len is not 0.
func (q *byUrgency) Pop() types.NamespacedName {
	q.mu.Lock()
	defer q.mu.Unlock()
	policy, ok := q.next(&q.urgent, inUrgent)
	if !ok {
		policy, _ = q.next(&q.rest, inRest)
	}
	return policy
}

// next takes the first policy out of a list.
func (q *byUrgency) next(from *[]types.NamespacedName, which list) (types.NamespacedName, bool) {
	for len(*from) > 0 {
		policy := (*from)[0]
		*from = (*from)[1:]
		if q.in[policy] == which {
			delete(q.in, policy)
			q.last[policy] = which
			return policy, true
		}
	}
	return types.NamespacedName{}, false
}
