package policystore

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// sized returns a Strict policy that differs from others in its target size only.
func sized(t *testing.T, size intstr.IntOrString) *compiledPolicy {
	c, err := compile(Policy{
		EnforcementMode: Strict,
		PodSelector:     &metav1.LabelSelector{},
		NodeSelector:    &metav1.LabelSelector{},
		TargetSize:      &size,
	})
	require.NoError(t, err)
	return c
}

// targetOf returns how many of n pods belong in the first group.
func targetOf(c *compiledPolicy, n int) int { return int(c.plan.counts(n)[Target]) }

func TestTarget(t *testing.T) {
	for _, tc := range []struct {
		size string
		want []int // of 0, 1, 2 ... pods
	}{
		{"0%", []int{0, 0, 0}},
		{"1%", []int{0, 0, 0}},
		{"33%", []int{0, 0, 0, 0, 1}},
		{"40%", []int{0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 4}},
		{"50%", []int{0, 0, 1, 1, 2}},
		{"99%", []int{0, 0, 1, 2, 3}},
		{"100%", []int{0, 1, 2, 3}},
		{"0", []int{0, 0, 0}},
		{"2", []int{0, 1, 2, 2, 2}},
		{fmt.Sprint(math.MaxInt32), []int{0, 1, 2, 3}},
	} {
		policy := sized(t, intstr.Parse(tc.size))
		for n, want := range tc.want {
			assert.Equalf(t, want, targetOf(policy, n), "%s of %d", tc.size, n)
		}
	}
}

func FuzzTarget(f *testing.F) {
	f.Add(int32(40), true, int32(10))
	f.Add(int32(99), true, int32(math.MaxInt32-1)) // n times the percentage would overflow 32 bits
	f.Add(int32(math.MaxInt32), false, int32(0))
	f.Fuzz(func(t *testing.T, size int32, percent bool, n int32) {
		if size < 0 || percent && size > 100 || n < 0 || n == math.MaxInt32 {
			t.Skip("no such size or number")
		}
		value := intstr.FromInt32(size)
		if percent {
			value = intstr.FromString(fmt.Sprintf("%d%%", size))
		}
		policy := sized(t, value)
		target, next := targetOf(policy, int(n)), targetOf(policy, int(n)+1)
		assert.True(t, 0 <= target && target <= int(n), "T(%d) = %d", n, target)
		assert.True(t, next == target || next == target+1, "T(%d) = %d, T(%d) = %d", n, target, n+1, next)
	})
}

// A Strict policy must always let the pod go to the preferred group, whatever the counts have become: so a policy alone
// never blocks a pod, and scoring never works against filtering.
func TestStrictAllowsThePreferredGroup(t *testing.T) {
	var sizes []intstr.IntOrString
	for percent := range 101 {
		sizes = append(sizes, intstr.FromString(fmt.Sprintf("%d%%", percent)))
	}
	const most = 12
	for n := range most + 2 {
		sizes = append(sizes, intstr.FromInt(n))
	}
	for _, size := range sizes {
		policy := sized(t, size)
		for n := 1; n <= most; n++ {
			for placed := range n { // the pod itself is the one more
				for managed := range placed + 1 {
					d := Decision{spec: policy, Size: n, placed: perGroup{Target: int32(managed), Other: int32(placed - managed)}}
					d.conclude()
					require.Truef(t, d.Allows(d.Preferred), "%s: %+v", size.String(), d)
				}
			}
		}
	}
}

func TestStrictAllowsThePreferredOfManyGroups(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 5000 {
		groups := randomGroups(r, false)
		spec := sized(t, intstr.FromInt(0))
		spec.plan, spec.names = newPlan(groups), make([]string, len(groups))
		d := Decision{spec: spec, Size: 1 + r.IntN(50)}
		for range r.IntN(d.Size) {
			d.placed[1+r.IntN(len(groups))]++
		}
		d.conclude()
		require.Truef(t, d.Allows(d.Preferred), "%+v: %+v", groups, d)
	}
}

// Must p% and MustNot 100-p% differ only where a share is not a whole number of pods: Must then rounds down the pods on
// the matching nodes, MustNot those on the others.
func TestMustAndMustNotDifferByRounding(t *testing.T) {
	for percent := range 101 {
		must := sized(t, intstr.FromString(fmt.Sprintf("%d%%", percent)))
		mustNot := sized(t, intstr.FromString(fmt.Sprintf("%d%%", 100-percent)))
		for n := range 101 {
			roundedUp := 0
			if percent*n%100 != 0 {
				roundedUp = 1
			}
			require.Equalf(t, targetOf(must, n)+roundedUp, n-targetOf(mustNot, n), "%d%% of %d", percent, n)
		}
	}
}
