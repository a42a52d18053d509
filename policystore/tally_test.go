package policystore

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTallyCountsLikeAMap(t *testing.T) {
	for _, kinds := range []int{1, maxFew, maxFew + 1, 3 * maxFew} {
		var counts tally[int]
		want := map[int]int{}
		for range 1000 {
			kind, n := rand.IntN(kinds), 1
			if want[kind] > 0 && rand.IntN(2) == 0 {
				n = -1
			}
			if want[kind] += n; want[kind] == 0 {
				delete(want, kind)
			}
			require.Equal(t, want[kind], counts.add(kind, n))
			require.Equal(t, len(want), counts.kinds())
			require.Equal(t, want, maps.Collect(counts.all))
			for range counts.all {
				break // it may be left early
			}
		}
		for kind, n := range want {
			counts.add(kind, -n)
		}
		require.Zero(t, counts.kinds())
		require.Equal(t, kinds > maxFew, counts.many != nil, "a map is large")
		for _, at := range counts.few[:cap(counts.few)] {
			require.Zero(t, at, "what is gone must not be kept alive")
		}
	}
}

func TestSetsOfFewItemsNeedNoMap(t *testing.T) {
	var s Set[int]
	for i := range maxFew {
		s.Insert(i)
	}
	require.Nil(t, s.items)
	s.Insert(maxFew)
	require.Nil(t, s.few)
	require.Equal(t, maxFew+1, s.Len())
}

// Divisions read the changes without the store's lock.
func TestWhatIsInTheNodeLogStays(t *testing.T) {
	var log nodeLog
	name := func(i int) string { return fmt.Sprint("n", i) }
	for i := range 10 * maxNodeChanges {
		read := log.changes
		before := slices.Clone(read)
		log.add(nodeChange{name: name(i)})
		require.Equal(t, before, read)
		require.Equal(t, i+1, log.count())
		require.Equal(t, name(i), log.changes[i-log.dropped].name)
	}
}
