package policystore

import (
	"maps"
	"math/rand/v2"
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
		for _, at := range counts.few[:cap(counts.few)] {
			require.Zero(t, at, "what is gone must not be kept alive")
		}
	}
}
