package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

// count is where the pods are: counted anew from the API server, by a store of its own, so that it owes nothing to the
// scheduler's.
type count struct {
	// qualifying is how many pods there are in all cohorts; placed how many are in each group, and belong how many
	// should be.
	qualifying     int
	placed, belong []int
	// off: there is a cohort whose pods are not exactly where they belong.
	off    bool
	policy policystore.PolicyInfo
	nodes  []nodeCount
}

type nodeCount struct {
	name  string
	group policystore.Group
	pods  int
}

func (d *demonstration) count(ctx context.Context) (*count, error) {
	nodes, err := d.Client().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("counting pods: %w", err)
	}
	pods, err := d.Client().CoreV1().Pods(d.policy.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("counting pods: %w", err)
	}
	store := policystore.New()
	if err := store.SetPolicy(d.policy); err != nil {
		return nil, err
	}
	podsOn := map[string]int{}
	for i := range pods.Items {
		store.AddPod(&pods.Items[i])
		podsOn[pods.Items[i].Spec.NodeName]++
	}
	for i := range nodes.Items {
		store.AddNode(&nodes.Items[i])
	}
	c := &count{}
	c.policy, _ = store.Policy(d.policy.NamespacedName)
	for _, node := range nodes.Items {
		c.nodes = append(c.nodes, nodeCount{node.Name, c.policy.GroupOf(node.Labels), podsOn[node.Name]})
	}
	for g := range c.policy.Groups() {
		placed, belong := 0, 0
		for _, cohort := range c.policy.Cohorts {
			want := c.policy.Quota(g, cohort.Qualifying)
			c.off = c.off || cohort.Placed[g-1] != want
			placed, belong = placed+cohort.Placed[g-1], belong+want
		}
		c.placed, c.belong = append(c.placed, placed), append(c.belong, belong)
	}
	for _, cohort := range c.policy.Cohorts {
		c.qualifying += cohort.Qualifying
	}
	return c, nil
}

func sum(numbers []int) int {
	sum := 0
	for _, n := range numbers {
		sum += n
	}
	return sum
}

func (c *count) print(out io.Writer) {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "node\tgroup\tpods\t")
	for _, node := range c.nodes {
		fmt.Fprintf(table, "%s\t%s\t%d\t\n", node.name, c.policy.GroupName(node.group), node.pods)
	}
	table.Flush()
	fmt.Fprintf(out, "the API server:   %s\n", c.inGroups())
}

// inGroups tells where the pods are, and where they belong.
func (c *count) inGroups() string {
	if len(c.policy.Policy.Groups) == 0 {
		return fmt.Sprintf("%d of %d pods in the target group, target %d", c.placed[0], c.qualifying, c.belong[0])
	}
	var groups []string
	for g := range c.policy.Groups() {
		groups = append(
			groups,
			fmt.Sprintf("%d in %s, where %d belong", c.placed[g-1], c.policy.GroupName(g), c.belong[g-1]),
		)
	}
	return fmt.Sprintf("of %d pods %s", c.qualifying, strings.Join(groups, "; "))
}

// verdict returns what is off, or nil if all pods are exactly where they belong.
func (c *count) verdict() error {
	if !c.off && c.qualifying > 0 {
		return nil
	}
	return fmt.Errorf("off: %s", c.inGroups())
}

// schedulerCounts are the policy's numbers in the scheduler's store, which it serves as metrics.
type schedulerCounts struct {
	qualifying int
	groups     []string
	placed     []int
}

func (d *demonstration) schedulerCounts(ctx context.Context) (c schedulerCounts, err error) {
	body, err := d.scheduler.Get(ctx, "/metrics")
	if err != nil {
		return c, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(body)))
	if err != nil {
		return c, fmt.Errorf("reading the scheduler's metrics: %w", err)
	}
	value := func(name, group string) int { // there is only one policy
		for _, metric := range families["scheduler_placement_policy_"+name].GetMetric() {
			of := ""
			for _, label := range metric.GetLabel() {
				if label.GetName() == "group" {
					of = label.GetValue()
				}
			}
			if of == group {
				return int(metric.GetGauge().GetValue())
			}
		}
		return 0
	}
	c.qualifying = value("qualifying_pods", "")
	for g := range d.last.policy.Groups() {
		c.groups = append(c.groups, d.last.policy.GroupName(g))
		c.placed = append(c.placed, value("group_pods", d.last.policy.GroupName(g)))
	}
	return c, nil
}

func (c schedulerCounts) print(out io.Writer) {
	fmt.Fprintf(out, "scheduler's view: %d qualify", c.qualifying)
	for i, group := range c.groups {
		fmt.Fprintf(out, ", %d in group %s", c.placed[i], group)
	}
	fmt.Fprintln(out)
}
