package policystore_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

func TestPod(t *testing.T) {
	w := newCluster(t, must(policystore.BestEffort, "50%"))
	hash := labelled("pod-template-hash", "x")
	name := func(edits ...func(*v1.Pod)) *v1.Pod { return w.pods[w.create(1, edits...)[0]] }
	reserved := name(hash)
	require.NoError(t, w.AssumePod(reserved, w.nodes["m1"]))
	d, _ := w.Decide(reserved)
	counts := policystore.PodInfo{Policy: web, Cohort: d.CohortID()}
	with := func(info policystore.PodInfo, edit func(*policystore.PodInfo)) policystore.PodInfo {
		edit(&info)
		return info
	}
	for what, tc := range map[string]struct {
		pod  *v1.Pod
		want policystore.PodInfo
	}{
		"pending": {name(hash), counts},
		"bound": {name(hash, onNode("o1")), with(counts, func(i *policystore.PodInfo) {
			i.Group, i.GroupName, i.Node = other, "other", "o1"
		})},
		"reserved": {reserved, with(counts, func(i *policystore.PodInfo) {
			i.Group, i.GroupName, i.Node, i.Reserved = target, "target", "m1", true
		})},
		"on a node that is not known": {name(hash, onNode("m9")), with(counts, func(i *policystore.PodInfo) { i.Node = "m9" })},
		"finished": {name(hash, onNode("m1"), finished), policystore.PodInfo{
			Policy: web, Node: "m1", NotActive: "it is finished or being deleted",
		}},
		"gated":        {name(hash, gated), policystore.PodInfo{Policy: web, NotActive: "scheduling gates hold it back"}},
		"not governed": {name(labelled("app", "db"), onNode("m1")), policystore.PodInfo{Node: "m1", NotGoverned: "no valid policy selects it"}},
	} {
		info, tracked := w.Pod(tc.pod)
		tc.want.UID = tc.pod.UID
		assert.Equal(t, tc.want, info, what)
		assert.True(t, tracked, what)
	}

	info, tracked := w.Pod(newPod("stranger"))
	assert.Equal(t, policystore.PodInfo{UID: "stranger", Policy: web}, info)
	assert.False(t, tracked)
	assert.Equal(t, "default/web{pod-template-hash=x}", d.CohortID().String())
	assert.Empty(t, policystore.CohortID{}.String())
}

func TestPodsOf(t *testing.T) {
	const pods = 2500 // more than are read at once
	w := newCluster(t, must(policystore.BestEffort, "40%"))
	w.create(2, labelled("app", "db"))
	w.create(1, gated)
	want := map[types.UID]policystore.Group{}
	for i, name := range w.create(pods) {
		group := policystore.Group(i % 3)
		want[w.pods[name].UID] = group
		if group != policystore.NoGroup {
			w.update(onNode([]string{"", "m1", "o1"}[group]), name)
		}
	}
	got := map[types.UID]policystore.Group{}
	for _, info := range w.PodsOf(web) {
		assert.Equal(t, web, info.Policy)
		got[info.UID] = info.Group
	}
	assert.Equal(t, want, got)
	assert.Empty(t, w.PodsOf(canary().NamespacedName))
}

// What is read in pieces, of very many cohorts, and what is read at once must be the same if nothing happens meanwhile.
func TestSnapshotIsWhatPoliciesTellOneByOne(t *testing.T) {
	w := newCluster(t, must(policystore.Strict, "40%"), canary())
	for i := range 2500 {
		w.create(1, labelled("pod-template-hash", string(rune('a'+i%26))+string(rune('a'+i/26))), onNode("m1"))
	}
	w.create(3, labelled("canary", "true"))
	w.RejectPolicy(types.NamespacedName{Namespace: "a", Name: "broken"}, assert.AnError)
	var want []policystore.PolicyInfo
	for _, key := range w.Policies() {
		info, ok := w.Policy(key)
		require.True(t, ok)
		want = append(want, info)
	}
	require.Len(t, want, 3)
	require.Len(t, want[2].Cohorts, 2500)
	assert.True(t, slices.IsSortedFunc(want[2].Cohorts, func(a, b policystore.Cohort) int {
		return slices.Compare(slices.Collect(maps.Values(a.Labels)), slices.Collect(maps.Values(b.Labels)))
	}))
	assert.Equal(t, want, w.Snapshot())
	_, ok := w.Policy(types.NamespacedName{Namespace: "a", Name: "none"})
	assert.False(t, ok)
}
