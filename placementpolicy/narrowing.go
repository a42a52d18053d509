package placementpolicy

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

const (
	// alwaysSampled is how many nodes the scheduler looks at in any case (minFeasibleNodesToFind of
	// k8s.io/kubernetes/pkg/scheduler).
	alwaysSampled = 100
	// maxPenalty bounds for how many pods in a row a workload's pods are not narrowed.
	maxPenalty = 1024
	// maxFindings bounds the memory for what was found.
	maxFindings = 10000
	// clockSkew bounds by how much the API server's clock may be ahead.
	clockSkew = 5 * time.Second
)

// narrowing says to which nodes a pod is to be kept: to those of its preferred group, while one of these seems to have
// room. Whether it has is for the scheduler's filters to say.
//
// It remembers what it found for pods that are alike, so that it looks through a full group once, and after that only
// at the nodes that have changed. What it remembers may be wrong for a while; then the pod is scored only, or tried
// twice.
type narrowing struct {
	store *policystore.Store
	// signs: pods have been signed, which the scheduler asks for only if all other plugins of the profile sign them,
	// too.
	signs atomic.Bool

	mu       sync.Mutex // guards all below; it is taken before the store's lock
	findings map[alike]*finding
	changes  nodeChanges
	// policiesChanged is when a policy of the namespace was set or removed last.
	policiesChanged map[string]time.Time
	// misled is the pod that was narrowed last, if the filters let it onto none of the nodes.
	misled *v1.Pod
}

// alike identifies pods that the same nodes have room for: those of one cohort and one workload.
type alike struct {
	cohort   policystore.CohortID
	workload types.UID // the pod's own, if nothing controls it
	group    policystore.Group
}

// finding is what was found for pods that are alike.
type finding struct {
	policy types.NamespacedName
	// room is a node that had room; empty if there was none.
	room string
	// full: no other node had room, apart from those that have changed since the seen-th change.
	full bool
	seen int
	// skip is how many more pods are not narrowed, after the filters refused all nodes; penalty is how many it was
	// then.
	skip, penalty int
}

func newNarrowing(store *policystore.Store) *narrowing {
	return &narrowing{store: store, findings: map[alike]*finding{}, policiesChanged: map[string]time.Time{}}
}

// nodesFor returns the nodes to keep the pod to; nil if it may go to all. The set must not be changed.
func (n *narrowing) nodesFor(
	ctx context.Context,
	pod *v1.Pod,
	decision policystore.Decision,
	snapshot fwk.NodeInfoLister,
) sets.Set[string] {
	group := n.store.NodesIn(decision, decision.Preferred)
	if len(group) == 0 {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	f := n.findingLocked(pod, decision)
	if f.skip > 0 {
		f.skip--
		return nil
	}
	look := newCheapLook(ctx, pod, snapshot)
	if f.room != "" && look.findsRoom(f.room) {
		if nodes := setWith(group, f.room); nodes != nil {
			return nodes
		}
	}
	f.room = ""
	if !f.full || !n.changes.remembers(f.seen) {
		return f.lookThrough(group, look, n.changes.count)
	}
	for i := n.changes.from(f.seen); i < n.changes.count; i++ {
		name := n.changes.node(i)
		if !look.findsRoom(name) {
			continue
		}
		if nodes := setWith(group, name); nodes != nil {
			f.room, f.seen = name, i+1
			return nodes
		}
	}
	f.seen = n.changes.count
	return nil
}

// lookThrough looks for room on all nodes of the group, as they are after the changes up to now.
func (f *finding) lookThrough(group []sets.Set[string], look *cheapLook, now int) sets.Set[string] {
	first := rand.IntN(len(group)) // so that not all pods are kept to the same ones
	for i := range group {
		nodes := group[(first+i)%len(group)]
		for name := range nodes {
			if look.findsRoom(name) {
				f.room, f.full = name, false
				return nodes
			}
		}
	}
	f.full, f.seen = true, now
	return nil
}

func (n *narrowing) findingLocked(pod *v1.Pod, decision policystore.Decision) *finding {
	key := alike{cohort: decision.CohortID(), workload: pod.UID, group: decision.Preferred}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		key.workload = owner.UID
	}
	f := n.findings[key]
	if f == nil {
		if len(n.findings) >= maxFindings {
			clear(n.findings)
		}
		f = &finding{policy: decision.Policy}
		n.findings[key] = f
	}
	return f
}

// setWith returns the set that has the node; nil if none has.
func setWith(group []sets.Set[string], node string) sets.Set[string] {
	for _, nodes := range group {
		if nodes.Has(node) {
			return nodes
		}
	}
	return nil
}

// failed notes that the filters let the pod onto none of the nodes that it was kept to. Pods like it would fare no
// better: ever more of them are tried on all nodes before the next one is narrowed.
func (n *narrowing) failed(pod *v1.Pod, decision policystore.Decision) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f := n.findingLocked(pod, decision)
	f.penalty = min(max(1, 2*f.penalty), maxPenalty)
	f.skip = f.penalty
	n.misled = pod
}

// succeeded notes that the pod found a node among those that it was kept to.
func (n *narrowing) succeeded(pod *v1.Pod, decision policystore.Decision) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.findingLocked(pod, decision).penalty = 0
}

// takeMisled returns the pod that has failed last, once.
func (n *narrowing) takeMisled() *v1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	pod := n.misled
	n.misled = nil
	return pod
}

// nodeChanged notes that room may have come on the node, which need not be in the scheduler's snapshot yet.
func (n *narrowing) nodeChanged(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.changes.add(name)
}

// policyChanged notes that the policy was set or removed, after the store knows.
func (n *narrowing) policyChanged(policy types.NamespacedName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.policiesChanged[policy.Namespace] = time.Now()
	for key, f := range n.findings {
		if f.policy == policy {
			delete(n.findings, key) // the group may have other nodes now
		}
	}
}

// mayBeSigned reports whether the pod may have been queued, and signed, before the policies of its namespace were as
// they are.
func (n *narrowing) mayBeSigned(pod *v1.Pod) bool {
	if !n.signs.Load() {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	changed, ok := n.policiesChanged[pod.Namespace]
	return ok && pod.CreationTimestamp.Time.Before(changed.Add(clockSkew))
}

// nodeChanges are the names of the nodes that have changed last, in order.
type nodeChanges struct {
	names [512]string
	count int // of all changes
}

// notSeen is how many changes before one that was looked at are looked at again: the scheduler's snapshot may have been
// behind.
const notSeen = 16

func (c *nodeChanges) add(name string) {
	c.names[c.count%len(c.names)] = name
	c.count++
}

func (c *nodeChanges) node(i int) string { return c.names[i%len(c.names)] }

// from returns the first change to look at, if those before the given one were seen.
func (c *nodeChanges) from(seen int) int { return max(0, seen-notSeen) }

// remembers reports whether all changes from there on are known.
func (c *nodeChanges) remembers(seen int) bool { return c.count-c.from(seen) <= len(c.names) }
