package policystore_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

// inPool selects the nodes of a pool.
func inPool(pool string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"pool": pool}}
}

// grouped is the policy web with groups.
func grouped(mode policystore.EnforcementMode, groups ...policystore.NodeGroup) policystore.Policy {
	p := must(mode, "100%")
	p.NodeSelector, p.TargetSize, p.Groups = nil, nil, groups
	return p
}

func TestInvalidGroups(t *testing.T) {
	type group = policystore.NodeGroup
	for name, tc := range map[string]struct {
		edit func(*policystore.Policy)
		want []string
	}{
		"none": {
			func(p *policystore.Policy) { p.Groups = []group{} },
			[]string{"groups: Invalid value: must be 1 to 8 groups, not 0"},
		},
		"too many": {
			func(p *policystore.Policy) {
				p.Groups = nil
				for i := range 9 {
					p.Groups = append(p.Groups, group{Name: fmt.Sprint("g", i), NodeSelector: inPool("a")})
				}
			},
			[]string{"groups: Invalid value: must be 1 to 8 groups, not 9"},
		},
		"both forms": {
			func(p *policystore.Policy) {
				p.NodeSelector, p.TargetSize = inPool("a"), ptr.To(intstr.FromInt(4))
			},
			[]string{
				"nodeSelector: Forbidden: the groups say it: leave out either this or groups",
				"policy: Forbidden: the groups say it: leave out either this or groups",
			},
		},
		"an action": {
			func(p *policystore.Policy) { p.Action = policystore.MustNot },
			[]string{"policy: Forbidden: the groups say it"},
		},
		"names": {
			func(p *policystore.Policy) {
				p.Groups[0].Name, p.Groups[1].Name, p.Groups[2].Name = "Spot", "", "Spot"
			},
			[]string{
				`groups[0].name: Invalid value: "Spot": must be a DNS label, such as spot-a: a lowercase`,
				`groups[1].name: Invalid value: "": must be a DNS label, such as spot-a: a lowercase`,
				`groups[2].name: Invalid value: "Spot": must be a DNS label, such as spot-a: a lowercase`,
				`groups[2].name: Duplicate value: "Spot"`,
			},
		},
		"numbers below 0": {
			func(p *policystore.Policy) { p.Groups[0].Base, p.Groups[1].Max = -1, ptr.To(int32(-2)) },
			[]string{
				"groups[0].base: Invalid value: -1: must be 0 or more",
				"groups[1].max: Invalid value: -2: must be 0 or more",
			},
		},
		"a share": {
			func(p *policystore.Policy) { p.Groups[0].Share, p.Groups[1].Share = "130%", "30" },
			[]string{
				`groups[0].share: Invalid value: "130%": must be a percentage from 0% to 100%, such as 40%`,
				`groups[1].share: Invalid value: "30": must be a percentage from 0% to 100%, such as 40%`,
			},
		},
		"all shares together": {
			func(p *policystore.Policy) { p.Groups[0].Share = "71%" },
			[]string{"groups: Invalid value: the shares must add up to at most 100%, not 101%"},
		},
		"a share and a max of the last group": {
			func(p *policystore.Policy) { p.Groups[2].Share, p.Groups[2].Max = "0%", ptr.To(int32(math.MaxInt32)) },
			[]string{
				"groups[2].share: Forbidden: the last group takes the rest: leave it out",
				"groups[2].max: Forbidden: the last group takes the rest: leave it out",
			},
		},
		"selectors": {
			func(p *policystore.Policy) {
				like := []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Like"}}
				p.Groups[0].NodeSelector = nil
				p.Groups[2].NodeSelector = &metav1.LabelSelector{MatchExpressions: like}
			},
			[]string{
				"groups[0].nodeSelector: Required value: write {} to select everything",
				`groups[2].nodeSelector: Invalid value: compiling label selector: matchExpressions[0].operator: Invalid`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := grouped(policystore.Strict,
				group{Name: "spot-a", NodeSelector: inPool("a"), Share: "30%"},
				group{Name: "spot-b", NodeSelector: inPool("b"), Share: "30%", Max: ptr.To(int32(20))},
				group{Name: "on-demand", Base: 2})
			require.NoError(t, p.Validate())
			tc.edit(&p)
			var list utilerrors.Aggregate
			require.ErrorAs(t, p.Validate(), &list)
			require.Len(t, list.Errors(), len(tc.want), list)
			for i, want := range tc.want {
				require.ErrorContains(t, list.Errors()[i], want)
			}
		})
	}
}

// pools returns a world with room for everything on a node in each of the pools, of the same name, and on the node
// "rest", which is in none.
func pools(t *testing.T, p policystore.Policy, names ...string) *world {
	w := newWorld(t, p)
	for _, name := range names {
		w.addNodes(1000, map[string]string{"pool": name}, name)
	}
	w.addNodes(1000, nil, "rest")
	return w
}

// placed tells how many pods of the policy web are placed in each group: "5/3/2".
func (w *world) placed() string {
	info, _ := w.Policy(web)
	var text []string
	for g := range info.Groups() {
		pods := 0
		for _, c := range info.Cohorts {
			pods += c.Placed[g-1]
		}
		text = append(text, fmt.Sprint(pods))
	}
	return strings.Join(text, "/")
}

