package policystore

// tally counts things by their kind. Most tallies are of one kind or two: they are kept in a list, which is much
// smaller than a map, until there are many. The zero value is an empty tally.
type tally[K comparable] struct {
	few  []tallied[K] // no zeros
	many map[K]int    // in place of few, once there were more than maxFew kinds
}

type tallied[K comparable] struct {
	kind K
	n    int
}

// maxFew is how many items are sought faster in a list than in a map, or nearly so.
const maxFew = 8

// add counts n more of a kind, or fewer if n is negative, and returns how many there are now.
func (t *tally[K]) add(kind K, n int) int {
	if t.many != nil {
		n += t.many[kind]
		if t.many[kind] = n; n == 0 {
			delete(t.many, kind)
		}
		return n
	}
	for i := range t.few {
		if at := &t.few[i]; at.kind == kind {
			at.n += n
			n = at.n
			if n == 0 {
				last := len(t.few) - 1
				t.few[i] = t.few[last]
				t.few[last] = tallied[K]{}
				t.few = t.few[:last]
			}
			return n
		}
	}
	if len(t.few) < maxFew {
		t.few = append(t.few, tallied[K]{kind, n})
		return n
	}
	t.many = map[K]int{kind: n}
	for _, at := range t.few {
		t.many[at.kind] = at.n
	}
	t.few = nil
	return n
}

// kinds returns how many kinds there are.
func (t *tally[K]) kinds() int { return len(t.few) + len(t.many) }

// all yields each kind with how many there are of it.
func (t *tally[K]) all(yield func(kind K, n int) bool) {
	for _, at := range t.few {
		if !yield(at.kind, at.n) {
			return
		}
	}
	for kind, n := range t.many {
		if !yield(kind, n) {
			return
		}
	}
}
