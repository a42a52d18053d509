package placementpolicy

import (
	"context"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	resourcehelpers "k8s.io/component-helpers/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

const (
	// alwaysSampled is how many nodes the scheduler looks at in any case (minFeasibleNodesToFind of k8s.io/kubernetes/pkg/scheduler).
	alwaysSampled = 100
	// narrowingTries is in how many sets of nodes a cheap look is had for room.
	narrowingTries = 2
	// narrowingTimeout is how long a pod that was narrowed may take to Reserve. After that it has failed.
	narrowingTimeout = time.Second
	// narrowingPause is for how long the pods of a cohort are not narrowed after one of them has failed.
	narrowingPause = time.Minute
)

// narrowing keeps pods to nodes of their preferred group while one of these seems to have room. In a cluster of more than 100 nodes
// the scheduler stops looking when it has found some that fit, and there may be none of a small group among them. Then no
// score brings the pod to that group.
//
// Whether a node has room is for the scheduler's filters to say. If they find none on all the nodes that a pod was kept to, it is
// activated, and tried on all nodes.
type narrowing struct {
	store     *policystore.Store
	activator fwk.PodActivator

	mu     sync.Mutex                         // guards the two below
	tried  narrowedPod                        // the last pod that was narrowed, until it comes to Reserve
	paused map[policystore.CohortID]time.Time // the cohorts whose pods are not narrowed, and until when
}

type narrowedPod struct {
	*v1.Pod
	cohort policystore.CohortID
	since  time.Time
}

func newNarrowing(store *policystore.Store, activator fwk.PodActivator) *narrowing {
	return &narrowing{store: store, activator: activator, paused: map[policystore.CohortID]time.Time{}}
}

// run gives pods that failed another attempt, until ctx is done.
func (n *narrowing) run(ctx context.Context) { wait.UntilWithContext(ctx, n.retry, narrowingTimeout) }

// nodesFor returns the nodes to keep the pod to; nil if it may go to all. The set must not be changed.
func (n *narrowing) nodesFor(ctx context.Context, pod *v1.Pod, decision policystore.Decision, snapshot fwk.NodeInfoLister) sets.Set[string] {
	// Cycles come one after another: a pod that has not come to Reserve by now has failed.
	if failed := n.failed(0); failed != nil && failed.UID != pod.UID {
		n.activate(ctx, failed)
	}
	n.mu.Lock()
	paused := time.Now().Before(n.paused[decision.CohortID()])
	n.mu.Unlock()
	if paused {
		return nil
	}
	candidates := n.store.NodesIn(decision, decision.Preferred)
	if len(candidates) == 0 {
		return nil
	}
	look := newCheapLook(ctx, pod)
	first := rand.IntN(len(candidates))
	for i := range min(len(candidates), narrowingTries) {
		nodes := candidates[(first+i)%len(candidates)]
		if look.findsRoom(nodes, snapshot) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.tried = narrowedPod{pod, decision.CohortID(), time.Now()}
			return nodes
		}
	}
	return nil
}

// failed returns the pod that was narrowed so long ago and found no node among those that it was kept to, if there is one.
func (n *narrowing) failed(after time.Duration) *v1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.tried
	if p.Pod == nil || time.Since(p.since) < after {
		return nil
	}
	n.tried = narrowedPod{}
	n.paused[p.cohort] = time.Now().Add(narrowingPause)
	return p.Pod
}

// reserved notes that a node was found for the pod.
func (n *narrowing) reserved(pod *v1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.tried.Pod != nil && n.tried.UID == pod.UID {
		n.tried = narrowedPod{}
	}
}

// retry activates a pod that has failed, and after which no cycle came.
func (n *narrowing) retry(ctx context.Context) {
	if failed := n.failed(narrowingTimeout); failed != nil {
		n.activate(ctx, failed)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.paused, func(_ policystore.CohortID, until time.Time) bool { return time.Now().After(until) })
}

func (n *narrowing) activate(ctx context.Context, pod *v1.Pod) {
	klog.FromContext(ctx).V(4).Info("Activating a pod that found no node among those that its placement policy prefers", "pod", klog.KObj(pod))
	activate(ctx, n.activator, pod)
}

// cheapLook is what most often keeps a pod from a node.
type cheapLook struct {
	logger   klog.Logger
	pod      *v1.Pod
	requests v1.ResourceList
	affinity nodeaffinity.RequiredNodeAffinity
}

func newCheapLook(ctx context.Context, pod *v1.Pod) cheapLook {
	return cheapLook{
		logger:   klog.FromContext(ctx),
		pod:      pod,
		requests: resourcehelpers.PodRequests(pod, resourcehelpers.PodResourcesOptions{}),
		affinity: nodeaffinity.GetRequiredNodeAffinity(pod),
	}
}

// findsRoom reports whether one of the nodes seems to have room.
func (l cheapLook) findsRoom(nodes sets.Set[string], snapshot fwk.NodeInfoLister) bool {
	for name := range nodes {
		if node, err := snapshot.Get(name); err == nil && l.fits(node) { // else the node is not there yet, or gone
			return true
		}
	}
	return false
}

func (l cheapLook) fits(info fwk.NodeInfo) bool {
	node := info.Node()
	if node.Spec.Unschedulable || len(info.GetPods()) >= info.GetAllocatable().GetAllowedPodNumber() {
		return false
	}
	for name, quantity := range l.requests {
		if !hasFree(info, name, quantity) {
			return false
		}
	}
	if matches, err := l.affinity.Match(node); err != nil || !matches {
		return false
	}
	_, untolerated := corev1helpers.FindMatchingUntoleratedTaint(l.logger, node.Spec.Taints, l.pod.Spec.Tolerations, keepsPodsAway, true)
	return !untolerated
}

func hasFree(info fwk.NodeInfo, name v1.ResourceName, wanted resource.Quantity) bool {
	all, used := info.GetAllocatable(), info.GetRequested()
	switch name {
	case v1.ResourceCPU:
		return wanted.MilliValue() <= all.GetMilliCPU()-used.GetMilliCPU()
	case v1.ResourceMemory:
		return wanted.Value() <= all.GetMemory()-used.GetMemory()
	case v1.ResourceEphemeralStorage:
		return wanted.Value() <= all.GetEphemeralStorage()-used.GetEphemeralStorage()
	default:
		return wanted.Value() <= all.GetScalarResources()[name]-used.GetScalarResources()[name]
	}
}

func keepsPodsAway(taint *v1.Taint) bool {
	return taint.Effect == v1.TaintEffectNoSchedule || taint.Effect == v1.TaintEffectNoExecute
}
