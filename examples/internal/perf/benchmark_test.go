package perf

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkScheduling runs the variants in turn, in the reverse order each second time, so that what changes in the
// machine over time falls on all of them, and compares each run with those of the same repetition.
func BenchmarkScheduling(b *testing.B) {
	selected, err := selectVariants()
	require.NoError(b, err)
	begin := time.Now()
	results := newResults(selected)
	for repetition := 1; repetition <= *repetitions; repetition++ {
		for _, v := range selected {
			r := measure(b, v, repetition)
			if b.Failed() {
				return
			}
			results.add(r)
			fmt.Printf("# %s, repetition %d of %d: %.0f pods/s, %s since the start\n",
				v.Name, repetition, *repetitions, r.throughput(), time.Since(begin).Round(time.Second))
		}
		slices.Reverse(selected)
	}
	results.print(os.Stdout)
}
