package policystore_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

const (
	target = policystore.Target
	other  = policystore.Other
)

func TestDecide(t *testing.T) {
	type groups []policystore.Group
	for _, row := range []struct {
		size      string
		n, m, o   int
		allowed   groups // in Strict; BestEffort allows both
		preferred policystore.Group
	}{
		{"40%", 10, 0, 0, groups{target, other}, other},
		{"40%", 10, 0, 2, groups{target, other}, target},
		{"40%", 10, 4, 3, groups{other}, other},
		{"40%", 10, 3, 6, groups{target}, target},
		{"40%", 1, 0, 0, groups{other}, other},
		{"4", 10, 0, 0, groups{target, other}, target},
		{"4", 10, 4, 0, groups{other}, other},
		{"4", 3, 0, 2, groups{target}, target},
		{"0%", 5, 0, 0, groups{other}, other},
		{"100%", 5, 4, 0, groups{target}, target},
		{"40%", 5, 4, 0, groups{other}, other}, // after a scale-down
	} {
		for _, mode := range []policystore.EnforcementMode{policystore.Strict, policystore.BestEffort} {
			for _, action := range []policystore.Action{policystore.Must, policystore.MustNot} {
				t.Run(fmt.Sprintf("%s %s %s of %d with %d and %d placed", mode, action, row.size, row.n, row.m, row.o), func(t *testing.T) {
					policy := must(mode, row.size)
					policy.Action = action
					w := newCluster(t, policy)
					node := map[policystore.Group]string{target: "m1", other: "o1"}
					allowed := row.allowed
					if action == policystore.MustNot {
						node = map[policystore.Group]string{target: "o1", other: "m1"}
					}
					if mode == policystore.BestEffort {
						allowed = groups{target, other}
					}
					w.create(row.m, onNode(node[target]))
					w.create(row.o, onNode(node[other]))
					pod := w.pods[w.create(row.n - row.m - row.o)[0]]

					// The answer must not depend on whether the pod's own event has arrived.
					for _, arrived := range []bool{true, false} {
						if !arrived {
							w.RemovePod(pod.UID)
						}
						d, governed := w.Decide(pod)
						require.True(t, governed)
						assert.Equal(t, web, d.Policy)
						assert.Equal(t, mode, d.EnforcementMode())
						assert.Equal(t, []int{row.n, row.n, row.m, row.o}, []int{d.Qualifying, d.Size, d.Placed(target), d.Placed(other)})
						assert.Equal(t, row.preferred, d.Preferred)

						var allows, assumes groups
						for _, group := range (groups{target, other}) {
							assert.Equal(t, group, d.GroupOf(w.nodes[node[group]].Labels))
							if d.Allows(group) {
								allows = append(allows, group)
							}
							if w.AssumePod(pod, newNode(node[group], nil)) == nil {
								assumes = append(assumes, group)
							}
							w.ForgetPod(pod)
						}
						assert.Equal(t, allowed, allows, "what Decide allows")
						assert.Equal(t, allowed, assumes, "what AssumePod takes")
					}
				})
			}
		}
	}
}

func TestDecisionReason(t *testing.T) {
	w := newCluster(t, must(policystore.Strict, "40%"))
	w.create(4, onNode("m1"), controlledBy("rs"))
	w.create(3, onNode("o1"), controlledBy("rs"))
	pod := w.pods[w.create(3, controlledBy("rs"))[0]]

	d, _ := w.Decide(pod)
	assert.Equal(t, "placement policy default/web: group target full (4 of 4 pods; 10 qualify)", d.Reason(target))
	assert.Equal(t, "placement policy default/web: group other open (3 of 6 pods; 10 qualify)", d.Reason(other))

	assert.Equal(t, "group other should have 5 of 8 placed, and has 3", d.Preference())
	w.SetWorkloadSize("rs", 15)
	defer w.RemoveWorkload("rs")
	d, _ = w.Decide(pod)
	assert.Equal(t, "placement policy default/web: group target open (4 of 6 pods; 10 of 15 wanted qualify)", d.Reason(target))
}

func TestFree(t *testing.T) {
	w := newCluster(t, must(policystore.BestEffort, "40%"))
	w.create(4, onNode("m1"))
	pods := w.create(6)
	free := func() []int {
		d, _ := w.Decide(w.pods[pods[0]])
		return []int{d.Free(target), d.Free(other)}
	}
	assert.Equal(t, []int{0, 6}, free())
	w.create(10, onNode("o1"))
	assert.Equal(t, []int{4, 2}, free())
	w.remove(pods[1:]...)
	assert.Equal(t, []int{2, -1}, free(), "after a scale-down")
}