// What is placed is exactly the first slots of the plan, pod by pod as in a burst.
func TestGroups(t *testing.T) {
	type group = policystore.NodeGroup
	for name, tc := range map[string]struct {
		groups []group
		want   map[int]string // by how many pods there are
	}{
		"70 % on spot, and two on demand first": {
			[]group{{Name: "a", NodeSelector: inPool("a"), Share: "70%"}, {Name: "rest", Base: 2}},
			map[int]string{1: "0/1", 2: "0/2", 3: "0/3", 4: "1/3", 5: "2/3", 12: "7/5", 40: "26/14"},
		},
		"50 %, 30 % and the rest": {
			[]group{
				{Name: "a", NodeSelector: inPool("a"), Share: "50%"},
				{Name: "b", NodeSelector: inPool("b"), Share: "30%"},
				{Name: "rest"},
			},
			map[int]string{1: "0/0/1", 2: "1/0/1", 10: "5/3/2", 30: "15/9/6"},
		},
		"half, but at most 3": {
			[]group{{Name: "a", NodeSelector: inPool("a"), Share: "50%", Max: ptr.To(int32(3))}, {Name: "rest"}},
			map[int]string{5: "2/3", 10: "3/7"},
		},
		"positive selectors of all groups": {
			[]group{{Name: "a", NodeSelector: inPool("a"), Share: "50%"}, {Name: "b", NodeSelector: inPool("b")}},
			map[int]string{4: "2/2", 7: "3/4"},
		},
	} {
		for _, mode := range []policystore.EnforcementMode{policystore.Strict, policystore.BestEffort} {
			t.Run(name+", "+string(mode), func(t *testing.T) {
				one := pools(t, grouped(mode, tc.groups...), "a", "b")
				for n := 1; n <= 40; n++ {
					one.run(1)
					if want, ok := tc.want[n]; ok {
						require.Equal(t, want, one.placed(), "%d pods, one by one", n)
						burst := pools(t, grouped(mode, tc.groups...), "a", "b")
						burst.run(n)
						require.Equal(t, want, burst.placed(), "%d pods at once", n)
					}
				}
			})
		}
	}
}

func TestGroupsThatOverlap(t *testing.T) {
	w := pools(t, grouped(policystore.Strict,
		policystore.NodeGroup{Name: "a", NodeSelector: inPool("a"), Share: "30%"},
		policystore.NodeGroup{Name: "any", NodeSelector: &metav1.LabelSelector{}, Share: "30%"},
		policystore.NodeGroup{Name: "rest"},
	), "a", "b")
	info, _ := w.Policy(web)
	for node, want := range map[string]string{"a": "a", "b": "any", "rest": "any"} {
		assert.Equal(t, want, info.GroupName(info.GroupOf(w.nodes[node].Labels)), node)
	}
}

// A node that no group has takes no pods from Strict. Those that are there qualify, and are in no group.
func TestANodeThatNoGroupHas(t *testing.T) {
	groups := []policystore.NodeGroup{
		{Name: "a", NodeSelector: inPool("a"), Share: "50%"}, {Name: "b", NodeSelector: inPool("b")},
	}
	for _, mode := range []policystore.EnforcementMode{policystore.Strict, policystore.BestEffort} {
		w := pools(t, grouped(mode, groups...), "a", "b")
		w.create(2, onNode("rest"))
		pods := w.create(2)
		d, _ := w.Decide(w.pods[pods[0]])
		assert.Equal(t, policystore.NoGroup, d.GroupOf(w.nodes["rest"].Labels))
		assert.Empty(t, d.GroupName(policystore.NoGroup))
		assert.Equal(t, []int{4, 4, 2, 2}, []int{d.Qualifying, d.Size, d.Quota(1), d.Quota(2)}, "it counts those there")
		assert.Equal(t, []int{0, 0, 0}, []int{d.Placed(1), d.Placed(2), d.Placed(policystore.NoGroup)}, "but in no group")
		assert.Equal(t, mode == policystore.BestEffort, d.Allows(policystore.NoGroup))
		assert.Equal(t, mode == policystore.BestEffort, d.AllowsAll())
		assert.Equal(t, "b", d.GroupName(d.Preferred))
		assert.Equal(t, "placement policy default/web: node in none of its groups (a, b)", d.Reason(policystore.NoGroup))

		err := w.AssumePod(w.pods[pods[0]], w.nodes["rest"])
		if mode == policystore.Strict {
			require.EqualError(t, err, d.Reason(policystore.NoGroup))
		} else {
			require.NoError(t, err)
			w.ForgetPod(w.pods[pods[0]])
		}
		w.schedule()
		assert.Equal(t, "1/1", w.placed())

		w.relabelNode("rest", map[string]string{"pool": "a"})
		assert.Equal(t, "3/1", w.placed(), "a label that comes late brings them into a group")
	}
}

