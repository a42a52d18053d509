package policystore

import (
	"iter"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
)

// Set is a set that is safe for concurrent use. The zero value is an empty set. A Set must not be
// copied after its first use.
type Set[T comparable] struct {
	mu sync.RWMutex // guards the two below
	// few has the items until there are more than maxFew, since most sets are of a few items and a map is large. After
	// that items has them.
	few   []T
	items sets.Set[T]
}

// SetReader is the reading half of a [Set].
type SetReader[T comparable] interface {
	Has(item T) bool
	Len() int
	All() iter.Seq[T]
}

// NewSet returns a set of the given items.
func NewSet[T comparable](items ...T) *Set[T] {
	s := &Set[T]{}
	for _, item := range items {
		s.Insert(item)
	}
	return s
}

// Insert adds item and reports whether it was new.
func (s *Set[T]) Insert(item T) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.has(item) {
		return false
	}
	switch {
	case s.items != nil:
		s.items.Insert(item)
	case len(s.few) < maxFew:
		s.few = append(s.few, item)
	default:
		s.items = sets.New(s.few...).Insert(item)
		s.few = nil
	}
	return true
}

// Delete removes item and reports whether it was there.
func (s *Set[T]) Delete(item T) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.has(item) {
		return false
	}
	if s.items != nil {
		s.items.Delete(item)
	} else {
		i := slices.Index(s.few, item)
		s.few = slices.Delete(s.few, i, i+1)
	}
	return true
}

// Has reports whether item is in the set.
func (s *Set[T]) Has(item T) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.has(item)
}

func (s *Set[T]) has(item T) bool {
	if s.items != nil {
		return s.items.Has(item)
	}
	return slices.Contains(s.few, item)
}

// Len returns the number of items.
func (s *Set[T]) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.few) + s.items.Len()
}

// All iterates, in no particular order, over a snapshot taken when the iteration starts: the loop
// may change the set, and others may too.
func (s *Set[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		snapshot := make([]T, 0, s.Len()) // not under the lock, since it may have to help the garbage collector
		s.mu.RLock()
		snapshot = append(snapshot, s.few...)
		for item := range s.items {
			snapshot = append(snapshot, item)
		}
		s.mu.RUnlock()
		slices.Values(snapshot)(yield)
	}
}
