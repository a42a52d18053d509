package policystore

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Cluster is what a store should know, as lists: from the listers of the informers that feed it, or from the API
// server.
type Cluster struct {
	// Policies are the valid policies.
	Policies []Policy
	Nodes    []*v1.Node
	Pods     []*v1.Pod
	// WorkloadSizes are the sizes that workloads want, by their UID.
	WorkloadSizes map[types.UID]int
}

// Compare returns in words, a line each, where the store differs from the cluster; nothing if it does not. It counts
// the cluster anew in a store of its own, to which it adds the reservations of s, which only s can know. It is meant
// for debugging and tests: it keeps out whoever changes the store for about a millisecond for 1,000 pods. Lists that
// are not of the very moment show differences that are none.
func (s *Store) Compare(cluster Cluster) []string {
	fresh := New()
	for _, p := range cluster.Policies {
		_ = fresh.SetPolicy(p) // an invalid one governs nothing in both
	}
	for _, node := range cluster.Nodes {
		fresh.AddNode(node)
	}
	for uid, size := range cluster.WorkloadSizes {
		fresh.SetWorkloadSize(uid, size)
	}
	for _, pod := range cluster.Pods {
		fresh.AddPod(pod)
	}

	s.mu.RLock()
	defer s.mu.RUnlock()
	var differences []string
	differ := func(format string, args ...any) { differences = append(differences, fmt.Sprintf(format, args...)) }

	for uid, p := range s.state.pods {
		twin := fresh.state.pods[uid]
		switch {
		case twin == nil && p.seen:
			differ("pod %s: only the store has it", uid)
		case twin == nil:
			differ("pod %s: only the store has it, reserved for node %s", uid, nameOf(p.reserved))
		default:
			if p.reserved != nil && twin.observed == nil {
				twin.reserved = fresh.state.nodeFor(p.reserved.name)
			}
			twin.gated = twin.gated && p.gated // as the reservation has shown
			fresh.state.settle(twin)
			if n := p.placed; n != nil && !n.known && n.labelsFor(p) != nil && nameOf(twin.placed) == n.name {
				twin.placed.lookedLike(twin, n.labelsFor(p).toMap())
				fresh.state.settle(twin)
			}
		}
	}
	for uid := range fresh.state.pods {
		if p := s.state.pods[uid]; p == nil || !p.seen {
			differ("pod %s: only the cluster has it", uid)
		}
	}
	for key, pol := range s.state.policies {
		twin := fresh.state.policies[key]
		switch {
		case pol.err != nil:
		case twin == nil:
			differ("policy %s: only the store has it", key)
		default:
			if twin.spec != nil && !pol.spec.equal(twin.spec) {
				differ("policy %s: the cluster has another spec", key)
			}
			for _, cohort := range slices.SortedFunc(maps.Keys(merged(pol.cohorts, twin.cohorts)), flatLabels.compare) {
				for _, line := range compareCohorts(pol.cohorts[cohort], twin.cohorts[cohort]) {
					differ("policy %s, cohort %s", key, line)
				}
			}
		}
	}
	for key, twin := range fresh.state.policies {
		if pol := s.state.policies[key]; twin.err == nil && (pol == nil || pol.err != nil) {
			differ("policy %s: only the cluster has it", key)
		}
	}
	slices.Sort(differences)
	return differences
}

func merged(a, b map[flatLabels]*cohort) map[flatLabels]*cohort {
	m := maps.Clone(a)
	maps.Copy(m, b)
	return m
}

// compareCohorts compares a cohort with its twin in the cluster, of which one may be nil.
func compareCohorts(c, twin *cohort) []string {
	if c == nil {
		c = &cohort{policy: twin.policy, labels: twin.labels}
	}
	if twin == nil {
		twin = &cohort{policy: c.policy, labels: c.labels}
	}
	var lines []string
	differ := func(what string, has, should any) {
		lines = append(lines, fmt.Sprintf("%v: %s: the store has %v, the cluster %v", c.labels.toMap(), what, has, should))
	}
	for _, set := range []struct {
		what        string
		has, should *Set[types.UID]
	}{{"qualifying", &c.qualifying, &twin.qualifying}, {"managed", &c.managed, &twin.managed}} {
		has, should := sets.New(slices.Collect(set.has.All())...), sets.New(slices.Collect(set.should.All())...)
		if !has.Equal(should) {
			differ(set.what, members(has, should), members(should, has))
		}
	}
	for g := range c.counts {
		if c.counts[g] != twin.counts[g] {
			differ("group "+c.policy.spec.name(Group(g)), c.counts[g], twin.counts[g])
		}
	}
	if c.size() != twin.size() {
		differ("size", c.size(), twin.size())
	}
	return lines
}

// members says how many members a set has, and which of them the other set has not.
func members(set, other sets.Set[types.UID]) string {
	text := fmt.Sprint(set.Len())
	var alone []string
	for _, uid := range sets.List(set.Difference(other)) {
		alone = append(alone, string(uid))
	}
	if len(alone) > 0 {
		text += " (alone: " + strings.Join(alone, " ") + ")"
	}
	return text
}
