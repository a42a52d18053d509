// Package policystore tracks placement policies, and the pods and nodes that they are about, in memory, and decides
// from counts alone where the next pod may and should go. What is passed in is read, never changed or kept: pods, nodes
// and policies. What is handed out is the caller's: a [Decision] and the numbers of a [PolicyInfo] stay as they are
// when the store moves on, and the store does not mind if they are changed.
//
// It is for schedulers, and for whatever must agree with them: controllers, deschedulers, simulators, and unit tests of
// a policy, which need no cluster and no mocks.
//
// # The life of a pod
//
// The store knows two things of a pod: what its events have shown (observed), and the node that the scheduling cycle
// has taken for it (reserved). A pod is placed on the observed node, else on the reserved one, and counts there by the
// node's labels: the node's own once the store knows it, until then those that the scheduling cycle saw. So neither the
// order in which objects of different pods, nodes, policies and workloads arrive nor an event that comes twice makes a
// difference.
//
//	           AddPod             AssumePod              UpdatePod with a node
//	unknown ----------> pending ------------> reserved ------------------------> bound
//	   |                   ^                   |    ^                              ^
//	   |                   +---- ForgetPod ----+    |                              |
//	   |                                            |                              |
//	   +-- AssumePod before AddPod -----------------+                              |
//	   |   (from there ForgetPod leads back)                                       |
//	   +-- AddPod with a node: after a restart, or if another scheduler bound it --+
//
//	RemovePod leads from everywhere back to unknown.
//
// Only active pods count: those that are not finished, are not being deleted and have no scheduling gates. Gates only
// ever go: once an event or AssumePod has shown a pod without them, an older object does not bring them back. Nor does
// it unbind a pod that was shown as bound, or revive one that was shown as finished or being deleted. Of all else, such
// as labels, controller, priority and nominated node, the object that was shown last counts: show those of a pod in
// their order, as an informer does.
//
// A pod is known by its UID; one that never has any, by its namespace and name. A pod without either, as at admission,
// can be decided about, but not be tracked. The pods of DaemonSets are not governed, and not tracked.
//
// # The plan
//
// A policy divides the nodes into 1 to 8 groups, and has a plan: an endless sequence of slots, each of which belongs to
// one group. The n-th pod of a cohort that is placed takes slot n. Q(n) is how many of the slots 1 to n belong to a
// group.
//
// The first slots are the bases of the groups, in their order. Of the first n slots beyond them, n times the sum of all
// shares, rounded down, go to the groups that have a share, which take turns; the others go to the last group, and so
// does a slot that a group would have beyond its max. So no group is ever a whole pod away from its share. For example:
//
//	slot                        1  2  3  4  5  6  7  8  9 10 11 12
//	a: 40%, b                   b  b  a  b  a  b  b  a  b  a  b  b
//	a: 70%, b: base 2           b  b  b  a  a  b  a  a  b  a  a  a
//	a: 50%, b: 30%, c           c  a  b  a  a  c  b  a  a  b  c  a
//	a: 50% and max 3, b         b  a  b  a  b  a  b  b  b  b  b  b
//
// The first of them is what NodeSelector, Action and TargetSize make of 40%: a is the group "target", and b is "other".
// An integer there is the base of "target".
//
// # The decision
//
// Of the policies of its namespace that select a pod, one governs it: the heaviest, then a Strict one, then the first
// by name. The active pods that a policy governs, and that agree on its MatchLabelKeys, are a cohort. N is its size,
// the pod to decide about included: how many pods it has or, if that is more, how many its workload wants. m of the
// other pods are placed in a group, and k in all groups together.
//
//   - Strict allows a group while m < Q(N): at least one of them always. BestEffort allows all.
//   - Both modes prefer the group that lacks most for the next slot, the one with the largest Q(k+1)-m, of equals the
//     first. So what is placed is always the first k slots of the plan, in whatever order or batch pods arrive.
//
// A node that no group has is in none: Strict keeps pods off it, and BestEffort does not prefer it. Pods that are there
// qualify, but count in no group. The pods in all groups but the last are managed.
//
// Some decisions of a Strict policy, with m pods placed in "target" and o in "other":
//
//	target size   N   m  o   allowed  preferred
//	40%          10   0  0   both     other      Q(1) = 0 of target
//	40%          10   0  2   both     target     Q(3) = 1
//	40%          10   4  3   other    other
//	40%          10   3  6   target   target
//	40%           1   0  0   other    other
//	4            10   0  0   both     target     Q(1) = 1
//	4             3   0  2   target   target
//	40%           5   4  0   other    other      after a scale-down
//
// # Feeding a store
//
// Informers' handlers call SetPolicy, RemovePolicy, AddNode, UpdateNode, RemoveNode, AddPod, UpdatePod, RemovePod,
// SetWorkloadSize and RemoveWorkload, with the object that is inside a cache.DeletedFinalStateUnknown or, where there
// is none, [Store.RemovePodNamed]; the scheduling cycle calls [Store.Decide] to filter and score, [Store.AssumePod] to
// reserve and [Store.ForgetPod] to unreserve, once it is certain that the pod is not bound: a bind may be stored
// although it seemed to fail. Nothing is counted anew and nothing is written to the API server. Before the first
// decision all handlers should have seen what there is: until then the counts are too low.
//
// # Concurrency
//
// All methods may be called at any time from any goroutine. What Decide allows may be taken by another pod before
// AssumePod, which therefore checks again. Subscribers are called without the store's lock.
package policystore
