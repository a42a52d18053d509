package main

import (
	"fmt"
	"strings"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

const (
	planSlots  = 20
	chartWidth = 40
)

// planSizes are the numbers of pods that a plan is shown for.
var planSizes = []int{1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 100, 1000}

// Plan is what a policy has for the pods of each cohort.
type Plan struct {
	Policy string `json:"policy"`
	// Groups are the names of its groups, in order.
	Groups []string `json:"groups"`
	// Slots are the groups that its first slots belong to: the n-th pod goes to the n-th.
	Slots []string `json:"slots"`
	// Sizes are how many pods belong in each group, for some numbers of pods.
	Sizes []PlanSize `json:"sizes"`

	rule string
}

// PlanSize is how many of so many pods belong in each group.
type PlanSize struct {
	Pods   int   `json:"pods"`
	Groups []int `json:"groups"` // in order
}

func planOf(info policystore.PolicyInfo) Plan {
	p := Plan{Policy: info.Policy.String(), rule: newPolicy(info, nil).rule()}
	for g := range info.Groups() {
		p.Groups = append(p.Groups, info.GroupName(g))
	}
	for n := 1; n <= planSlots; n++ {
		p.Slots = append(p.Slots, info.GroupName(info.GroupOfSlot(n)))
	}
	for _, n := range planSizes {
		size := PlanSize{Pods: n}
		for g := range info.Groups() {
			size.Groups = append(size.Groups, info.Quota(g, n))
		}
		p.Sizes = append(p.Sizes, size)
	}
	return p
}

func (p Plan) text(out *tables) {
	out.section()
	fmt.Fprintf(out, "%s: %s\n", p.Policy, p.rule)

	header, rows := "SLOT", []string{}
	for n := range p.Slots {
		header += fmt.Sprintf("\t%d", n+1)
	}
	for i, name := range p.Groups {
		line := name
		for _, slot := range p.Slots {
			mark := "."
			if slot == name {
				mark = letter(i)
			}
			line += "\t" + mark
		}
		rows = append(rows, line)
	}
	out.table(header, rows)

	header, rows = "PODS\t"+strings.Join(p.Groups, "\t")+"\tCHART", nil
	for _, size := range p.Sizes {
		line, before, bar := fmt.Sprint(size.Pods), 0, ""
		for i, pods := range size.Groups {
			line += fmt.Sprintf("\t%d", pods)
			before += pods
			bar += strings.Repeat(letter(i), before*chartWidth/size.Pods-len(bar))
		}
		rows = append(rows, line+"\t"+bar)
	}
	out.table(header, rows)
}

// letter stands for a group, by its index.
func letter(group int) string { return string(rune('a' + group)) }

// rule says how many pods belong in each group of a policy.
func (p Policy) rule() string {
	s := p.Spec
	if len(s.Groups) == 0 {
		return fmt.Sprintf("%s, %s %s, weight %d", s.EnforcementMode, s.Policy.Action, s.Policy.TargetSize, s.Weight)
	}
	var groups []string
	for _, g := range s.Groups {
		words := []string{g.Name}
		if g.Base > 0 {
			words = append(words, fmt.Sprintf("base %d", g.Base))
		}
		if g.Share != "" {
			words = append(words, g.Share)
		}
		if g.Max != nil {
			words = append(words, fmt.Sprintf("max %d", *g.Max))
		}
		groups = append(groups, strings.Join(words, " "))
	}
	return fmt.Sprintf("%s, %s, weight %d", s.EnforcementMode, strings.Join(groups, "; "), s.Weight)
}

// nodes says how a policy tells the nodes of its groups apart.
func (p Policy) nodes() string {
	if len(p.Spec.Groups) == 0 {
		return selector(p.Spec.NodeSelector)
	}
	var groups []string
	for _, g := range p.Spec.Groups {
		if g.NodeSelector == nil {
			groups = append(groups, g.Name+": all others")
		} else {
			groups = append(groups, g.Name+": "+selector(g.NodeSelector))
		}
	}
	return strings.Join(groups, "; ")
}
