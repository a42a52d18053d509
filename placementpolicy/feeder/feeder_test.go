package feeder

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

const (
	selectors = `podSelector: {matchLabels: {app: web}}, nodeSelector: {matchLabels: {spot: "true"}}`
	strict40  = `{enforcementMode: Strict, ` + selectors + `, policy: {targetSize: 40%}}`
	strict80  = `{enforcementMode: Strict, ` + selectors + `, policy: {targetSize: 80%}}`
	invalid   = `{enforcementMode: Strict, ` + selectors + `, weight: 9, policy: {targetSize: 140%}}`
	wrongType = `{enforcementMode: Strict, ` + selectors + `, weight: heavy}`
)

var webOnSpot = types.NamespacedName{Namespace: "default", Name: "web-on-spot"}

// world is a feeder whose informers the test plays. There are the nodes m, which is in the target group, and o.
type world struct {
	*Feeder
	t                                                             *testing.T
	policies, nodes, pods, replicaSets, statefulSets, controllers *feed
}

func newWorld(t *testing.T, hooks Hooks) *world {
	w := &world{
		t:            t,
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
	var err error
	w.Feeder, err = New(t.Context(), policystore.New(), factory, w.policies, hooks)
	require.NoError(t, err)
	w.nodes.set(node("m", "true"))
	w.nodes.set(node("o", "false"))
	return w
}

// count returns the numbers of the only cohort of the policy web-on-spot; zeros if it has none.
func (w *world) count() policystore.Cohort {
	info, ok := w.store.Policy(webOnSpot)
	require.True(w.t, ok)
	require.LessOrEqual(w.t, len(info.Cohorts), 1)
	if len(info.Cohorts) == 0 {
		return policystore.Cohort{}
	}
	return info.Cohorts[0]
}

// feed is an informer whose events the test delivers, each at once. It is the registration of its handler, too.
type feed struct {
	cache.SharedIndexInformer // never run
	kind                      runtime.Object
	handler                   cache.ResourceEventHandler
	synced                    atomic.Bool
	onError                   cache.WatchErrorHandlerWithContext
}

func newFeed(kind runtime.Object) *feed {
	return &feed{SharedIndexInformer: cache.NewSharedIndexInformer(nil, kind, 0, nil), kind: kind}
}

func (f *feed) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	f.handler = h
	return f, nil
}

func (f *feed) SetWatchErrorHandlerWithContext(h cache.WatchErrorHandlerWithContext) error {
	f.onError = h
	return nil
}

func (f *feed) HasSynced() bool { return f.synced.Load() }

// set delivers that the object was added or, if there is one of the same name, updated.
func (f *feed) set(obj metav1.Object) {
	old, exists, _ := f.GetStore().Get(obj)
	if exists {
		_ = f.GetStore().Update(obj)
		f.handler.OnUpdate(old, obj)
	} else {
		_ = f.GetStore().Add(obj)
		f.handler.OnAdd(obj, false)
	}
}

func node(name, spot string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"spot": spot}}}
}

// pod is one that the policies select and that the ReplicaSet rs controls.
func pod(uid types.UID, node string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web", UID: uid, Labels: map[string]string{"app": "web"},
			OwnerReferences: []metav1.OwnerReference{{UID: "rs", Controller: ptr.To(true)}},
		},
		Spec: v1.PodSpec{NodeName: node},
	}
}

func replicaSet(uid types.UID, replicas int32) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: uid},
		Spec:       appsv1.ReplicaSetSpec{Replicas: &replicas},
	}
}

// policy returns a policy of namespace default, as an API server sends it. The spec is YAML.
func policy(t *testing.T, name string, generation int64, spec string) *unstructured.Unstructured {
	policy := &unstructured.Unstructured{Object: map[string]any{}}
	var fields any
	require.NoError(t, yaml.Unmarshal([]byte(spec), &fields))
	policy.Object["spec"] = fields
	policy.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("PlacementPolicy"))
	policy.SetNamespace("default")
	policy.SetName(name)
	policy.SetUID(types.UID(name))
	policy.SetGeneration(generation)
	return policy
}

