package labelselector_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/placement-policy/scheduler-plugin/internal/scale"
	"github.com/placement-policy/scheduler-plugin/labelselector"
)

// Of selectors that each ask for a label of their own and for one that all ask for, one matches.
func BenchmarkIndexMatching(b *testing.B) {
	for _, selectors := range scale.Policies() {
		b.Run(fmt.Sprintf("selectors=%d", selectors), func(b *testing.B) {
			var index labelselector.Index[int]
			for i := range selectors {
				compiled, err := labelselector.Compile(
					&metav1.LabelSelector{
						MatchLabels: map[string]string{"app": fmt.Sprint("app-", i), "team": "storefront"},
					},
				)
				if err != nil {
					b.Fatal(err)
				}
				index.Set(i, compiled)
			}
			set := (&scale.Cluster{Policies: selectors}).PendingPod(0).Labels
			b.ReportAllocs()
			for b.Loop() {
				for range index.Matching(set) {
				}
			}
		})
	}
}

func BenchmarkSelectorMatches(b *testing.B) {
	var set labels.Labels = labels.Set((&scale.Cluster{}).Node(0).Labels)
	for _, tc := range []struct {
		name     string
		selector *metav1.LabelSelector
	}{
		{"one label", &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "spot"}}},
		{"no match", &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "on-demand"}}},
		{"expressions", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "pool", Operator: metav1.LabelSelectorOpIn, Values: []string{"spot", "preemptible"}},
			{Key: "kubernetes.io/arch", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"arm64"}},
			{Key: "gpu", Operator: metav1.LabelSelectorOpDoesNotExist},
		}}},
	} {
		b.Run(tc.name, func(b *testing.B) {
			compiled, err := labelselector.Compile(tc.selector)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				compiled.Matches(set)
			}
		})
	}
}