// The ratio is exact after every single pod, also when pods come one at a time and nobody knows how many will.
func TestSequence(t *testing.T) {
	letter := map[policystore.Group]string{target: "T", other: "o"}
	for size, want := range map[string]string{
		"40%":  "ooToTooToTo",
		"50%":  "oToToT",
		"75%":  "oTTToTTT",
		"3":    "TTTooo",
		"0%":   "ooo",
		"100%": "TTT",
	} {
		t.Run(size, func(t *testing.T) {
			w := newCluster(t, must(policystore.Strict, size))
			got := ""
			for range want {
				d, _ := w.Decide(w.pods[w.create(1)[0]])
				got += letter[d.Preferred]
				w.schedule()
			}
			assert.Equal(t, want, got)
		})
	}
}

func TestNoPolicyNoRestriction(t *testing.T) {
	decision, governed := policystore.New().Decide(newPod("p"))
	assert.False(t, governed)
	assert.Equal(t, policystore.NoGroup, decision.GroupOf(spot))
	assert.Empty(t, decision.EnforcementMode())
	for _, group := range []policystore.Group{policystore.NoGroup, policystore.Target, policystore.Other} {
		assert.True(t, decision.Allows(group))
	}
	_, only := decision.OnlyGroup()
	assert.False(t, only)
	assert.Zero(t, decision.NewPlaces(decision))
}

func TestOnlyGroup(t *testing.T) {
	for size, want := range map[string]policystore.Group{"0%": other, "0": other, "100%": target, "1%": policystore.NoGroup, "99%": policystore.NoGroup, "100": policystore.NoGroup} {
		for mode, want := range map[policystore.EnforcementMode]policystore.Group{policystore.Strict: want, policystore.BestEffort: policystore.NoGroup} {
			w := newWorld(t, must(mode, size))
			d, _ := w.Decide(newPod("pod"))
			group, ok := d.OnlyGroup()
			assert.Equal(t, want, group, "%s %s", mode, size)
			assert.Equal(t, want != policystore.NoGroup, ok)
		}
	}
}

func TestNewPlaces(t *testing.T) {
	edit := func(size string, change func(*policystore.Policy)) func(*world) {
		return func(w *world) {
			p := must(policystore.Strict, size)
			change(&p)
			w.set(p)
		}
	}
	for name, tc := range map[string]struct {
		change func(*world)
		want   int
	}{
		"nothing changes":         {func(*world) {}, 0},
		"a place is taken":        {func(w *world) { w.create(1, onNode("o1")) }, 0},
		"a pod is replaced":       {func(w *world) { w.remove(w.on("m1")[0]); w.create(1) }, 1},
		"the target rises":        {func(w *world) { w.set(must(policystore.Strict, "80%")) }, 4},
		"the target sinks":        {func(w *world) { w.set(must(policystore.Strict, "20%")) }, 0},
		"the mode is relaxed":     {func(w *world) { w.set(must(policystore.BestEffort, "40%")) }, math.MaxInt},
		"the weight changes":      {edit("40%", func(p *policystore.Policy) { p.Weight = 7 }), 0},
		"pods join the cohort":    {edit("40%", func(p *policystore.Policy) { p.MatchLabelKeys = []string{} }), 0},
		"pods leave the cohort":   {edit("40%", func(p *policystore.Policy) { p.MatchLabelKeys = []string{"name"} }), 0},
		"they leave places":       {edit("1", func(p *policystore.Policy) { p.MatchLabelKeys = []string{"name"} }), 1},
		"more pods are selected":  {edit("50%", func(p *policystore.Policy) { p.PodSelector = &metav1.LabelSelector{} }), 1},
		"groups are swapped":      {edit("40%", func(p *policystore.Policy) { p.Action = policystore.MustNot }), 2},
		"nodes change group":      {edit("40%", func(p *policystore.Policy) { p.NodeSelector = &metav1.LabelSelector{} }), 6},
		"another policy takes it": {edit("20%", func(p *policystore.Policy) { p.Name, p.Weight = "next", 1 }), 0},
		"it leaves more places":   {edit("60%", func(p *policystore.Policy) { p.Name, p.Weight = "next", 1 }), 2},
		"another one is relaxed":  {func(w *world) { p := must(policystore.BestEffort, "20%"); p.Name, p.Weight = "next", 1; w.set(p) }, math.MaxInt},
		"the policy is removed":   {func(w *world) { w.RemovePolicy(must(policystore.Strict, "40%").NamespacedName) }, math.MaxInt},
	} {
		w := newCluster(t, must(policystore.Strict, "40%"))
		w.create(4, onNode("m1"))
		w.create(5, onNode("o1"))
		pod := newPod("pod", labelled("name", "pod"))
		earlier, _ := w.Decide(pod)
		tc.change(w)
		later, _ := w.Decide(pod)
		assert.Equal(t, tc.want, later.NewPlaces(earlier), name)
	}
}