func TestAPolicyThatIsWrongHarmsOnlyItself(t *testing.T) {
	for name, spec := range map[string]string{"invalid": invalid, "wrong type": wrongType} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Hooks{})
			wrong := types.NamespacedName{Namespace: "default", Name: "wrong"}
			w.policies.set(policy(t, "web-on-spot", 1, strict40))
			w.policies.set(policy(t, "wrong", 1, spec))

			decision, _ := w.store.Decide(pod("p", ""))
			assert.Equal(t, webOnSpot, decision.Policy)
			info, ok := w.store.Policy(wrong)
			assert.True(t, ok)
			assert.Error(t, info.Err)

			w.policies.set(policy(t, "wrong", 2, `{`+selectors+`, weight: 9}`))
			decision, _ = w.store.Decide(pod("p", ""))
			assert.Equal(t, wrong, decision.Policy, "after it was mended")

			w.policies.set(policy(t, "wrong", 3, spec))
			decision, _ = w.store.Decide(pod("p", ""))
			assert.Equal(t, webOnSpot, decision.Policy, "after it became wrong again")
		})
	}
}

func TestDeletes(t *testing.T) {
	for name, deleted := range map[string]func(obj metav1.Object) any{
		"event": func(obj metav1.Object) any { return obj },
		"tombstone": func(obj metav1.Object) any {
			return cache.DeletedFinalStateUnknown{Key: cache.MetaObjectToName(obj).String(), Obj: obj}
		},
		"tombstone without the object": func(obj metav1.Object) any {
			return cache.DeletedFinalStateUnknown{Key: cache.MetaObjectToName(obj).String()}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var w *world
			var told []string
			hook := func(old, pod *v1.Pod) {
				if pod == nil {
					told = append(
						told,
						fmt.Sprintf("%s/%s is gone, %d pods are left", old.Namespace, old.Name, w.count().Qualifying),
					)
				}
			}
			w = newWorld(t, Hooks{BeforePod: hook, AfterPod: hook})
			p, another := pod("p", "m"), pod("another", "m")
			another.Name = "another"
			w.policies.set(policy(t, "web-on-spot", 1, strict40))
			w.pods.set(p)
			w.pods.set(another)
			require.Equal(t, 2, w.count().Managed)

			w.pods.handler.OnDelete(deleted(p))
			assert.Equal(t, 1, w.count().Qualifying)
			assert.Equal(
				t,
				[]string{"default/web is gone, 2 pods are left", "default/web is gone, 1 pods are left"},
				told,
			)
			w.nodes.handler.OnDelete(deleted(node("m", "true")))
			assert.Zero(t, w.count().Managed)
			w.policies.handler.OnDelete(deleted(policy(t, "web-on-spot", 1, strict40)))
			assert.Empty(t, w.store.Policies())
		})
	}
}

// A delete and an add of the same name may be merged to one update.
func TestReplacedObjects(t *testing.T) {
	var told []string
	w := newWorld(t, Hooks{AfterPod: func(old, pod *v1.Pod) {
		for _, p := range []*v1.Pod{old, pod} {
			if p != nil {
				told = append(told, string(p.UID))
			}
		}
	}})
	w.policies.set(policy(t, "web-on-spot", 1, strict40))
	w.replicaSets.set(replicaSet("rs", 20))
	w.pods.set(pod("p", "m"))
	require.Equal(t, 20, w.count().Size)

	told = nil
	w.pods.set(pod("another", ""))
	assert.Equal(t, []string{"p", "another"}, told, "one is gone, another is there")
	assert.Zero(t, w.count().Managed)
	assert.Equal(t, 1, w.count().Qualifying)

	w.replicaSets.set(replicaSet("another", 30))
	assert.Equal(t, 1, w.count().Size, "the one that controls the pod is gone")

	replaced := policy(t, "web-on-spot", 1, strict80) // of the same generation
	replaced.SetUID("another")
	w.policies.set(replaced)
	info, _ := w.store.Policy(webOnSpot)
	assert.Equal(t, "80%", info.Policy.TargetSize.String())
}

// Nothing panics in a goroutine of the informer's.
func TestWhatIsNoObjectOfTheTypeIsIgnored(t *testing.T) {
	w := newWorld(t, Hooks{})
	w.policies.set(policy(t, "web-on-spot", 1, strict40))
	w.pods.set(pod("p", "m"))
	for _, handler := range []cache.ResourceEventHandler{w.pods.handler, w.policies.handler, w.nodes.handler} {
		for _, obj := range []any{nil, &v1.Secret{}} {
			handler.OnAdd(obj, true)
			handler.OnUpdate(obj, obj)
			handler.OnDelete(obj)
		}
	}
	assert.Equal(t, 1, w.count().Managed)
}

