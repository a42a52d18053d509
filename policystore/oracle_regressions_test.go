package policystore

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// Sequences in which the store once differed from the oracle. In each of them pod q is nominated for a node, and holds
// a place there against pod p.

func halfOnSpot() Policy {
	return Policy{
		NamespacedName:  types.NamespacedName{Namespace: "a", Name: "half-on-spot"},
		EnforcementMode: Strict,
		PodSelector:     selector(nil),
		NodeSelector:    selector(map[string]string{"pool": "spot"}),
		TargetSize:      ptr.To(intstr.FromString("50%")),
	}
}

// nominatedForSpot starts with a waiting pod p and a pod q that is nominated for the node spot, which is not known yet.
func nominatedForSpot(t *testing.T) (x *tandem, q *v1.Pod, spot *v1.Node) {
	q = &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", UID: "q"},
		Status:     v1.PodStatus{NominatedNodeName: "spot"},
	}
	x = newTandem(t, New())
	x.setPolicy(halfOnSpot())
	x.addPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", UID: "p"}})
	x.addPod(q)
	x.check()
	return x, q, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "spot", Labels: map[string]string{"pool": "spot"}}}
}

// Nobody was told that q's place had changed group, or was free, so that p kept waiting.
func TestOracleNominatedNodeChanges(t *testing.T) {
	x, _, spot := nominatedForSpot(t)
	x.addNode(spot)
	x.check()
	x.updateNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "spot"}})
	x.check()
	x.removeNode(spot)
	x.check()
}

// Nobody was told that q, placed on a node that is not known yet, had given up its place.
func TestOracleNominatedPodIsPlacedElsewhere(t *testing.T) {
	x, q, spot := nominatedForSpot(t)
	x.addNode(spot)
	x.check()
	x.assume(q, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "unknown"}})
	x.check()
	x.forget(q)
	x.check()
	bound := q.DeepCopy()
	bound.Spec.NodeName = "unknown"
	x.updatePod(q, bound)
	x.check()
}

// A simulation that took away q's place did not give it back.
func TestOracleNominatedPodComesBack(t *testing.T) {
	x, _, spot := nominatedForSpot(t)
	x.addNode(spot)
	x.check() // which evicts q and brings it back
}
