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
	policystore.Cohort // all cohorts added up, but for Labels and the sets
	// offTarget are the cohorts whose pods are not exactly where they belong.
	offTarget []policystore.Cohort
	policy    policystore.PolicyInfo
	nodes     []nodeCount
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
	for _, cohort := range c.policy.Cohorts {
		c.Qualifying += cohort.Qualifying
		c.Managed += cohort.Managed
		c.Other += cohort.Other
		c.Target += cohort.Target
		if cohort.Managed != cohort.Target || cohort.Managed+cohort.Other != cohort.Qualifying {
			c.offTarget = append(c.offTarget, cohort)
		}
	}
	return c, nil
}

func (c *count) print(out io.Writer) {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "node\tgroup\tpods\t")
	for _, node := range c.nodes {
		fmt.Fprintf(table, "%s\t%s\t%d\t\n", node.name, c.policy.GroupName(node.group), node.pods)
	}
	table.Flush()
	fmt.Fprintf(out, "the API server:   %d pods, %d in the target group, %d in the other, target %d\n", c.Qualifying, c.Managed, c.Other, c.Target)
}

// verdict returns what is off, or nil if all pods are exactly where they belong.
func (c *count) verdict() error {
	if len(c.offTarget) == 0 && c.Qualifying > 0 {
		return nil
	}
	return fmt.Errorf("off: %d of %d pods in the target group, target %d, %d in the other group", c.Managed, c.Qualifying, c.Target, c.Other)
}

// schedulerCounts are the policy's numbers in the scheduler's store, which it serves as metrics.
type schedulerCounts struct {
	qualifying, managed, other, target int
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
	for name, number := range map[string]*int{
		"scheduler_placement_policy_qualifying_pods": &c.qualifying,
		"scheduler_placement_policy_managed_pods":    &c.managed,
		"scheduler_placement_policy_other_pods":      &c.other,
		"scheduler_placement_policy_target_pods":     &c.target,
	} {
		for _, metric := range families[name].GetMetric() { // there is only one policy
			*number = int(metric.GetGauge().GetValue())
		}
	}
	return c, nil
}

func (c schedulerCounts) print(out io.Writer) {
	fmt.Fprintf(out, "scheduler's view: %d qualify, %d managed, %d other, target %d\n", c.qualifying, c.managed, c.other, c.target)
}
