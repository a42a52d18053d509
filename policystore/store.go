package policystore

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Store tracks policies, nodes and pods, and decides where pods go. The zero Store is empty and ready for use. All
// methods are safe for concurrent use; none blocks for anything but the store's own lock. What is passed in is read,
// never changed or kept.
type Store struct {
	// mu guards state and nodeLog. While it is held nothing is called that takes another lock but those of the cohorts'
	// sets.
	mu      sync.RWMutex
	state   state
	nodeLog nodeLog

	divisions divisions

	subscribersMu sync.RWMutex // guards the two below
	subscribers   map[int]func(types.NamespacedName)
	nextID        int
}

var errNoReason = errors.New("rejected for no given reason")

// New returns an empty store.
func New() *Store {
	return &Store{}
}

// Subscribe arranges for changed to be called with the key of a policy each time that its spec, its cohorts or their
// counts have changed; also when it was set or removed. It is called after the change, by whoever made it and without
// the store's lock, perhaps by several at once: so it must be quick and safe for concurrent use, and may read the
// store. The returned function ends the subscription; a call under way may still end after it. A nil function is never
// called.
func (s *Store) Subscribe(changed func(policy types.NamespacedName)) (cancel func()) {
	if changed == nil {
		return func() {}
	}
	s.subscribersMu.Lock()
	defer s.subscribersMu.Unlock()
	if s.subscribers == nil {
		s.subscribers = map[int]func(types.NamespacedName){}
	}
	id := s.nextID
	s.nextID++
	s.subscribers[id] = changed
	return func() {
		s.subscribersMu.Lock()
		defer s.subscribersMu.Unlock()
		delete(s.subscribers, id)
	}
}

// update runs one operation under the lock and tells the subscribers what it changed.
func (s *Store) update(operation func(*state)) {
	changed := s.apply(operation)
	if len(changed) == 0 {
		return
	}
	s.subscribersMu.RLock()
	subscribers := slices.Collect(maps.Values(s.subscribers))
	s.subscribersMu.RUnlock()
	for _, pol := range changed {
		for _, changed := range subscribers {
			changed(pol.key)
		}
	}
}

// apply runs one operation under the lock and returns the policies that it changed, of which only the keys may be read.
func (s *Store) apply(operation func(*state)) []*policy {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.init()
	operation(&s.state)
	for _, c := range s.state.changed {
		s.nodeLog.add(c)
	}
	touched := s.state.touched
	s.state.touched, s.state.changed = nil, nil
	for _, pol := range touched {
		pol.touched = false
	}
	return touched
}

// has reports, without keeping other readers out, whether an event tells nothing new: most events of a cluster do not.
func (s *Store) has(known func(*state) bool) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return known(&s.state)
}

// SetPolicy adds a policy or replaces the one of the same name. Counts follow at once; pods that are placed stay where
// they are. If the policy is invalid, the error says why (see [Policy.Validate]), and the policy governs nothing until
// a valid one is set: the one that was there does not govern any more either. A policy that comes to govern 100,000
// pods, no two of which have the same labels, keeps everybody out for about 100 ms; one that is only resized, for no
// time.
func (s *Store) SetPolicy(p Policy) error {
	spec, err := compile(p)
	s.update(func(st *state) { st.setPolicy(p.NamespacedName, spec, err) })
	return err
}

// RejectPolicy notes a policy that is there but cannot even be read: it governs nothing until SetPolicy sets a valid
// one, and [PolicyInfo] tells the reason; if that is nil, that none was given.
func (s *Store) RejectPolicy(key types.NamespacedName, reason error) {
	if reason == nil {
		reason = errNoReason
	}
	s.update(func(st *state) { st.setPolicy(key, nil, reason) })
}

// RemovePolicy removes a policy. It does nothing if the policy is not there.
func (s *Store) RemovePolicy(key types.NamespacedName) {
	s.update(func(st *state) { st.removePolicy(key) })
}

// AddNode makes a node known: the pods on it count from now on, also those that were there before. A node without a
// name is ignored.
func (s *Store) AddNode(node *v1.Node) {
	if node.Name != "" && !s.has(func(st *state) bool { return st.hasNode(node) }) {
		s.update(func(st *state) { st.setNode(node.Name, node.Labels) })
	}
}

// UpdateNode follows a node's labels: the pods on it change group with them.
func (s *Store) UpdateNode(node *v1.Node) { s.AddNode(node) }

// RemoveNode forgets a node, by its name: the pods on it are in no group until it is added again.
func (s *Store) RemoveNode(name string) {
	s.update(func(st *state) { st.removeNode(name) })
}

// SetWorkloadSize notes how many pods the workload (a ReplicaSet, StatefulSet or ReplicationController) wants: see
// [WorkloadSize]. The size of a cohort is at least that, if the workload controls all of its pods that have a
// controller. A size out of 0 to [math.MaxInt32] is not known, as after RemoveWorkload. An empty UID is ignored, since
// no pod can name it.
func (s *Store) SetWorkloadSize(uid types.UID, size int) {
	if !isSize(size) {
		s.RemoveWorkload(uid)
		return
	}
	if uid != "" && !s.has(func(st *state) bool { return st.hasWorkloadSize(uid, size) }) {
		s.update(func(st *state) { st.setWorkloadSize(uid, size) })
	}
}

