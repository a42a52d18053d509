package main

import (
	"fmt"
	"slices"
	"strings"
)

func (a WhatIf) text(out *tables) {
	a.Before.text(out)
	if a.After == nil {
		out.section()
		fmt.Fprintf(out, "On target: %s\n", yesNo(a.OnTarget))
		return
	}
	out.section()
	fmt.Fprintf(out, "WITH %s IN %s\n", strings.Join(a.Change.Set, ", "), a.Change.Policy)
	cohorts, pods := a.Before.entries()
	newCohorts, newPods := a.After.entries()
	out.compare(row("POLICY", "COHORT", "BEFORE", "AFTER"), cohorts, newCohorts)
	out.compare(row("NEXT POD", "BEFORE", "AFTER", "WHY"), pods, newPods)
	out.section()
	fmt.Fprintf(out, "On target: before %s, after %s\n", yesNo(a.Before.OnTarget), yesNo(a.OnTarget))
}

func (o Outcome) text(out *tables) {
	var valid, invalid, cohorts, next, ungoverned []string
	for _, p := range o.Policies {
		if p.Error != "" {
			invalid = append(invalid, row(p.Policy, p.Error))
			continue
		}
		valid = append(valid, row(p.Policy, p.rule(), selector(p.Spec.PodSelector), p.nodes(),
			out.nodes(p.Groups)))
	}
	for _, c := range o.Cohorts {
		now := "-" // as in the end
		if c.Now.String() != c.Then.String() {
			now = c.Now.String()
		}
		cohorts = append(cohorts, row(c.Policy, c.name(), out.workloads(c.Workloads), c.qualifying(), now, c.Then,
			verdict(c.OnTarget, *c.Then)))
	}
	for _, d := range o.Decisions {
		next = append(next, row(d.Pod, d.Policy, d.Group, d.Reason))
	}
	for _, w := range o.Ungoverned {
		ungoverned = append(ungoverned, row(w.Namespace, w.name(), w.Pods, w.Why))
	}
	out.table(row("POLICY", "RULE", "PODS", "NODES", "NODES IN GROUPS"), valid)
	out.table(row("INVALID POLICY", "GOVERNS NOTHING, BECAUSE"), invalid)
	out.table(row("POLICY", "COHORT", "PODS OF", "QUALIFYING", "NOW", "IN THE END", "ON TARGET"), cohorts)
	out.table(row("NEXT POD", "POLICY", "GROUP", "WHY"), next)
	out.table(row("NAMESPACE", "GOVERNED BY NO POLICY", "PODS", "WHY"), ungoverned)
	if o.NotCounted > 0 {
		out.section()
		fmt.Fprintf(out, "Not counted, since finished, being deleted or held by scheduling gates: %d\n", o.NotCounted)
	}
}

// entry is a fact about something in an outcome.
type entry struct{ key, value, note string }

// entries are what compare compares: how the cohorts are in the end, and where the pods go.
func (o Outcome) entries() (cohorts, pods []entry) {
	for _, c := range o.Cohorts {
		value := fmt.Sprintf("%s, %d pending", c.Then, c.Then.PendingPods)
		cohorts = append(cohorts, entry{key: row(c.Policy, c.name()), value: value})
	}
	for _, d := range o.Decisions {
		pods = append(pods, entry{key: d.Pod, value: fmt.Sprintf("%s (%s)", d.Group, d.Policy), note: "\t" + d.Reason})
	}
	return cohorts, pods
}

// compare prints side by side what is not the same before and after.
func (t *tables) compare(header string, before, after []entry) {
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
	t.table(header, rows)
}
