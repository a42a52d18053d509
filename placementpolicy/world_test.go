package placementpolicy

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	framework "github.com/placement-policy/scheduler-plugin/internal/fwktest"
	st "github.com/placement-policy/scheduler-plugin/internal/fwktest"
	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

// Specs of policies for the pods with app=web and the nodes with spot=true.
const (
	selectors    = `podSelector: {matchLabels: {app: web}}, nodeSelector: {matchLabels: {spot: "true"}}`
	strict40     = `{enforcementMode: Strict, ` + selectors + `, policy: {targetSize: 40%}}`
	strict80     = `{enforcementMode: Strict, ` + selectors + `, policy: {targetSize: 80%}}`
	strict0      = `{enforcementMode: Strict, ` + selectors + `, policy: {targetSize: 0}}`
	strictNot60  = `{enforcementMode: Strict, ` + selectors + `, policy: {action: MustNot, targetSize: 60%}}`
	bestEffort40 = `{enforcementMode: BestEffort, ` + selectors + `, policy: {targetSize: 40%}}`
	strictThree  = `{enforcementMode: Strict, podSelector: {matchLabels: {app: web}}, groups: [
		{name: spot, nodeSelector: {matchLabels: {spot: "true"}}, share: 50%}, {name: gone, nodeSelector: {matchLabels: {spot: gone}}, share: 10%},
		{name: on-demand, nodeSelector: {matchLabels: {spot: "false"}}}]}`
	invalid = `{enforcementMode: Strict, ` + selectors + `, policy: {targetSize: 140%}}`
)

// webOnSpot is the key of the policy that most tests have.
var webOnSpot = types.NamespacedName{Namespace: "default", Name: "web-on-spot"}

// world is the plugin in one profile, with informers and a scheduler that the test plays. It starts with the nodes m1
// and m2, which have spot=true, and o1 and o2, which have not.
type world struct {
	*Plugin
	t      testing.TB
	ctx    context.Context
	handle *fakeHandle

	policies, nodes, pods, replicaSets, statefulSets, controllers *feed

	added  int // by addPods
	answer func() (*v1.Pod, error)
}

// getPod plays the API server, which has the pods as they were delivered last unless the test says otherwise.
func (w *world) getPod(_ context.Context, namespace, name string) (*v1.Pod, error) {
	if w.answer != nil {
		return w.answer()
	}
	pod, ok, err := w.pods.GetIndexer().GetByKey(namespace + "/" + name)
	if !ok {
		return nil, apierrors.NewNotFound(v1.Resource("pods"), name)
	}
	return pod.(*v1.Pod), err
}

func newWorld(t testing.TB) *world {
	w := newUnsyncedWorld(t)
	w.sync()
	return w
}

// newUnsyncedWorld returns a world whose informers have not delivered everything yet.
func newUnsyncedWorld(t testing.TB) *world { return newUnsyncedWorldOn(t, policystore.New()) }

// newUnsyncedWorldOn returns a world whose plugin feeds the given store.
func newUnsyncedWorldOn(t testing.TB, store *policystore.Store) *world {
	w := &world{
		t:            t,
		ctx:          t.Context(),
		policies:     newFeed(&unstructured.Unstructured{}),
		nodes:        newFeed(&v1.Node{}),
		pods:         newFeed(&v1.Pod{}),
		replicaSets:  newFeed(&appsv1.ReplicaSet{}),
		statefulSets: newFeed(&appsv1.StatefulSet{}),
		controllers:  newFeed(&v1.ReplicationController{}),
	}
	factory := informers.NewSharedInformerFactory(nil, 0)
	for _, f := range []*feed{w.nodes, w.pods, w.replicaSets, w.statefulSets, w.controllers} {
		factory.InformerFor(f.kind, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer { return f })
	}
	w.handle = newFakeHandle(factory, nil)
	w.handle.snapshot = liveSnapshot{nodes: w.nodes}
	s, err := newShared(w.ctx, w.handle, w.policies, nil, store, w.getPod)
	require.NoError(t, err)
	w.Plugin = newPlugin(s, w.handle)
	go s.waiting.Run(w.ctx)
	go s.confirmer.Run(w.ctx)

	for _, name := range []string{"m1", "m2"} {
		w.nodes.set(spotNode(name))
	}
	for _, name := range []string{"o1", "o2"} {
		w.nodes.set(onDemandNode(name))
	}
	return w
}

// sync tells the plugin that all informers have delivered what was there at the start.
func (w *world) sync() {
	for _, f := range []*feed{w.policies, w.nodes, w.pods, w.replicaSets, w.statefulSets, w.controllers} {
		f.sync()
	}
}

// setPolicy delivers a policy of namespace default.
func (w *world) setPolicy(name, spec string) *unstructured.Unstructured {
	policy := policyObject(w.t, name, spec)
	if old, ok, _ := w.policies.GetIndexer().Get(policy); ok {
		policy.SetGeneration(old.(*unstructured.Unstructured).GetGeneration() + 1)
	}
	w.policies.set(policy)
	return policy
}

func (w *world) removePolicy(name string) {
	w.policies.remove(policyObject(w.t, name, `{}`))
}

