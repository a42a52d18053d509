package policystore_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

// Very many policies may select the same pods. Each pod is then the business of the first few, who would govern it in
// turn.
func TestOfManyPoliciesThatSelectAPodTheFirstFewAreTold(t *testing.T) {
	const policies, told = 20, 8
	w := newCluster(t)
	key := func(i int) types.NamespacedName {
		return types.NamespacedName{Namespace: "default", Name: fmt.Sprintf("p%02d", i)}
	}
	set := func(i int) {
		p := must(policystore.Strict, "40%")
		p.NamespacedName, p.PodSelector = key(i), &metav1.LabelSelector{}
		w.set(p)
	}
	remains := map[int]bool{}
	check := func(event string) {
		t.Helper()
		rank := 0
		for i := range policies {
			if !remains[i] {
				continue
			}
			info, _ := w.Policy(key(i))
			governs, overruled := len(info.Cohorts) > 0, len(info.OverruledBy) > 0
			assert.Equal(t, rank == 0, governs, "%s: the %d. policy governs", event, rank+1)
			assert.Equal(t, rank > 0 && rank < told, overruled, "%s: the %d. policy is overruled", event, rank+1)
			rank++
		}
	}
	w.create(1)
	for i := range policies { // in no order
		set(i * 7 % policies)
		remains[i*7%policies] = true
		check("a policy comes")
	}
	w.create(2)
	check("pods come")
	w.create(1, labelled("labels of", "its own"))
	check("a pod with other labels comes")
	for i := range policies {
		w.RemovePolicy(key(i * 11 % policies))
		delete(remains, i*11%policies)
		check("a policy goes")
	}
}

// A pod that ten thousand policies select must not call ten thousand subscribers.
func TestAPodTouchesFewPolicies(t *testing.T) {
	w := newCluster(t)
	w.create(1)
	told := 0
	defer w.Subscribe(func(types.NamespacedName) { told++ })()
	for i := range 100 {
		p := must(policystore.Strict, "40%")
		p.Name, p.PodSelector = fmt.Sprintf("p%02d", i), &metav1.LabelSelector{}
		told = 0
		w.set(p)
		assert.LessOrEqual(t, told, 8)
	}
	assert.Equal(t, 1, told, "the last policy comes after eight others")
	told = 0
	w.create(1)
	assert.Equal(t, 8, told)
}
