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

// text prints the answer as people read it.
func (a Answer) text(out io.Writer) {
	a.Before.text(out)
	if a.After == nil {
		fmt.Fprintf(out, "On target: %s\n", yesNo(a.OnTarget))
		return
	}
	fmt.Fprintf(out, "WITH %s IN %s\n\n", strings.Join(a.Change.Set, ", "), a.Change.Policy)
	cohorts, pods := a.Before.entries()
	newCohorts, newPods := a.After.entries()
	compare(out, row("POLICY", "COHORT", "BEFORE", "AFTER"), cohorts, newCohorts)
	compare(out, row("NEXT POD", "BEFORE", "AFTER", "WHY"), pods, newPods)
	fmt.Fprintf(out, "On target: before %s, after %s\n", yesNo(a.Before.OnTarget), yesNo(a.OnTarget))
}

func (o Outcome) text(out io.Writer) {
	var valid, invalid, cohorts, next, ungoverned []string
	for _, p := range o.Policies {
		if p.Error != "" {
			invalid = append(invalid, row(p.Policy, p.Error))
			continue
		}
		rule := fmt.Sprintf("%s, %s %s, weight %d", p.Spec.EnforcementMode, p.Spec.Policy.Action, p.Spec.Policy.TargetSize, p.Spec.Weight)
		valid = append(valid, row(p.Policy, rule, selector(p.Spec.PodSelector), selector(p.Spec.NodeSelector), nodes(p.TargetNodes), nodes(p.OtherNodes)))
	}
	for _, c := range o.Cohorts {
		var workloads []string
		for _, w := range c.Workloads {
			workloads = append(workloads, fmt.Sprintf("%s (%d)", w.name(), w.Pods))
		}
		qualifying := fmt.Sprint(c.Qualifying)
		if c.Size > c.Qualifying {
			qualifying = fmt.Sprintf("%d of %d", c.Qualifying, c.Size)
		}
		cohorts = append(cohorts, row(c.Policy, labels.Set(c.Labels), some(workloads), qualifying, c.Target, arrow(c.Now.Managed, c.Then.Managed),
			arrow(c.Now.Other, c.Then.Other), arrow(c.Now.Pending, c.Then.Pending), c.verdict()))
	}
	for _, d := range o.Decisions {
		next = append(next, row(d.Pod, d.Policy, d.Group, d.Reason))
	}
	for _, w := range o.Ungoverned {
		ungoverned = append(ungoverned, row(w.Namespace, w.name(), w.Pods))
	}
	table(out, row("POLICY", "RULE", "PODS", "NODES", "TARGET GROUP", "OTHER GROUP"), valid)
	table(out, row("INVALID POLICY", "GOVERNS NOTHING, BECAUSE"), invalid)
	table(out, row("POLICY", "COHORT", "PODS OF", "QUALIFYING", "TARGET", "MANAGED", "OTHER", "PENDING", "ON TARGET"), cohorts)
	table(out, row("NEXT POD", "POLICY", "GROUP", "WHY"), next)
	table(out, row("NAMESPACE", "GOVERNED BY NO POLICY", "PODS"), ungoverned)
	if o.NotCounted > 0 {
		fmt.Fprintf(out, "Not counted, since finished, being deleted or held by scheduling gates: %d\n\n", o.NotCounted)
	}
}

// entry is a fact about something in an outcome.
type entry struct{ key, value, note string }

// entries are what compare compares: how the cohorts are in the end, and where the pods go.
func (o Outcome) entries() (cohorts, pods []entry) {
	for _, c := range o.Cohorts {
		value := fmt.Sprintf("%d managed, %d other, %d pending, target %d of %d", c.Then.Managed, c.Then.Other, c.Then.Pending, c.Target, c.Size)
		cohorts = append(cohorts, entry{key: row(c.Policy, labels.Set(c.Labels)), value: value})
	}
	for _, d := range o.Decisions {
		pods = append(pods, entry{key: d.Pod, value: fmt.Sprintf("%s (%s)", d.Group, d.Policy), note: "\t" + d.Reason})
	}
	return cohorts, pods
}

// compare prints side by side what is not the same before and after.
func compare(out io.Writer, header string, before, after []entry) {
	now, then := map[string]entry{}, map[string]entry{}
	for _, e := range before {
		now[e.key] = e
	}
	for _, e := range after {
		then[e.key] = e
	}
	var rows []string
	for _, e := range slices.Concat(before, after) {
		if b, a := now[e.key], then[e.key]; b.value != a.value {
			rows = append(rows, row(e.key, b.value, a.value)+a.note)
			now[e.key] = a // done
		}
	}
	table(out, header, rows)
}

func table(out io.Writer, header string, rows []string) {
	if len(rows) == 0 {
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, header)
	for _, row := range rows[:min(len(rows), listed)] {
		fmt.Fprintln(w, row)
	}
	w.Flush()
	if more := len(rows) - listed; more > 0 {
		fmt.Fprintf(out, "... and %d more (-o json has all)\n", more)
	}
	fmt.Fprintln(out)
}

func row(cells ...any) string {
	texts := make([]string, len(cells))
	for i, cell := range cells {
		texts[i] = cmp.Or(fmt.Sprint(cell), "-")
	}
	return strings.Join(texts, "\t")
}

// some lists the first few names.
func some(names []string) string {
	if len(names) > few {
		names = append(slices.Clone(names[:few]), "...")
	}
	return strings.Join(names, ", ")
}

func nodes(names []string) string {
	if len(names) == 0 {
		return "no node"
	}
	return fmt.Sprintf("%d: %s", len(names), some(names))
}

func selector(s *metav1.LabelSelector) string {
	if text := metav1.FormatLabelSelector(s); text != "<none>" {
		return text
	}
	return "{}" // selects everything
}

func (w Workload) name() string { return cmp.Or(w.Workload, "no workload") }

func (c Cohort) verdict() string {
	var wrong []string
	if d := c.Then.Managed - c.Target; d > 0 {
		wrong = append(wrong, fmt.Sprintf("%d too many", d))
	} else if d < 0 {
		wrong = append(wrong, fmt.Sprintf("%d too few", -d))
	}
	if c.Then.Pending > 0 {
		wrong = append(wrong, fmt.Sprintf("%d pending", c.Then.Pending))
	}
	return cmp.Or(strings.Join(wrong, ", "), "yes")
}

func arrow(now, then int) string {
	if now == then {
		return fmt.Sprint(now)
	}
	return fmt.Sprintf("%d -> %d", now, then)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
