package integration

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
)

// counts are the pods of a policy, all cohorts added up.
type counts struct {
	Qualifying, Managed, Other, Target int
}

// requireSplit waits until all pods that the policy governs are placed, so many in its target group and in the other.
// That the scheduler counts as many is checked too.
func (w *world) requireSplit(policy string, managed, other int) {
	w.t.Helper()
	w.requireCounts(policy, managed+other, managed, other)
}

// requireCounts waits until so many pods qualify, and are placed in the policy's target group and in the other.
func (w *world) requireCounts(policy string, qualifying, managed, other int) {
	w.t.Helper()
	w.eventually(func(c *assert.CollectT) {
		recounted, err := w.recount()
		require.NoError(c, err)
		got := recounted[policy]
		require.Equal(c, counts{Qualifying: qualifying, Managed: managed, Other: other, Target: got.Target}, got)
	})
	w.requireAgreement()
}

// requireAgreement waits until the scheduler's counts of all policies are those of the API server.
func (w *world) requireAgreement() {
	w.t.Helper()
	w.eventually(func(c *assert.CollectT) {
		want, err := w.recount()
		require.NoError(c, err)
		got, err := w.schedulerCounts()
		require.NoError(c, err)
		assert.Equal(c, want, got, "counts from the API server, and the scheduler's")
	})
}

// requireNoDrift has the scheduler compare its store with its informers' caches, until it finds no difference: while
// other tests are going on in the same cluster, there may be some.
func (w *world) requireNoDrift() {
	w.t.Helper()
	before := w.metric("scheduler_placement_policy_comparisons_total", nil)
	w.eventually(func(c *assert.CollectT) {
		w.scheduler.Signal(syscall.SIGUSR2)
		metrics, err := w.metrics()
		require.NoError(c, err)
		require.Greater(c, metrics["scheduler_placement_policy_comparisons_total"][0].value, float64(before))
		require.Zero(
			c,
			metrics["scheduler_placement_policy_comparer_differences"][0].value,
			"differences, which the scheduler logs",
		)
	})
}

