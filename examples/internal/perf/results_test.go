package perf

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"
)

// results has the runs of each variant, by repetition.
type results struct {
	variants []variant
	runs     map[string][]*run
}

func newResults(variants []variant) *results {
	return &results{variants: slices.Clone(variants), runs: map[string][]*run{}}
}

func (rs *results) add(r *run) {
	rs.runs[r.Variant.Name] = append(rs.runs[r.Variant.Name], r)
}

// print writes the results as Markdown.
func (rs *results) print(out io.Writer) {
	fmt.Fprintf(out, "\n%d nodes, %d %% of them in the target group", *nodes, *targetShare)
	if *targetJoinsLast {
		fmt.Fprint(out, ", the last to join")
	}
	fmt.Fprintf(out, "; %d pods; %d policies; medians (and least..most) of %d repetitions; %s, GOMAXPROCS %d.\n\n",
		*pods, *policies, *repetitions, runtime.Version(), runtime.GOMAXPROCS(0))
	rs.printVariants(out)
	if timed := rs.runs["timed"]; len(timed) > 0 {
		fmt.Fprintln(out)
		printTimes(out, timed, clockCost())
	}
}

func (rs *results) printVariants(out io.Writer) {
	t := newTable(
		out,
		"variant",
		"pods/s",
		"of stock",
		"of do-nothing",
		"cycle",
		"in the target group",
		"in the wrong group",
	)
	for _, v := range rs.variants {
		runs := rs.runs[v.Name]
		misplaced := "-"
		if v.governs() {
			misplaced = summary(runs, "%.0f", func(r *run) float64 { return float64(r.placed.misplaced) })
		}
		t.row(
			v.Name+": "+v.About,
			summary(runs, "%.0f", (*run).throughput),
			rs.ratio(runs, stock),
			rs.ratio(runs, doNothing),
			summary(runs, "%.2f ms", func(r *run) float64 { return r.cycles.mean().Seconds() * 1000 }),
			summary(
				runs,
				"%.1f %%",
				func(r *run) float64 { return 100 * float64(r.placed.inTarget) / float64(r.placed.pods) },
			),
			misplaced,
		)
	}
	t.flush()
}

// ratio compares the throughput of the runs with those of the baseline in the same repetitions.
func (rs *results) ratio(runs []*run, baseline string) string {
	base := rs.runs[baseline]
	if len(base) == 0 {
		return "-"
	}
	return summary(runs, "%.2f", func(r *run) float64 { return r.throughput() / base[r.Repetition-1].throughput() })
}

// printTimes writes how long the plugin took at each extension point in the average cycle, without the cost of the
// clock: by the medians of the runs' median calls, and by the sum of all calls.
func printTimes(out io.Writer, runs []*run, clock float64) {
	var c cycles
	for _, r := range runs {
		c.count += r.cycles.count
		c.duration += r.cycles.duration
	}
	cycle := float64(c.mean())
	t := newTable(
		out,
		"extension point",
		"calls a cycle",
		"median call",
		"in a cycle",
		"of the cycle",
		"all calls added up",
	)
	var allCalls, allMedian, allSum float64
	for _, point := range []struct {
		name  string
		calls func(*times) *calls
	}{
		{"PreFilter", func(t *times) *calls { return &t.preFilter }},
		{"Filter", func(t *times) *calls { return &t.filter }},
		{"PreScore", func(t *times) *calls { return &t.preScore }},
		{"Score", func(t *times) *calls { return &t.score }},
		{"Reserve", func(t *times) *calls { return &t.reserve }},
	} {
		var count, sum float64
		medians := make([]float64, len(runs))
		for i, r := range runs {
			calls := point.calls(&r.times)
			count += float64(calls.count.Load())
			sum += float64(calls.nanoseconds.Load())
			medians[i] = max(0, calls.median()-clock)
		}
		perCycle := count / float64(c.count)
		sum = max(0, sum-count*clock) / float64(c.count)
		call := median(medians)
		t.row(
			point.name,
			fmt.Sprintf("%.1f", perCycle),
			fmt.Sprintf("%.0f ns", call),
			fmt.Sprintf("%.1f µs", perCycle*call/1000),
			fmt.Sprintf("%.2f %%", 100*perCycle*call/cycle),
			fmt.Sprintf("%.2f %%", 100*sum/cycle),
		)
		allCalls += perCycle
		allMedian += perCycle * call
		allSum += sum
	}
	t.row("all", fmt.Sprintf("%.1f", allCalls), "", fmt.Sprintf("%.1f µs", allMedian/1000),
		fmt.Sprintf("%.2f %%", 100*allMedian/cycle), fmt.Sprintf("%.2f %%", 100*allSum/cycle))
	t.flush()
	fmt.Fprintf(
		out,
		"\nThe average cycle took %s from PreFilter to Score. %.0f ns for the clock are taken off each call.\n",
		c.mean().Round(time.Microsecond),
		clock,
	)
}
