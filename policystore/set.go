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
	mu    sync.RWMutex // guards items
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
	return &Set[T]{items: sets.New(items...)}
}

// Insert adds item and reports whether it was new.
func (s *Set[T]) Insert(item T) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.items.Has(item) {
		return false
	}
	if s.items == nil {
		s.items = sets.New[T]()
	}
	s.items.Insert(item)
	return true
}

// Delete removes item and reports whether it was there.
func (s *Set[T]) Delete(item T) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.items.Has(item) {
		return false
	}
	s.items.Delete(item)
	return true
}

// Has reports whether item is in the set.
func (s *Set[T]) Has(item T) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.items.Has(item)
}

// Len returns the number of items.
func (s *Set[T]) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.items.Len()
}

// All iterates, in no particular order, over a snapshot taken when the iteration starts: the loop
// may change the set, and others may too.
func (s *Set[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		s.mu.RLock()
		snapshot := s.items.UnsortedList()
		s.mu.RUnlock()
		slices.Values(snapshot)(yield)
	}
}