// recount counts the pods of each policy from what the API server has now. It shares no code with the plugin, and is as
// plain as can be. It holds at rest: it does not know of pods that a workload has yet to create.
func (w *world) recount() (map[string]counts, error) {
	list, err := w.Dynamic().Resource(v1alpha1.Resource()).Namespace(w.namespace).List(w.ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	pods, err := w.Client().CoreV1().Pods(w.namespace).List(w.ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	nodes, err := w.Client().CoreV1().Nodes().List(w.ctx, metav1.ListOptions{LabelSelector: "test=" + w.namespace})
	if err != nil {
		return nil, err
	}
	nodeLabels := map[string]labels.Set{}
	for _, node := range nodes.Items {
		nodeLabels[node.Name] = node.Labels
	}

	var policies []*v1alpha1.PlacementPolicy
	for i := range list.Items {
		if slices.Contains(w.invalid, list.Items[i].GetName()) {
			continue
		}
		policy, err := v1alpha1.FromUnstructured(&list.Items[i])
		if err != nil {
			return nil, err
		}
		policies = append(policies, policy)
	}
	slices.SortFunc(policies, func(a, b *v1alpha1.PlacementPolicy) int { // the governing one first
		return cmp.Or(
			cmp.Compare(b.Spec.Weight, a.Spec.Weight),
			cmp.Compare(b.Spec.EnforcementMode, a.Spec.EnforcementMode), // Strict before BestEffort
			cmp.Compare(a.Name, b.Name),
		)
	})

	all := map[string]counts{}
	governed := map[string]bool{}
	for _, policy := range policies {
		var c counts
		cohorts := map[string]int{}
		for i := range pods.Items {
			pod := &pods.Items[i]
			if governed[pod.Name] || !isActive(pod) || !matches(policy.Spec.PodSelector, pod.Labels) {
				continue
			}
			governed[pod.Name] = true
			c.Qualifying++
			var cohort []string
			for _, key := range policy.Spec.MatchLabelKeys {
				if value, ok := pod.Labels[key]; ok {
					cohort = append(cohort, key+"="+value)
				}
			}
			cohorts[strings.Join(cohort, ",")]++
			if on, ok := nodeLabels[pod.Spec.NodeName]; !ok {
				continue
			} else if managed, other := groupOf(policy, on); managed {
				c.Managed++
			} else if other {
				c.Other++
			}
		}
		for _, n := range cohorts {
			target, err := targetOf(policy, n)
			if err != nil {
				return nil, err
			}
			c.Target += target
		}
		all[policy.Name] = c
	}
	return all, nil
}

func isActive(pod *v1.Pod) bool {
	return pod.DeletionTimestamp == nil && len(pod.Spec.SchedulingGates) == 0 &&
		pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed
}

func matches(selector *metav1.LabelSelector, set labels.Set) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(set)
}

// groupOf says whether pods on the node are managed, or in the policy's last group. They may be in no group.
func groupOf(policy *v1alpha1.PlacementPolicy, node labels.Set) (managed, other bool) {
	groups := policy.Spec.Groups
	if groups == nil {
		managed = matches(policy.Spec.NodeSelector, node) == (policy.Spec.Policy.Action != v1alpha1.MustNot)
		return managed, !managed
	}
	for i, g := range groups {
		if g.NodeSelector == nil || matches(g.NodeSelector, node) {
			return i < len(groups)-1, i == len(groups)-1
		}
	}
	return false, false
}

// targetOf returns how many of n pods the policy wants in its target group or, if it has groups, in all but the last.
func targetOf(policy *v1alpha1.PlacementPolicy, n int) (int, error) {
	if groups := policy.Spec.Groups; groups != nil {
		return inAllButTheLast(groups, n)
	}
	if policy.Spec.Policy.TargetSize == nil {
		return n, nil
	}
	size := policy.Spec.Policy.TargetSize.String()
	number, percent := strings.CutSuffix(size, "%")
	target, err := strconv.Atoi(number)
	if err != nil {
		return 0, fmt.Errorf("policy %s: %w", policy.Name, err)
	}
	if percent {
		target = n * target / 100
	}
	return min(target, n), nil
}

// inAllButTheLast returns how many of n pods belong in the groups but the last. A max may be that of the only group
// with a share, which then has no base.
func inAllButTheLast(groups []v1alpha1.Group, n int) (int, error) {
	shares, bases, beyond, limit := 0, 0, n, n
	for i, g := range groups {
		base := min(int(g.Base), beyond)
		beyond -= base
		if i < len(groups)-1 {
			bases += base
		}
		if g.Max != nil {
			limit = int(*g.Max)
		}
		if g.Share != "" {
			share, err := strconv.Atoi(strings.TrimSuffix(g.Share, "%"))
			if err != nil {
				return 0, err
			}
			shares += share
		}
	}
	return bases + min(beyond*shares/100, limit), nil
}

// schedulerCounts returns the counts of all policies in the scheduler's metrics.
func (w *world) schedulerCounts() (map[string]counts, error) {
	metrics, err := w.metrics()
	if err != nil {
		return nil, err
	}
	all := map[string]counts{}
	for name, field := range map[string]func(*counts) *int{
		"qualifying": func(c *counts) *int { return &c.Qualifying },
		"managed":    func(c *counts) *int { return &c.Managed },
		"other":      func(c *counts) *int { return &c.Other },
		"target":     func(c *counts) *int { return &c.Target },
	} {
		for _, s := range metrics["scheduler_placement_policy_"+name+"_pods"] {
			if s.labels["policy_namespace"] == w.namespace {
				c := all[s.labels["policy"]]
				*field(&c) = int(s.value)
				all[s.labels["policy"]] = c
			}
		}
	}
	return all, nil
}

// metric returns the sum of the series of that name that the scheduler serves with these labels.
func (w *world) metric(name string, want labels.Set) int {
	w.t.Helper()
	metrics, err := w.metrics()
	require.NoError(w.t, err)
	sum := 0.0
	for _, s := range metrics[name] {
		if want.AsSelector().Matches(labels.Set(s.labels)) {
			sum += s.value
		}
	}
	return int(sum)
}

// sample is one series of a metric that the scheduler serves.
type sample struct {
	labels map[string]string
	value  float64
}

// metrics returns the counters and gauges that the scheduler serves, by name.
func (w *world) metrics() (map[string][]sample, error) {
	ctx, cancel := context.WithTimeout(w.ctx, waitTimeout)
	defer cancel()
	body, err := w.scheduler.Get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	metrics := map[string][]sample{}
	for name, family := range families {
		for _, metric := range family.GetMetric() {
			s := sample{
				labels: map[string]string{},
				value:  metric.GetGauge().GetValue() + metric.GetCounter().GetValue(),
			}
			for _, pair := range metric.GetLabel() {
				s.labels[pair.GetName()] = pair.GetValue()
			}
			metrics[name] = append(metrics[name], s)
		}
	}
	return metrics, nil
}