// RemoveWorkload forgets a workload's size.
func (s *Store) RemoveWorkload(uid types.UID) {
	s.update(func(st *state) { st.setWorkloadSize(uid, -1) })
}

// AddPod takes in a pod as the API server shows it. A pod is known by its UID; one that never has any, as in unit
// tests, by its name. A pod without UID and name, as at admission, is ignored, and so are the pods of DaemonSets, which
// no policy governs.
func (s *Store) AddPod(pod *v1.Pod) {
	if !s.has(func(st *state) bool { return st.hasPod(pod) }) {
		s.update(func(st *state) { st.observePod(pod) })
	}
}

// UpdatePod takes in a change of a pod. The old object may be nil, or older than the last one that the store saw; if it
// is another pod of the same name, that one is removed. An update that shows no node does not undo a reservation.
func (s *Store) UpdatePod(old, pod *v1.Pod) {
	if old != nil && uidOf(old) != uidOf(pod) {
		s.RemovePod(uidOf(old))
	}
	s.AddPod(pod)
}

// RemovePod forgets the pod with the UID and, with it, a reservation that it may still have.
func (s *Store) RemovePod(uid types.UID) {
	s.update(func(st *state) { st.removePod(uid) })
}

// RemovePodNamed forgets the pods of that name which events have shown, however many UIDs had it. It is for pods
// without UID, and for a delete event that comes without its object and so without a UID (see
// cache.DeletedFinalStateUnknown). It looks at all pods of the namespace.
func (s *Store) RemovePodNamed(key types.NamespacedName) {
	s.update(func(st *state) {
		for _, uid := range st.podsNamed(key) {
			st.removePod(uid)
		}
	})
}

// AssumePod reserves a node for a pod: from now on the pod counts as placed there, until [Store.ForgetPod], or until
// the API server shows the pod bound or gone. It may be called before AddPod, and again for another node. If the pod's
// policy is Strict and the node's group holds all the pods that are meant for it, the error is a [*QuotaError] and
// nothing changes; check and reservation are one step, so that of two pods only one gets the last place.
//
// The node is given as the scheduling cycle sees it. If the store does not know it, these labels decide where the pod
// may go and where it counts, bound or not, until AddNode tells of the node's own. A node without a name is an error,
// and so is a pod without UID and name. For the pod of a DaemonSet nothing is reserved.
func (s *Store) AssumePod(pod *v1.Pod, node *v1.Node) (err error) {
	if err := validateReservation(pod, node); err != nil {
		return err
	}
	s.update(func(st *state) { err = st.assumePod(pod, node) })
	return err
}

// ForceAssumePod is AssumePod without the check, for where a Strict policy is not enforced, or pods are taken to be
// gone.
func (s *Store) ForceAssumePod(pod *v1.Pod, node *v1.Node) error {
	if err := validateReservation(pod, node); err != nil {
		return err
	}
	s.update(func(st *state) { st.reserve(pod, node) })
	return nil
}

func validateReservation(pod *v1.Pod, node *v1.Node) error {
	switch {
	case uidOf(pod) == "":
		return fmt.Errorf("reserving a node for a pod of namespace %q: the pod has neither UID nor name", pod.Namespace)
	case node == nil || node.Name == "":
		return fmt.Errorf("reserving a node for pod %s/%s: the node has no name", pod.Namespace, pod.Name)
	default:
		return nil
	}
}

// ConfirmPod moves a pod's reservation to the node that the pod is bound to, as the API server has said when it was
// asked, and reports whether the pod has a reservation. It never makes one: if the pod's events have shown it as bound
// or gone meanwhile, they tell all.
func (s *Store) ConfirmPod(pod *v1.Pod, nodeName string) (reserved bool) {
	s.update(func(st *state) { reserved = st.confirmPod(uidOf(pod), nodeName) })
	return reserved
}

// IsAssumed reports whether a node is reserved for the pod, which has not been shown as bound since.
func (s *Store) IsAssumed(pod *v1.Pod) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	p := s.state.pods[uidOf(pod)]
	return p != nil && p.reserved != nil
}

// ForgetPod ends a pod's reservation, and reports whether it had one. A pod that is bound stays counted.
func (s *Store) ForgetPod(pod *v1.Pod) (reserved bool) {
	s.update(func(st *state) { reserved = st.forgetPod(uidOf(pod)) })
	return reserved
}

// Decide says where the pod may and should go, and whether a policy governs it at all. A pod that is tracked is judged
// by what its events have shown, another by the given object; either as if it were active and qualified already.
func (s *Store) Decide(pod *v1.Pod) (d Decision, governed bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.state.decide(pod)
}

// WhyNotGoverned says in words why no policy governs the pod, which is judged as by Decide; it is empty if one does.
func (s *Store) WhyNotGoverned(pod *v1.Pod) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.state.whyNotGoverned(pod)
}

// Policies returns the keys of all policies, valid or not, in the order of namespaces and then of names.
func (s *Store) Policies() []types.NamespacedName {
	s.mu.RLock()
	keys := slices.Collect(maps.Keys(s.state.policies))
	s.mu.RUnlock()
	slices.SortFunc(keys, compareKeys)
	return keys
}

func compareKeys(a, b types.NamespacedName) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}