// AllowsAll is for nodes that need not be looked at.
func TestAllowsAll(t *testing.T) {
	groups := []policystore.NodeGroup{
		{Name: "a", NodeSelector: inPool("a"), Share: "50%"}, {Name: "b", NodeSelector: inPool("b")},
	}
	for name, tc := range map[string]struct {
		policy policystore.Policy
		pods   int
		want   bool
	}{
		"all groups are open":           {must(policystore.Strict, "50%"), 4, true},
		"one is full":                   {must(policystore.Strict, "50%"), 1, false},
		"one is full, BestEffort":       {must(policystore.BestEffort, "50%"), 1, true},
		"nodes may be in no group":      {grouped(policystore.Strict, groups...), 4, false},
		"they may be, under BestEffort": {grouped(policystore.BestEffort, groups...), 4, true},
	} {
		w := newWorld(t, tc.policy)
		d, _ := w.Decide(w.pods[w.create(tc.pods)[0]])
		assert.Equal(t, tc.want, d.AllowsAll(), name)
	}
}

// The pods that run stay, and count where they now belong.
func TestGroupsOfAPolicyChange(t *testing.T) {
	a := policystore.NodeGroup{Name: "a", NodeSelector: inPool("a"), Share: "40%"}
	b := policystore.NodeGroup{Name: "b", NodeSelector: inPool("b"), Share: "30%"}
	rest := policystore.NodeGroup{Name: "rest"}
	w := pools(t, grouped(policystore.Strict, a, b, rest), "a", "b")
	w.run(10)
	managed := func() int {
		info, _ := w.Policy(web)
		require.Equal(t, info.Cohorts[0].Managed, info.Cohorts[0].ManagedPods.Len())
		return info.Cohorts[0].Managed
	}
	require.Equal(t, "4/3/3", w.placed())
	require.Equal(t, 7, managed())

	w.set(grouped(policystore.Strict, a, rest)) // the nodes of b are in the rest
	require.Equal(t, "4/6", w.placed())
	require.Equal(t, 4, managed())

	last := b
	last.Share = ""
	w.set(grouped(policystore.Strict, a, last)) // group 2 is the last now, and no node is in the rest
	require.Equal(t, "4/3", w.placed())
	require.Equal(t, 4, managed())

	w.set(grouped(policystore.Strict, b, a, rest))
	require.Equal(t, "3/4/3", w.placed())
	require.Equal(t, 7, managed())

	w.set(must(policystore.Strict, "40%"))
	require.Equal(t, "0/10", w.placed())
	require.Zero(t, managed())
}

// A number that stands for no group is in nobody's way.
func TestAGroupThatThePolicyDoesNotHave(t *testing.T) {
	w := newCluster(t, must(policystore.Strict, "40%"))
	info, _ := w.Policy(web)
	d, _ := w.Decide(newPod("pod"))
	for _, g := range []policystore.Group{3, policystore.MaxGroups, policystore.MaxGroups + 1, math.MaxUint8} {
		assert.Equal(t, []int{0, 0, 0, 0}, []int{d.Quota(g), d.Placed(g), d.Free(g), info.Quota(g, 10)})
		assert.Empty(t, d.GroupName(g)+info.GroupName(g))
		assert.Empty(t, w.NodesIn(d, g))
		assert.False(t, d.Allows(g))
		assert.False(t, w.CouldEvict(d, g))
	}
}

// One group that has no node waits for its share, and the others get theirs.
func TestAGroupWithoutNodes(t *testing.T) {
	w := pools(t, grouped(policystore.Strict,
		policystore.NodeGroup{Name: "a", NodeSelector: inPool("a"), Share: "50%"},
		policystore.NodeGroup{Name: "gone", NodeSelector: inPool("gone"), Share: "30%"},
		policystore.NodeGroup{Name: "rest"},
	), "a")
	w.create(10)
	require.Len(t, w.schedule(), 3)
	require.Equal(t, "5/0/2", w.placed())
	w.addNodes(10, map[string]string{"pool": "gone"}, "gone")
	require.Empty(t, w.schedule())
	require.Equal(t, "5/3/2", w.placed())
}

func TestPlanOfAPolicy(t *testing.T) {
	w := newWorld(t, grouped(policystore.Strict,
		policystore.NodeGroup{Name: "a", NodeSelector: inPool("a"), Share: "70%"},
		policystore.NodeGroup{Name: "rest", Base: 2}))
	info, _ := w.Policy(web)
	slots := ""
	for n := 1; n <= 12; n++ {
		slots += info.GroupName(info.GroupOfSlot(n)) + " "
	}
	assert.Equal(t, "rest rest rest a a rest a a rest a a a ", slots)
	for n, want := range map[int]int{-1: 0, 0: 0, 3: 0, 12: 7, math.MaxInt32: 1503238551, math.MaxInt: 1503238551} {
		assert.Equal(t, want, info.Quota(1, n), n)
	}
	assert.Zero(t, info.Quota(policystore.NoGroup, 10))
	assert.Zero(t, info.Quota(3, 10))
	assert.Equal(t, policystore.NoGroup, info.GroupOfSlot(0))
	assert.NotEqual(t, policystore.NoGroup, info.GroupOfSlot(math.MaxInt))
}
