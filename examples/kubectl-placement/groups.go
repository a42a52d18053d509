package main

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

// Group is a group of nodes of a policy.
type Group struct {
	Name  string   `json:"name"`
	Nodes []string `json:"nodes"`
	// Cordoned are those of the nodes that take no pods.
	Cordoned []string `json:"cordoned,omitempty"`
}

// groupsOf divides the nodes, which are sorted by name, into the groups of a valid policy.
func groupsOf(info policystore.PolicyInfo, nodes []*v1.Node) []Group {
	var groups []Group
	for g := range info.Groups() {
		group := Group{Name: info.GroupName(g), Nodes: []string{}}
		for _, node := range nodes {
			if info.GroupOf(node.Labels) != g {
				continue
			}
			group.Nodes = append(group.Nodes, node.Name)
			if node.Spec.Unschedulable {
				group.Cordoned = append(group.Cordoned, node.Name)
			}
		}
		groups = append(groups, group)
	}
	return groups
}

// Counts says where qualifying pods are.
type Counts struct {
	// QualifyingPods is how many pods count: those that are not finished, being deleted or held by scheduling gates.
	QualifyingPods int `json:"qualifyingPods"`
	// Groups has, for each group of the policy, how many of them are there.
	Groups []GroupCount `json:"groups"`
	// PendingPods is how many are in no group: not placed yet, or on a node that is not known or that no group has.
	PendingPods int `json:"pendingPods"`
}

// GroupCount is how many pods are in a group, and how many of the qualifying pods belong there.
type GroupCount struct {
	Name       string `json:"name"`
	Pods       int    `json:"pods"`
	TargetPods int    `json:"targetPods"`
}

func countsOf(info policystore.PolicyInfo, c policystore.Cohort) Counts {
	counts := Counts{QualifyingPods: c.Qualifying, PendingPods: c.Qualifying}
	for g := range info.Groups() {
		counts.Groups = append(
			counts.Groups,
			GroupCount{Name: info.GroupName(g), TargetPods: info.Quota(g, c.Qualifying)},
		)
	}
	for i, pods := range c.Placed {
		counts.Groups[i].Pods = pods
		counts.PendingPods -= pods
	}
	return counts
}

// add adds the counts of another cohort of the policy.
func (c *Counts) add(more Counts) {
	c.QualifyingPods += more.QualifyingPods
	c.PendingPods += more.PendingPods
	for i, g := range more.Groups {
		if i == len(c.Groups) {
			c.Groups = append(c.Groups, GroupCount{Name: g.Name})
		}
		c.Groups[i].Pods += g.Pods
		c.Groups[i].TargetPods += g.TargetPods
	}
}

// onTarget reports whether all pods are placed, and as many in each group as belong there.
func (c Counts) onTarget() bool { return c.off() == "" }

// off says what keeps the counts from being on target; nothing if they are.
func (c Counts) off() string {
	var wrong []string
	if c.PendingPods > 0 {
		wrong = append(wrong, fmt.Sprintf("%d pending", c.PendingPods))
	}
	for _, g := range c.Groups {
		if over := g.Pods - g.TargetPods; over > 0 {
			wrong = append(wrong, fmt.Sprintf("%d too many in %s", over, g.Name))
		}
	}
	return strings.Join(wrong, ", ")
}

// String tells the pods in each group, of those that belong there.
func (c Counts) String() string {
	var texts []string
	for _, g := range c.Groups {
		texts = append(texts, fmt.Sprintf("%s %d/%d", g.Name, g.Pods, g.TargetPods))
	}
	return strings.Join(texts, ", ")
}