func TestWorkloads(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "rs"}
	ofDeployment := meta
	deployment := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Controller: ptr.To(true)}
	ofDeployment.OwnerReferences = []metav1.OwnerReference{deployment}
	ofDeployment.Annotations = map[string]string{"deployment.kubernetes.io/desired-replicas": "12"}
	three, negative := ptr.To(int32(3)), ptr.To(int32(-3))
	tests := []struct {
		name string
		feed func(*world) *feed
		obj  metav1.Object
		want int
	}{
		{"ReplicaSet", func(w *world) *feed { return w.replicaSets },
			&appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Replicas: three}}, 3},
		{"ReplicaSet of a Deployment, in a rollout", func(w *world) *feed { return w.replicaSets },
			&appsv1.ReplicaSet{ObjectMeta: ofDeployment, Spec: appsv1.ReplicaSetSpec{Replicas: three}}, 12},
		{"StatefulSet", func(w *world) *feed { return w.statefulSets },
			&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: three}}, 3},
		{"ReplicationController", func(w *world) *feed { return w.controllers },
			&v1.ReplicationController{ObjectMeta: meta, Spec: v1.ReplicationControllerSpec{Replicas: three}}, 3},
		{"ReplicaSet of no size", func(w *world) *feed { return w.replicaSets },
			&appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Replicas: negative}}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, Hooks{})
			w.policies.set(policy(t, "web-on-spot", 1, strict40))
			w.pods.set(pod("p", "m"))
			tt.feed(w).set(tt.obj)
			assert.Equal(t, tt.want, w.count().Size)
			assert.Empty(t, w.store.Compare(w.Cluster()))

			tt.feed(w).handler.OnDelete(tt.obj)
			assert.Equal(t, 1, w.count().Size)
		})
	}
}

func TestWaitForSyncWaitsForAllKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Hooks{})
		waited := make(chan error)
		go func() { waited <- w.WaitForSync(t.Context()) }()
		for _, f := range []*feed{w.policies, w.nodes, w.pods, w.replicaSets, w.statefulSets, w.controllers} {
			time.Sleep(time.Second)
			assert.Empty(t, waited)
			assert.False(t, w.Synced())
			f.synced.Store(true)
		}
		assert.NoError(t, <-waited)
		assert.True(t, w.Synced())
	})
}

func TestWaitForSyncSaysForHowLongAndWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Hooks{})
		for _, f := range []*feed{w.nodes, w.replicaSets, w.statefulSets, w.controllers} {
			f.synced.Store(true)
		}
		w.policies.onError(t.Context(), cache.NewReflector(nil, nil, nil, 0), io.ErrUnexpectedEOF)
		time.Sleep(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := w.WaitForSync(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, "waiting for placement policies, pods to be loaded, for 1m10s by now (unexpected EOF): "+
			"context deadline exceeded", err.Error())
	})
}

func TestHooksAreToldAfterTheStore(t *testing.T) {
	var w *world
	var told []string
	w = newWorld(t, Hooks{
		AfterNode: func(node *v1.Node) { told = append(told, node.Name) },
		AfterPolicy: func(key types.NamespacedName) {
			info, _ := w.store.Policy(key)
			told = append(told, fmt.Sprint(key.Name, " ", info.Policy.TargetSize))
		},
	})
	assert.Equal(t, []string{"m", "o"}, told)
	told = nil
	w.policies.set(policy(t, "web-on-spot", 1, strict40))
	w.policies.set(policy(t, "web-on-spot", 1, strict40)) // of the status, say
	w.policies.set(policy(t, "web-on-spot", 2, strict80))
	w.policies.handler.OnDelete(policy(t, "web-on-spot", 2, strict80))
	assert.Equal(t, []string{"web-on-spot 40%", "web-on-spot 80%", "web-on-spot <nil>"}, told)
}

func TestPoliciesAreKeptWithoutManagedFields(t *testing.T) {
	stored := policy(t, "web-on-spot", 1, strict40)
	stored.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kubectl", FieldsType: "FieldsV1"}})
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{v1alpha1.Resource(): "PlacementPolicyList"}, stored)
	informer := NewPolicyInformer(client)
	go informer.RunWithContext(t.Context())
	require.True(t, cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced))
	obj, ok, err := informer.GetStore().GetByKey(webOnSpot.String())
	require.NoError(t, err)
	require.True(t, ok)
	assert.Empty(t, obj.(*unstructured.Unstructured).GetManagedFields())
	assert.Contains(t, obj.(*unstructured.Unstructured).Object, "spec")
}