// addPods delivers n pending pods of the ReplicaSet rs, and returns them. The first one's name is web-0.
func (w *world) addPods(n int) []*v1.Pod {
	pods := make([]*v1.Pod, n)
	for i := range pods {
		pods[i] = ownedBy(webPod(fmt.Sprintf("web-%d", w.added)), "rs").Obj()
		w.pods.set(pods[i])
		w.added++
	}
	return pods
}

// addPodsOn is like addPods, but the pods run on the node.
func (w *world) addPodsOn(node string, n int) []*v1.Pod {
	pods := w.addPods(n)
	for i := range pods {
		pods[i] = w.bind(pods[i], node)
	}
	return pods
}

// get returns the pod as it was delivered last.
func (w *world) get(name string) *v1.Pod {
	pod, ok, err := w.pods.GetIndexer().GetByKey("default/" + name)
	require.NoError(w.t, err)
	require.True(w.t, ok, "pod %s", name)
	return pod.(*v1.Pod)
}

// bind delivers the pod as bound to the node.
func (w *world) bind(pod *v1.Pod, node string) *v1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.NodeName = node
	w.pods.set(pod)
	return pod
}

// preFilter begins a scheduling cycle for the pod.
func (w *world) preFilter(pod *v1.Pod) (fwk.CycleState, *fwk.Status) {
	state := framework.NewCycleState()
	_, status := w.PreFilter(w.ctx, state, pod, nil)
	if status.IsSkip() {
		state.SetSkipFilterPlugins(sets.New(Name)) // as the framework does
	}
	return state, status
}

// filter returns what Filter says of the nodes in a new scheduling cycle for the pod.
func (w *world) filter(pod *v1.Pod, nodes ...string) []*fwk.Status {
	state, status := w.preFilter(pod)
	require.True(w.t, status.IsSuccess(), "PreFilter: %v", status)
	var statuses []*fwk.Status
	for _, node := range nodes {
		statuses = append(statuses, w.Filter(w.ctx, state, pod, w.nodeInfo(node)))
	}
	return statuses
}

// filteredFor begins a scheduling cycle in which the pod may go to the node.
func (w *world) filteredFor(pod *v1.Pod, node string) fwk.CycleState {
	state, status := w.preFilter(pod)
	if !status.IsSkip() {
		require.True(w.t, w.Filter(w.ctx, state, pod, w.nodeInfo(node)).IsSuccess())
	}
	return state
}

// reserve passes the pod through the scheduling cycle onto the node.
func (w *world) reserve(pod *v1.Pod, node string) fwk.CycleState {
	state := w.filteredFor(pod, node)
	require.True(w.t, w.Reserve(w.ctx, state, pod, node).IsSuccess())
	return state
}

func (w *world) nodeInfo(name string) fwk.NodeInfo {
	info, err := liveSnapshot{nodes: w.nodes}.Get(name)
	require.NoError(w.t, err)
	return info
}

// counts returns the managed and the qualifying pods of the policy web-on-spot, over all cohorts.
func (w *world) counts() (managed, other, qualifying int) {
	info, ok := w.store.Policy(webOnSpot)
	require.True(w.t, ok)
	for _, c := range info.Cohorts {
		managed, other, qualifying = managed+c.Managed, other+c.Other, qualifying+c.Qualifying
	}
	return managed, other, qualifying
}

func spotNode(name string) *v1.Node     { return st.MakeNode().Name(name).Label("spot", "true").Obj() }
func onDemandNode(name string) *v1.Node { return st.MakeNode().Name(name).Label("spot", "false").Obj() }

// webPod is a pod that the policies of this file select.
func webPod(name string) *st.PodWrapper {
	return st.MakePod().Namespace("default").Name(name).UID(name).Label("app", "web").SchedulerName("default-scheduler")
}

// ownedBy makes the workload with the UID the pod's controller.
func ownedBy(pod *st.PodWrapper, uid types.UID) *st.PodWrapper {
	pod.OwnerReferences = []metav1.OwnerReference{{UID: uid, Controller: ptr.To(true)}}
	return pod
}

// replicaSet is one that a Deployment of the given size controls.
func replicaSet(uid types.UID, desired int) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: string(uid), UID: uid,
		Annotations:     map[string]string{"deployment.kubernetes.io/desired-replicas": fmt.Sprint(desired)},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", UID: "deployment", Controller: ptr.To(true)}},
	}}
}

func podInfo(t testing.TB, pod *v1.Pod) fwk.PodInfo {
	info, err := framework.NewPodInfo(pod)
	require.NoError(t, err)
	return info
}

// policyObject returns a placement policy of namespace default as the API server sends it. The spec is YAML.
func policyObject(t testing.TB, name, spec string) *unstructured.Unstructured {
	policy := &unstructured.Unstructured{Object: map[string]any{}}
	var fields any
	require.NoError(t, yaml.Unmarshal([]byte(spec), &fields))
	policy.Object["spec"] = fields
	policy.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("PlacementPolicy"))
	policy.SetNamespace("default")
	policy.SetName(name)
	policy.SetUID(types.UID(name))
	policy.SetGeneration(1)
	return policy
}

