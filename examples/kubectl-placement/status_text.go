package main

import "cmp"

func (s Status) text(out *tables) {
	header := row("POLICY", "RULE", "QUALIFYING", "GROUPS", "PENDING", "ON TARGET")
	if out.wide {
		header += "\t" + row("PODS", "NODES", "NODES IN GROUPS")
	}
	var policies, cohorts, off []string
	for _, p := range s.Policies {
		for _, finding := range p.Findings {
			off = append(off, row(p.Policy.Policy, finding))
		}
		if p.Error != "" {
			policies = append(policies, row(p.Policy.Policy, "invalid", "-", "-", "-", "no"))
			continue
		}
		line := row(p.Policy.Policy, p.rule(), p.Pods.QualifyingPods, p.Pods, p.Pods.PendingPods,
			verdict(p.OnTarget, p.Pods))
		if out.wide {
			line += "\t" + row(selector(p.Spec.PodSelector), p.nodes(), out.nodes(p.Groups))
		}
		policies = append(policies, line)
		for _, c := range p.Cohorts {
			if out.wide || !c.OnTarget && len(p.Cohorts) > 1 {
				cohorts = append(cohorts, row(c.Policy, c.name(), out.workloads(c.Workloads), c.qualifying(), c.Now,
					c.Now.PendingPods, verdict(c.OnTarget, c.Now)))
			}
		}
	}
	out.table(header, policies)
	title := "COHORT OFF TARGET"
	if out.wide {
		title = "COHORT"
	}
	out.table(row("POLICY", title, "PODS OF", "QUALIFYING", "GROUPS", "PENDING", "ON TARGET"), cohorts)
	out.table(row("POLICY", "FINDING"), off)
}

// verdict says yes, or what is off. The sums of several cohorts may be right although these are off.
func verdict(onTarget bool, c Counts) string {
	if onTarget {
		return "yes"
	}
	return cmp.Or(c.off(), "no")
}
