package policystore_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

// web is the policy of most tests.
var web = types.NamespacedName{Namespace: "default", Name: "web"}

// spot are the labels of the nodes that it is about.
var spot = map[string]string{"pool": "spot"}

// must is the policy web: a share of the pods labelled app=web must be on spot nodes.
func must(mode policystore.EnforcementMode, size string) policystore.Policy {
	return policystore.Policy{
		NamespacedName:  web,
		EnforcementMode: mode,
		PodSelector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		NodeSelector:    &metav1.LabelSelector{MatchLabels: spot},
		TargetSize:      ptr.To(intstr.Parse(size)),
	}
}

// world is a cluster in miniature to try a policy on: a store, the objects that it was told of, and a scheduler.
type world struct {
	*policystore.Store
	t        *testing.T
	nodes    map[string]*v1.Node
	pods     map[string]*v1.Pod // as the API server has them; names are in the order of creation
	reserved map[string]string  // the pods' nodes, from Reserve to bind
	room     map[string]int     // how many pods fit on the node
	created  int
}

// newWorld returns a world with the policies. At the end of the test all that is left in it is removed, after which the
// store must be empty.
func newWorld(t *testing.T, policies ...policystore.Policy) *world {
	w := &world{
		Store:    policystore.New(),
		t:        t,
		nodes:    map[string]*v1.Node{},
		pods:     map[string]*v1.Pod{},
		reserved: map[string]string{},
		room:     map[string]int{},
	}
	for _, p := range policies {
		w.set(p)
	}
	t.Cleanup(func() {
		for _, key := range w.Policies() {
			w.RemovePolicy(key)
		}
		w.remove(slices.Collect(maps.Keys(w.pods))...)
		for _, node := range w.nodes {
			w.RemoveNode(node.Name)
		}
		policystore.RequireEmpty(t, w.Store)
	})
	return w
}

// newCluster returns a world with room for everything on the spot node m1 and on o1, which is not.
func newCluster(t *testing.T, policies ...policystore.Policy) *world {
	w := newWorld(t, policies...)
	w.addNodes(100, spot, "m1")
	w.addNodes(100, nil, "o1")
	return w
}

func (w *world) set(p policystore.Policy) {
	w.t.Helper()
	require.NoError(w.t, w.SetPolicy(p))
}

// addNodes adds nodes with room for so many pods each.
func (w *world) addNodes(room int, labels map[string]string, names ...string) {
	for _, name := range names {
		w.nodes[name] = newNode(name, labels)
		w.room[name] = room
		w.AddNode(w.nodes[name])
	}
}

func (w *world) relabelNode(name string, labels map[string]string) {
	w.nodes[name] = newNode(name, labels)
	w.UpdateNode(w.nodes[name])
}

// create creates pods by newPod and tells the store of them.
func (w *world) create(n int, edits ...func(*v1.Pod)) (names []string) {
	for range n {
		w.created++
		name := fmt.Sprintf("web-%03d", w.created)
		w.pods[name] = newPod(name, edits...)
		w.AddPod(w.pods[name])
		names = append(names, name)
	}
	return names
}

// schedule takes each pending pod through a scheduling cycle up to Reserve, and returns those that stay pending.
func (w *world) schedule() (pending []string) {
	w.t.Helper()
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		pod := w.pods[name]
		if pod.Spec.NodeName != "" || w.reserved[name] != "" || pod.DeletionTimestamp != nil {
			continue
		}
		node := w.nodeFor(pod)
		if node == "" {
			pending = append(pending, name)
			continue
		}
		require.NoError(w.t, w.AssumePod(pod, w.nodes[node]))
		w.reserved[name] = node
	}
	return pending
}

// nodeFor is Filter and Score: the first node with room in the preferred group, else in one that the policy allows.
func (w *world) nodeFor(pod *v1.Pod) string {
	decision, governed := w.Decide(pod)
	second := ""
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		node := w.nodes[name]
		fits := labels.SelectorFromSet(pod.Spec.NodeSelector).Matches(labels.Set(node.Labels))
		if !fits || len(w.on(name)) >= w.room[name] {
			continue
		}
		if !governed {
			return name
		}
		switch group := decision.GroupOf(node.Labels); {
		case group == decision.Preferred:
			return name
		case decision.Allows(group) && second == "":
			second = name
		}
	}
	return second
}

// bind binds the pods that have a reservation.
func (w *world) bind() {
	for name, node := range w.reserved {
		w.update(onNode(node), name)
		delete(w.reserved, name)
	}
}

// run creates pods, and schedules and binds all that are pending.
func (w *world) run(n int, edits ...func(*v1.Pod)) (names []string) {
	w.t.Helper()
	names = w.create(n, edits...)
	w.schedule()
	w.bind()
	return names
}

func (w *world) update(edit func(*v1.Pod), names ...string) {
	for _, name := range names {
		old := w.pods[name]
		pod := old.DeepCopy()
		edit(pod)
		w.pods[name] = pod
		w.UpdatePod(old, pod)
	}
}

func (w *world) remove(names ...string) {
	for _, name := range names {
		w.RemovePod(w.pods[name].UID)
		delete(w.pods, name)
		delete(w.reserved, name)
	}
}

// on returns the names of the pods that use room on the node.
func (w *world) on(node string) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		pod := w.pods[name]
		if (pod.Spec.NodeName == node || w.reserved[name] == node) && pod.Status.Phase != v1.PodSucceeded {
			names = append(names, name)
		}
	}
	return names
}

// split tells how many pods of the policy web the store counts in the target group and in the other one: "4/6".
func (w *world) split() string {
	info, _ := w.Policy(web)
	managed, other := 0, 0
	for _, cohort := range info.Cohorts {
		managed += cohort.Managed
		other += cohort.Other
	}
	return fmt.Sprintf("%d/%d", managed, other)
}

func (w *world) requireSplit(want string) {
	w.t.Helper()
	require.Equal(w.t, want, w.split())
}

func newNode(name string, labels map[string]string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

// newPod returns a pod that the policy web selects, pending unless edited.
func newPod(name string, edits ...func(*v1.Pod)) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "web"},
	}}
	for _, edit := range edits {
		edit(pod)
	}
	return pod
}

// Edits of a pod.

func onNode(name string) func(*v1.Pod) { return func(pod *v1.Pod) { pod.Spec.NodeName = name } }

func inNamespace(name string) func(*v1.Pod) { return func(pod *v1.Pod) { pod.Namespace = name } }

func labelled(key, value string) func(*v1.Pod) { return func(pod *v1.Pod) { pod.Labels[key] = value } }

func controlledBy(workload types.UID) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{{UID: workload, Controller: ptr.To(true)}}
	}
}

func priority(n int32) func(*v1.Pod) { return func(pod *v1.Pod) { pod.Spec.Priority = &n } }

func nominatedFor(node string) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Status.NominatedNodeName = node }
}

func gated(pod *v1.Pod) { pod.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "quota"}} }

func finished(pod *v1.Pod) { pod.Status.Phase = v1.PodSucceeded }

func terminating(pod *v1.Pod) { pod.DeletionTimestamp = ptr.To(metav1.Now()) }
