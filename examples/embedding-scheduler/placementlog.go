package main

import (
	"context"

	v1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

const placementLogName = "placementlog"

// placementLog logs a line for each pod that was placed under a policy, as an audit wants.
type placementLog struct {
	store *policystore.Store
	nodes corelisters.NodeLister
}

var _ fwk.PostBindPlugin = &placementLog{}

func (*placementLog) Name() string { return placementLogName }

// PostBind runs beside the scheduling of other pods. So the counts may include some that were placed since.
func (pl *placementLog) PostBind(ctx context.Context, _ fwk.CycleState, pod *v1.Pod, nodeName string) {
	decision, governed := pl.store.Decide(pod)
	if !governed {
		return
	}
	node, err := pl.nodes.Get(nodeName)
	if err != nil {
		return // deleted already
	}
	group := decision.GroupOf(node.Labels)
	klog.FromContext(
		ctx,
	).Info(
		"Placed a pod under its placement policy",
		"pod",
		klog.KObj(pod),
		"node",
		klog.KObj(node),
		"placementPolicy",
		klog.KRef(decision.Policy.Namespace, decision.Policy.Name),
		"group",
		decision.GroupName(group),
		"othersThere",
		decision.Placed(group),
		"quota",
		decision.Quota(group),
		"of",
		decision.Size,
	)
}
