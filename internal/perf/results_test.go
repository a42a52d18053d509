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
	t := newTable(out, "variant", "pods/s", "of stock", "of do-nothing", "cycle", "in the target group", "in the wrong group")
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
			summary(runs, "%.1f %%", func(r *run) float64 { return 100 * float64(r.placed.inTarget) / float64(r.placed.pods) }),
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

// printTimes writes how long the plugin took at each extension point in the average cycle, without the cost of the clock.
func printTimes(out io.Writer, runs []*run, clock float64) {
	var c cycles
	for _, r := range runs {
		c.count += r.cycles.count
		c.duration += r.cycles.duration
	}
	t := newTable(out, "extension point", "calls a cycle", "a call", "in a cycle", "of the cycle")
	row := func(name string, count, nanoseconds float64) {
		cycle := nanoseconds / float64(c.count)
		t.row(name, fmt.Sprintf("%.1f", count/float64(c.count)), fmt.Sprintf("%.0f ns", nanoseconds/max(1, count)),
			fmt.Sprintf("%.1f µs", cycle/1000), fmt.Sprintf("%.2f %%", 100*cycle/float64(c.mean())))
	}
	var allCount, all float64
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
		var count, nanoseconds float64
		for _, r := range runs {
			calls := point.calls(&r.times)
			count += float64(calls.count.Load())
			nanoseconds += float64(calls.nanoseconds.Load())
		}
		nanoseconds = max(0, nanoseconds-count*clock)
		row(point.name, count, nanoseconds)
		allCount += count
		all += nanoseconds
	}
	row("all", allCount, all)
	t.flush()
	fmt.Fprintf(out, "\nThe average cycle took %s from PreFilter to Score. %.0f ns for the clock are taken off each call.\n",
		c.mean().Round(time.Microsecond), clock)
}
