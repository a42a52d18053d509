package labelselector_test

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/placement-policy/scheduler-plugin/labelselector"
)

func ExampleIndex() {
	var teams labelselector.Index[string]
	for team, selector := range map[string]*metav1.LabelSelector{
		"shop":     {MatchLabels: map[string]string{"app": "shop"}},
		"payments": {MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "In", Values: []string{"pay", "shop"}}}},
		"security": {}, // sees everything
	} {
		compiled, err := labelselector.Compile(selector)
		if err != nil {
			panic(err)
		}
		teams.Set(team, compiled)
	}

	fmt.Println(slices.Sorted(teams.Matching(labels.Set{"app": "shop"})))
	fmt.Println(slices.Sorted(teams.Matching(labels.Set{"app": "pay"})))
	fmt.Println(slices.Sorted(teams.Matching(nil)))
	// Output:
	// [payments security shop]
	// [payments security]
	// [security]
}
