package placementpolicy

import (
	"context"

	v1 "k8s.io/api/core/v1"
	resourcehelpers "k8s.io/component-helpers/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// cheapLook is what most often keeps a pod from a node: resources, cordons, taints, node selectors. Resources that only
// dynamic resource allocation knows count as missing.
type cheapLook struct {
	logger   klog.Logger
	pod      *v1.Pod
	nodes    fwk.NodeInfoLister
	affinity nodeaffinity.RequiredNodeAffinity

	milliCPU, memory, ephemeralStorage int64
	scalar                             map[v1.ResourceName]int64 // nil if the pod requests none
}

func newCheapLook(ctx context.Context, pod *v1.Pod, nodes fwk.NodeInfoLister) *cheapLook {
	l := &cheapLook{
		logger:   klog.FromContext(ctx),
		pod:      pod,
		nodes:    nodes,
		affinity: nodeaffinity.GetRequiredNodeAffinity(pod),
	}
	for name, quantity := range resourcehelpers.PodRequests(pod, resourcehelpers.PodResourcesOptions{}) {
		switch name {
		case v1.ResourceCPU:
			l.milliCPU = quantity.MilliValue()
		case v1.ResourceMemory:
			l.memory = quantity.Value()
		case v1.ResourceEphemeralStorage:
			l.ephemeralStorage = quantity.Value()
		default:
			if l.scalar == nil {
				l.scalar = map[v1.ResourceName]int64{}
			}
			l.scalar[name] = quantity.Value()
		}
	}
	return l
}

// findsRoom reports whether the node seems to have room. One that is not there yet, or gone, has none.
func (l *cheapLook) findsRoom(name string) bool {
	info, err := l.nodes.Get(name)
	if err != nil || !l.fits(info) {
		return false
	}
	node := info.Node()
	if node.Spec.Unschedulable {
		return false
	}
	if matches, err := l.affinity.Match(node); err != nil || !matches {
		return false
	}
	_, untolerated := corev1helpers.FindMatchingUntoleratedTaint(
		l.logger,
		node.Spec.Taints,
		l.pod.Spec.Tolerations,
		keepsPodsAway,
		true,
	)
	return !untolerated
}

// fits reports whether the node has the resources that the pod requests. What it does not request may be overdrawn.
func (l *cheapLook) fits(info fwk.NodeInfo) bool {
	all, used := info.GetAllocatable(), info.GetRequested()
	if len(info.GetPods()) >= all.GetAllowedPodNumber() ||
		l.milliCPU > 0 && l.milliCPU > all.GetMilliCPU()-used.GetMilliCPU() ||
		l.memory > 0 && l.memory > all.GetMemory()-used.GetMemory() ||
		l.ephemeralStorage > 0 && l.ephemeralStorage > all.GetEphemeralStorage()-used.GetEphemeralStorage() {
		return false
	}
	for name, wanted := range l.scalar {
		if wanted > all.GetScalarResources()[name]-used.GetScalarResources()[name] {
			return false
		}
	}
	return true
}

func keepsPodsAway(taint *v1.Taint) bool {
	return taint.Effect == v1.TaintEffectNoSchedule || taint.Effect == v1.TaintEffectNoExecute
}
