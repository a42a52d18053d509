package perf

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
)

// table is a Markdown table.
type table struct {
	out  io.Writer
	rows [][]string
}

func newTable(out io.Writer, header ...string) *table {
	return &table{out: out, rows: [][]string{header, make([]string, len(header))}}
}

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) flush() {
	for i, row := range t.rows {
		fmt.Fprint(t.out, "|")
		for column, cell := range row {
			width := 0
			for _, other := range t.rows {
				width = max(width, utf8.RuneCountInString(other[column]))
			}
			if i == 1 {
				fmt.Fprintf(t.out, "%s|", strings.Repeat("-", width+2))
				continue
			}
			fmt.Fprintf(t.out, " %-*s |", width, cell)
		}
		fmt.Fprintln(t.out)
	}
}

// summary is the median of what is measured in the runs, and, of several, the range.
func summary(runs []*run, format string, measured func(*run) float64) string {
	if len(runs) == 0 {
		return "-"
	}
	values := make([]float64, len(runs))
	for i, r := range runs {
		values[i] = measured(r)
	}
	text := fmt.Sprintf(format, median(values))
	if len(values) > 1 {
		number, _, _ := strings.Cut(format, " ")
		text += fmt.Sprintf(" ("+number+".."+number+")", slices.Min(values), slices.Max(values))
	}
	return text
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 0 {
		return (sorted[middle-1] + sorted[middle]) / 2
	}
	return sorted[middle]
}

func TestSummary(t *testing.T) {
	tests := []struct {
		name   string
		values []float64
		want   string
	}{
		{"no value", nil, "-"},
		{"one value", []float64{2}, "2.0 ms"},
		{"the middle one of an odd number", []float64{9, 1, 2}, "2.0 ms (1.0..9.0)"},
		{"the mean of the middle two of an even number", []float64{9, 1, 2, 3}, "2.5 ms (1.0..9.0)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var runs []*run
			for i := range tt.values {
				runs = append(runs, &run{bound: i})
			}
			assert.Equal(t, tt.want, summary(runs, "%.1f ms", func(r *run) float64 { return tt.values[r.bound] }))
		})
	}
}

func TestTable(t *testing.T) {
	var out strings.Builder
	table := newTable(&out, "variant", "cycle")
	table.row("stock", "10 µs")
	table.row("do-nothing", "9 µs")
	table.flush()
	assert.Equal(t, ""+
		"| variant    | cycle |\n"+
		"|------------|-------|\n"+
		"| stock      | 10 µs |\n"+
		"| do-nothing | 9 µs  |\n", out.String())
}
