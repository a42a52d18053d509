package labelselector

import (
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
)

// Index finds, for a label set, the keys of all selectors that match it, without trying every
// selector: a selector that asks for a certain label, or for a certain key, is tried only for label sets that have it.
// Only selectors that ask for neither (such as {} and NotIn) are tried each time.
//
// Readers may run concurrently, but not beside Set or Delete. The zero value is an empty index.
type Index[K comparable] struct {
	// Order, if it is not nil, is the order in which Matching yields keys. Set it before the first use. Where a key
	// stands must not change while it is in the index, other than by setting the key again.
	Order func(a, b K) int

	// entries tell in which buckets a key's selector is filed, so that it can be taken out again. It is in none if it
	// is among the rest, or matches nothing.
	entries map[K][]pair
	buckets map[pair]bucket[K]
	// keyed counts the entries that are filed under a key with any value: seldom any.
	keyed int
	// rest holds the selectors that no pair can stand for.
	rest bucket[K]
}

// bucket holds selectors, in the order of their keys.
type bucket[K comparable] []entry[K]

type entry[K comparable] struct {
	key      K
	selector Selector
}

// Set files the selector under key, in place of the one that key had.
func (x *Index[K]) Set(key K, s Selector) {
	x.Delete(key)
	if x.entries == nil {
		x.entries = map[K][]pair{}
		x.buckets = map[pair]bucket[K]{}
	}
	alternatives, selectable := s.alternatives()
	if !selectable {
		x.entries[key] = nil
		return
	}
	pairs := x.smallest(alternatives)
	if len(pairs) == 0 {
		x.rest = x.with(x.rest, key, s)
	}
	for _, p := range pairs {
		x.buckets[p] = x.with(x.buckets[p], key, s)
		if p.anyValue {
			x.keyed++
		}
	}
	x.entries[key] = pairs
}

// with returns the bucket with one more selector.
func (x *Index[K]) with(b bucket[K], key K, s Selector) bucket[K] {
	at := len(b)
	if x.Order != nil {
		at, _ = slices.BinarySearchFunc(b, key, func(e entry[K], key K) int { return x.Order(e.key, key) })
	}
	return slices.Insert(b, at, entry[K]{key, s})
}

func (b bucket[K]) without(key K) bucket[K] {
	return slices.DeleteFunc(b, func(e entry[K]) bool { return e.key == key })
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
	if len(pairs) == 0 {
		x.rest = x.rest.without(key)
	}
	for _, p := range pairs {
		if p.anyValue {
			x.keyed--
		}
		if b := x.buckets[p].without(key); len(b) > 0 {
			x.buckets[p] = b
		} else {
			delete(x.buckets, p)
		}
	}
	return true
}

// Len returns how many keys are in the index.
func (x *Index[K]) Len() int { return len(x.entries) }

// Matching yields each key whose selector matches the label set once: in the index's Order or, without one, in no
// particular order. The first ones come without a look at those behind them. The index must not change while the
// sequence is read.
func (x *Index[K]) Matching(set labels.Set) iter.Seq[K] {
	return func(yield func(K) bool) {
		heads := make([]bucket[K], 0, 32) // each begins with a selector that matches; on the stack for most label sets
		add := func(b bucket[K]) {
			if b = b.advance(set); len(b) > 0 {
				heads = append(heads, b)
			}
		}
		add(x.rest)
		if len(x.buckets) > 0 {
			for key, value := range set {
				add(x.buckets[pair{key: key, value: value}])
				if x.keyed > 0 {
					add(x.buckets[pair{key: key, anyValue: true}])
				}
			}
		}
		for len(heads) > 0 {
			first := 0
			for i := range heads {
				if x.Order != nil && x.Order(heads[i][0].key, heads[first][0].key) < 0 {
					first = i
				}
			}
			if !yield(heads[first][0].key) {
				return
			}
			if heads[first] = heads[first][1:].advance(set); len(heads[first]) == 0 {
				heads[first] = heads[len(heads)-1]
				heads = heads[:len(heads)-1]
			}
		}
	}
}

// advance returns the bucket from the first selector on that matches.
func (b bucket[K]) advance(set labels.Set) bucket[K] {
	for len(b) > 0 && !b[0].selector.Matches(set) {
		b = b[1:]
	}
	return b
}