// feed is an informer whose events the test delivers, each at once.
type feed struct {
	cache.SharedIndexInformer // never run
	kind                      runtime.Object
	handler                   cache.ResourceEventHandler
	synced                    atomic.Bool
}

func newFeed(kind runtime.Object) *feed {
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	return &feed{SharedIndexInformer: cache.NewSharedIndexInformer(nil, kind, 0, indexers), kind: kind}
}

// AddEventHandler makes f the registration of its handler, too.
func (f *feed) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	f.handler = handler
	return f, nil
}

func (f *feed) HasSynced() bool { return f.synced.Load() }
func (f *feed) sync()           { f.synced.Store(true) }

// set delivers that the object was added or, if there is one of the same name, updated.
func (f *feed) set(obj metav1.Object) {
	old, exists, _ := f.GetIndexer().Get(obj)
	if exists {
		_ = f.GetIndexer().Update(obj)
		f.handler.OnUpdate(old, obj)
	} else {
		_ = f.GetIndexer().Add(obj)
		f.handler.OnAdd(obj, false)
	}
}

// remove delivers that the object was deleted.
func (f *feed) remove(obj metav1.Object) {
	_ = f.GetIndexer().Delete(obj)
	f.handler.OnDelete(obj)
}

// lose delivers, in place of a delete event that was missed, what a relist finds missing.
func (f *feed) lose(obj metav1.Object) {
	_ = f.GetIndexer().Delete(obj)
	f.handler.OnDelete(cache.DeletedFinalStateUnknown{Key: cache.MetaObjectToName(obj).String(), Obj: obj})
}

// loseAll is lose for an object whose last state is lost, too.
func (f *feed) loseAll(obj metav1.Object) {
	_ = f.GetIndexer().Delete(obj)
	f.handler.OnDelete(cache.DeletedFinalStateUnknown{Key: cache.MetaObjectToName(obj).String()})
}

// fakeHandle is what the plugin uses of a scheduler. Anything else panics.
type fakeHandle struct {
	fwk.Handle
	factory  informers.SharedInformerFactory
	config   *rest.Config
	recorder fakeRecorder
	snapshot fwk.SharedLister

	mu          sync.Mutex
	activations map[string]int // how often, by the pod's name
	waiting     map[types.UID]*waitingInPermit
}

func newFakeHandle(factory informers.SharedInformerFactory, config *rest.Config) *fakeHandle {
	h := &fakeHandle{factory: factory, config: config, activations: map[string]int{}, waiting: map[types.UID]*waitingInPermit{}}
	h.Handle = framework.NewHandle(&h.recorder)
	return h
}

func (h *fakeHandle) SharedInformerFactory() informers.SharedInformerFactory { return h.factory }
func (h *fakeHandle) KubeConfig() *rest.Config                               { return h.config }
func (h *fakeHandle) SnapshotSharedLister() fwk.SharedLister                 { return h.snapshot }
func (h *fakeHandle) ProfileName() string                                    { return "default-scheduler" }

func (h *fakeHandle) Activate(_ klog.Logger, pods map[string]*v1.Pod) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, pod := range pods {
		h.activations[pod.Name]++
	}
}

func (h *fakeHandle) GetWaitingPod(uid types.UID) fwk.WaitingPod {
	h.mu.Lock()
	defer h.mu.Unlock()
	if waiting := h.waiting[uid]; waiting != nil {
		return waiting
	}
	return nil
}

// waitingInPermit is a pod that waits for the Permit plugins.
type waitingInPermit struct {
	fwk.WaitingPod
	plugins []string
}

func (w *waitingInPermit) GetPendingPlugins() []string { return w.plugins }

// liveSnapshot is a scheduler's snapshot that never lags behind.
type liveSnapshot struct {
	fwk.SharedLister
	fwk.NodeInfoLister
	nodes *feed
}

func (s liveSnapshot) NodeInfos() fwk.NodeInfoLister { return s }

func (s liveSnapshot) Get(name string) (fwk.NodeInfo, error) {
	node, ok, err := s.nodes.GetIndexer().GetByKey(name)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("no node %s", name)
	}
	info := framework.NewNodeInfo()
	info.SetNode(node.(*v1.Node))
	return info, nil
}

// activated returns how often each pod was activated since the last call.
func (h *fakeHandle) activated() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	activations := maps.Clone(h.activations)
	clear(h.activations)
	return activations
}

// fakeRecorder keeps events.
type fakeRecorder struct {
	events.EventRecorderLogger
	mu     sync.Mutex
	events []string
}

func (r *fakeRecorder) Eventf(regarding, _ runtime.Object, eventtype, reason, action, note string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	object := regarding.(metav1.Object)
	r.events = append(r.events, fmt.Sprintf("%s/%s %s %s %s: %s", object.GetNamespace(), object.GetName(), eventtype, reason, action, fmt.Sprintf(note, args...)))
}

// recorded returns the events since the last call.
func (r *fakeRecorder) recorded() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	recorded := r.events
	r.events = nil
	return recorded
}
