package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

const (
	listed = 20 // rows of a table
	few    = 3  // names in a cell
)

// tables prints answers as people read them. Wide tables have more columns, and all rows and names.
type tables struct {
	io.Writer
	wide bool
	// begun: something is printed already.
	begun bool
}

// section separates what is printed next from what was before.
func (t *tables) section() {
	if t.begun {
		fmt.Fprintln(t)
	}
	t.begun = true
}

// table prints the rows under a header, which are made by row, or nothing if there are none.
func (t *tables) table(header string, rows []string) {
	if len(rows) == 0 {
		return
	}
	shown := rows
	if !t.wide {
		shown = rows[:min(len(rows), listed)]
	}
	t.section()
	w := tabwriter.NewWriter(t, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, header)
	for _, row := range shown {
		fmt.Fprintln(w, row)
	}
	w.Flush()
	if more := len(rows) - len(shown); more > 0 {
		fmt.Fprintf(t, "... and %d more (-o wide has all)\n", more)
	}
}

func row(cells ...any) string {
	texts := make([]string, len(cells))
	for i, cell := range cells {
		texts[i] = cmp.Or(fmt.Sprint(cell), "-")
	}
	return strings.Join(texts, "\t")
}

// names lists names, if the tables are not wide only the first few.
func (t *tables) names(names []string) string {
	if t.wide {
		return strings.Join(names, ", ")
	}
	return some(names)
}

// some lists the first few names.
func some(names []string) string {
	if len(names) > few {
		names = append(slices.Clone(names[:few]), "...")
	}
	return strings.Join(names, ", ")
}

// nodes tells the nodes in each group.
func (t *tables) nodes(groups []Group) string {
	var texts []string
	for _, g := range groups {
		text := g.Name + " " + t.counted(g.Nodes)
		if len(g.Cordoned) > 0 {
			text += fmt.Sprintf(" (%d cordoned)", len(g.Cordoned))
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "; ")
}

// counted tells how many names there are, and lists them.
func (t *tables) counted(names []string) string {
	if len(names) == 0 {
		return "0"
	}
	return fmt.Sprintf("%d: %s", len(names), t.names(names))
}

func (t *tables) workloads(list []Workload) string {
	var texts []string
	for _, w := range list {
		texts = append(texts, fmt.Sprintf("%s (%d)", w.name(), w.Pods))
	}
	return t.names(texts)
}

func (w Workload) name() string { return cmp.Or(w.Workload, "no workload") }

func (c Cohort) name() string { return labels.Set(c.Labels).String() }

// qualifying is how many pods qualify, of how many that the workload wants if these are more.
func (c Cohort) qualifying() string {
	if c.Size > c.Now.QualifyingPods {
		return fmt.Sprintf("%d of %d", c.Now.QualifyingPods, c.Size)
	}
	return fmt.Sprint(c.Now.QualifyingPods)
}

func selector(s *metav1.LabelSelector) string {
	if text := metav1.FormatLabelSelector(s); text != "<none>" {
		return text
	}
	return "{}" // selects everything
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
