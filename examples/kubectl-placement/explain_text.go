package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

func (e Explanation) text(out *tables) {
	out.section()
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	where := "pending"
	if e.Node != "" {
		where = "on node " + e.Node
	}
	if e.Group != "" {
		where += fmt.Sprintf(", in group %s", e.Group)
	}
	fmt.Fprintf(w, "Pod:\t%s, %s\n", e.Pod, where)
	fmt.Fprintf(w, "Policy:\t%s\n", cmp.Or(e.Policy, "none: "+e.NotGoverned))
	if c := e.Cohort; c != nil {
		fmt.Fprintf(w, "Cohort:\t%s\n", cmp.Or(c.name(), "all pods of the policy"))
		fmt.Fprintf(w, "Pods of:\t%s\n", out.workloads(c.Workloads))
		fmt.Fprintf(w, "Counts:\t%s qualify: %s, %d pending\n", c.qualifying(), c.Now, c.Now.PendingPods)
	}
	if e.Policy != "" && e.NotCounted != "" {
		fmt.Fprintf(w, "Counts:\tno, since %s\n", e.NotCounted)
	}
	if len(e.Waiting) > 0 {
		fmt.Fprintf(w, "Waits:\t%s\n", strings.Join(e.Waiting, "\n\t"))
	}
	w.Flush()

	var choices, policies []string
	for _, c := range e.Choices {
		pods := fmt.Sprintf("%d of %d", c.Pods, c.QuotaPods)
		choices = append(choices, row(c.Group, pods, yesNo(c.Allowed), yesNo(c.Preferred), out.counted(c.OpenNodes),
			closed(c.ClosedNodes)))
	}
	for _, r := range e.Policies {
		policies = append(policies, row(r.Policy, r.Why))
	}
	title := "GROUP"
	if e.Node != "" {
		title = "IF PLACED AGAIN"
	}
	out.table(row(title, "OTHER PODS", "ALLOWED", "PREFERRED", "OPEN NODES", "CLOSED NODES"), choices)
	out.table(row("POLICY OF THE NAMESPACE", "WHAT IT IS TO THE POD"), policies)
	if len(policies) == 0 {
		out.section()
		fmt.Fprintln(out, "There is no placement policy in the namespace of the pod.")
	}
}

func closed(nodes map[string]int) string {
	var texts []string
	for _, why := range slices.Sorted(maps.Keys(nodes)) {
		texts = append(texts, fmt.Sprintf("%d %s", nodes[why], why))
	}
	return cmp.Or(strings.Join(texts, "; "), "0")
}
