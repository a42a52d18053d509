package labelselector

import (
	"iter"

	"k8s.io/apimachinery/pkg/labels"
)

// Index finds, for a label set, the keys of all selectors that match it, without trying every
// selector: a selector that asks for a certain label is tried only for label sets that have it.
// Only selectors that ask for no certain label (such as {}, Exists and NotIn) are tried each time.
//
// Readers may run concurrently, but not beside Set or Delete. The zero value is an empty index.
type Index[K comparable] struct {
	// entries tell in which buckets a key's selector is filed, so that it can be taken out again. It is in none if it is among the
	// rest, or matches nothing.
	entries map[K][]pair
	buckets map[pair]map[K]Selector
	// rest holds the selectors that no exact pair can stand for.
	rest map[K]Selector
}

// Set files the selector under key, in place of the one that key had.
func (x *Index[K]) Set(key K, s Selector) {
	x.Delete(key)
	if x.entries == nil {
		x.entries = map[K][]pair{}
		x.buckets = map[pair]map[K]Selector{}
		x.rest = map[K]Selector{}
	}
	alternatives, selectable := s.alternatives()
	if !selectable {
		x.entries[key] = nil
		return
	}
	pairs := x.smallest(alternatives)
	if len(pairs) == 0 {
		x.rest[key] = s
	}
	for _, p := range pairs {
		if x.buckets[p] == nil {
			x.buckets[p] = map[K]Selector{}
		}
		x.buckets[p][key] = s
	}
	x.entries[key] = pairs
}

// smallest picks the alternative whose buckets hold the fewest selectors: among policies that all
// say team=web and each its own app, the app.
func (x *Index[K]) smallest(alternatives [][]pair) []pair {
	var best []pair
	bestSize := 0
	for _, pairs := range alternatives {
		size := 0
		for _, p := range pairs {
			size += 1 + len(x.buckets[p])
		}
		if best == nil || size < bestSize {
			best, bestSize = pairs, size
		}
	}
	return best
}

// Delete takes key out and reports whether it was in.
func (x *Index[K]) Delete(key K) bool {
	pairs, ok := x.entries[key]
	if !ok {
		return false
	}
	delete(x.entries, key)
	delete(x.rest, key)
	for _, p := range pairs {
		delete(x.buckets[p], key)
		if len(x.buckets[p]) == 0 {
			delete(x.buckets, p)
		}
	}
	return true
}

// Len returns how many keys are in the index.
func (x *Index[K]) Len() int { return len(x.entries) }

// Matching yields each key whose selector matches the label set once, in no particular order.
// The index must not change while the sequence is read.
func (x *Index[K]) Matching(set labels.Set) iter.Seq[K] {
	return func(yield func(K) bool) {
		for key, s := range x.rest {
			if s.Matches(set) && !yield(key) {
				return
			}
		}
		if len(x.buckets) == 0 {
			return
		}
		for k, v := range set {
			for key, s := range x.buckets[pair{k, v}] {
				if s.Matches(set) && !yield(key) {
					return
				}
			}
		}
	}
}
