package policystore

import (
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

// tandem is a store and an oracle that get the same calls.
type tandem struct {
	t      rapid.TB
	store  *Store
	oracle *oracle
	log    func(format string, args ...any)

	// told are the policies that the subscriber was told of since the last check. seen is what the policies were then,
	// without those that were set since, which it must be told of in any case; decided are the decisions for the active
	// pods.
	told    Set[types.NamespacedName]
	seen    map[types.NamespacedName]string
	decided map[types.UID]oracleDecision
}

func newTandem(t rapid.TB, store *Store) *tandem {
	x := &tandem{t: t, store: store, oracle: newOracle(), log: func(string, ...any) {}}
	store.Subscribe(func(policy types.NamespacedName) {
		store.Policy(policy) // a subscriber may read the store
		x.told.Insert(policy)
	})
	return x
}

func (x *tandem) setPolicy(p Policy) {
	x.log("SetPolicy %s", policyInWords(p))
	x.oracle.policies[p.NamespacedName] = newOraclePolicy(p)
	delete(x.seen, p.NamespacedName)
	_ = x.store.SetPolicy(p)
}

func (x *tandem) rejectPolicy(key types.NamespacedName) {
	x.log("RejectPolicy %s", key)
	x.oracle.policies[key] = oraclePolicy{}
	delete(x.seen, key)
	x.store.RejectPolicy(key, errors.New("targetSize is a list"))
}

func (x *tandem) removePolicy(key types.NamespacedName) {
	x.log("RemovePolicy %s", key)
	delete(x.oracle.policies, key)
	x.store.RemovePolicy(key)
}

func (x *tandem) addNode(n *v1.Node) {
	x.log("AddNode %s %v", n.Name, n.Labels)
	x.oracle.setNode(n)
	x.store.AddNode(n)
}

func (x *tandem) updateNode(n *v1.Node) {
	x.log("UpdateNode %s %v", n.Name, n.Labels)
	x.oracle.setNode(n)
	x.store.UpdateNode(n)
}

func (x *tandem) removeNode(n *v1.Node) {
	x.log("RemoveNode %s", n.Name)
	delete(x.oracle.nodes, n.Name)
	x.store.RemoveNode(n.Name)
}

func (x *tandem) setSize(workload types.UID, size int) {
	x.log("SetWorkloadSize %s %d", workload, size)
	x.oracle.sizes[workload] = size
	x.store.SetWorkloadSize(workload, size)
}

func (x *tandem) removeSize(workload types.UID) {
	x.log("RemoveWorkload %s", workload)
	delete(x.oracle.sizes, workload)
	x.store.RemoveWorkload(workload)
}

func (x *tandem) addPod(pod *v1.Pod) {
	x.log("AddPod %s", podInWords{pod})
	x.oracle.observe(pod)
	x.store.AddPod(pod)
}

// updatePod tells of a change. old may be nil, or another pod that had the same name.
func (x *tandem) updatePod(old, pod *v1.Pod) {
	x.log("UpdatePod %s to %s", podInWords{old}, podInWords{pod})
	if old != nil && old.UID != pod.UID {
		x.oracle.remove(old)
	}
	x.oracle.observe(pod)
	x.store.UpdatePod(old, pod)
}

func (x *tandem) removePod(pod *v1.Pod) {
	x.log("RemovePod %s", podInWords{pod})
	x.oracle.remove(pod)
	x.store.RemovePod(pod.UID)
}

// assume reserves if the store lets it, and returns what it says.
func (x *tandem) assume(pod *v1.Pod, node *v1.Node) error {
	err := x.store.AssumePod(pod, node)
	x.log("AssumePod %s on %s %v: %v", podInWords{pod}, node.Name, node.Labels, err)
	if err == nil {
		x.oracle.assume(pod, node)
	}
	return err
}

// force reserves, whatever a policy says.
func (x *tandem) force(pod *v1.Pod, node *v1.Node) {
	x.log("ForceAssumePod %s on %s %v", podInWords{pod}, node.Name, node.Labels)
	x.oracle.assume(pod, node)
	if err := x.store.ForceAssumePod(pod, node); err != nil {
		x.t.Fatalf("ForceAssumePod %s on %s: %v", podInWords{pod}, node.Name, err)
	}
}

func (x *tandem) confirm(pod *v1.Pod, nodeName string) {
	x.log("ConfirmPod %s on %s", podInWords{pod}, nodeName)
	reserved := x.oracle.reservations[pod.UID] != ""
	x.oracle.confirm(pod, nodeName)
	if got := x.store.ConfirmPod(pod, nodeName); got != reserved {
		x.t.Fatalf("ConfirmPod %s on %s: %t, want %t", podInWords{pod}, nodeName, got, reserved)
	}
}

func (x *tandem) forget(pod *v1.Pod) {
	x.log("ForgetPod %s", podInWords{pod})
	x.oracle.forget(pod)
	x.store.ForgetPod(pod)
}

// mustAssume is assume, checked against the oracle.
func (x *tandem) mustAssume(pod *v1.Pod, node *v1.Node) {
	refuses := x.oracle.refuses(pod, node)
	err := x.assume(pod, node)
	if quota := (*QuotaError)(nil); errors.As(err, &quota) != refuses || (err != nil) != refuses {
		x.t.Fatalf("AssumePod %s on %s: the error is %v; the oracle refuses: %t", podInWords{pod}, node.Name, err, refuses)
	}
}

// podInWords prints what of a pod matters to a store.
type podInWords struct{ *v1.Pod }

func (p podInWords) String() string {
	if p.Pod == nil {
		return "nil"
	}
	words := []string{string(p.UID), fmt.Sprint(p.Labels)}
	if owner := controllerOf(p.Pod); owner != "" {
		words = append(words, "of", string(owner))
	}
	if p.Spec.Priority != nil {
		words = append(words, "priority", fmt.Sprint(*p.Spec.Priority))
	}
	if p.Status.NominatedNodeName != "" {
		words = append(words, "nominated for", p.Status.NominatedNodeName)
	}
	if p.Spec.NodeName != "" {
		words = append(words, "on", p.Spec.NodeName)
	}
	if p.Status.Phase != "" {
		words = append(words, string(p.Status.Phase))
	}
	if p.DeletionTimestamp != nil {
		words = append(words, "terminating")
	}
	if len(p.Spec.SchedulingGates) > 0 {
		words = append(words, "gated")
	}
	return strings.Join(words, " ")
}

type policyInWords Policy

func (p policyInWords) String() string {
	var groups []string
	for _, g := range p.Groups {
		groups = append(groups, fmt.Sprintf("%s: nodes=%s base=%d share=%s max=%d", g.Name,
			metav1.FormatLabelSelector(g.NodeSelector), g.Base, g.Share, ptr.Deref(g.Max, -1)))
	}
	return fmt.Sprintf("%s weight=%d mode=%q pods=%s nodes=%s keys=%q action=%q size=%s groups=%q",
		p.NamespacedName, p.Weight, p.EnforcementMode, metav1.FormatLabelSelector(p.PodSelector),
		metav1.FormatLabelSelector(p.NodeSelector), p.MatchLabelKeys, p.Action, p.TargetSize, groups)
}
