package report

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

const (
	selectors = `podSelector: {matchLabels: {app: web}}, nodeSelector: {matchLabels: {spot: "true"}}`
	strict40  = `{enforcementMode: Strict, ` + selectors + `, policy: {targetSize: 40%}}`
	heavier   = `{weight: 9, ` + selectors + `, policy: {targetSize: 40%}}`
	invalid   = `{` + selectors + `, policy: {targetSize: 140%}}`
	wrongType = `{` + selectors + `, weight: heavy}`
)

var webOnSpot = types.NamespacedName{Namespace: "default", Name: "web-on-spot"}

// world is a reporter in front of an API server and a store that the test plays. There are the nodes m, which is in
// the target group, and o.
type world struct {
	*Reporter
	t        testing.TB
	cache    cache.Store
	recorder recorder
	synced   atomic.Bool
	waiting  atomic.Bool
	pods     int // by addPods

	mu      sync.Mutex // guards the rest
	refusal error      // what the API server answers
	tried   int        // requests
	lags    bool       // the informer does
	// meanwhile is called during each request.
	meanwhile func()
	applied   []applied
}

// applied is a request that the API server has granted.
type applied struct {
	policy, manager string
	object          *unstructured.Unstructured
	v1alpha1.PlacementPolicyStatus
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, cache: cache.NewStore(cache.MetaNamespaceKeyFunc)}
	w.synced.Store(true)
	w.Reporter = New(Options{
		Store:    policystore.New(),
		Policies: w.cache,
		Synced:   w.synced.Load,
		Client:   client{world: w},
		Recorder: &w.recorder,
		Waiting:  func(types.NamespacedName) bool { return w.waiting.Load() },
	})
	w.Store.AddNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m", Labels: map[string]string{"spot": "true"}}})
	w.Store.AddNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "o"}})
	return w
}

// running returns a world whose reporter runs until the test, which is a synctest bubble, has ended.
func running(t *testing.T) *world {
	w := newWorld(t)
	go w.Run(t.Context())
	synctest.Wait()
	return w
}

// setPolicy has the API server and the store show a policy of namespace default.
func (w *world) setPolicy(name, spec string) {
	policy := &unstructured.Unstructured{Object: map[string]any{}}
	var fields any
	require.NoError(w.t, yaml.Unmarshal([]byte(spec), &fields))
	policy.Object["spec"] = fields
	policy.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("PlacementPolicy"))
	policy.SetNamespace("default")
	policy.SetName(name)
	policy.SetUID(types.UID("uid-of-" + name))
	policy.SetGeneration(1)
	policy.SetResourceVersion(rand.Text())
	if old, ok, _ := w.cache.Get(policy); ok {
		old := old.(*unstructured.Unstructured)
		policy.SetGeneration(old.GetGeneration() + 1)
		policy.Object["status"] = old.Object["status"]
	}
	require.NoError(w.t, w.cache.Add(policy))
	p, err := v1alpha1.FromUnstructured(policy)
	if err == nil {
		compiled, invalid := p.ToPolicy()
		if err = invalid; err == nil {
			err = w.Store.SetPolicy(compiled)
		}
	}
	if err != nil {
		w.Store.RejectPolicy(types.NamespacedName{Namespace: "default", Name: name}, err)
	}
}

func (w *world) removePolicy(name string) {
	key := types.NamespacedName{Namespace: "default", Name: name}
	obj, _, _ := w.cache.GetByKey(key.String())
	require.NoError(w.t, w.cache.Delete(obj))
	w.Store.RemovePolicy(key)
}

// addPods has the store show n pods of application web on the node, or pending ones if that is empty.
func (w *world) addPods(n int, node string, labels ...string) []*v1.Pod {
	pods := make([]*v1.Pod, n)
	for i := range pods {
		name := fmt.Sprint("web-", w.pods)
		w.pods++
		pods[i] = &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "web"},
				OwnerReferences: []metav1.OwnerReference{{UID: "rs", Controller: ptr.To(true)}},
			},
			Spec: v1.PodSpec{NodeName: node},
		}
		for _, revision := range labels {
			pods[i].Labels["pod-template-hash"] = revision
		}
		w.Store.AddPod(pods[i])
	}
	return pods
}

// pass lets d pass, and returns what was written in it.
func (w *world) pass(d time.Duration) []applied {
	time.Sleep(d)
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	written := w.applied
	w.applied = nil
	return written
}

// refuse has the API server answer with the error to what follows, and returns how many requests it had since the
// last call.
func (w *world) refuse(err error) (tried int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	tried, w.tried, w.refusal = w.tried, 0, err
	return tried
}

// status returns the status that the API server has.
func (w *world) status(name string) v1alpha1.PlacementPolicyStatus {
	obj, ok, err := w.cache.GetByKey("default/" + name)
	require.NoError(w.t, err)
	require.True(w.t, ok)
	return statusIn(obj.(*unstructured.Unstructured))
}

// client plays the API server.
type client struct {
	dynamic.Interface
	dynamic.NamespaceableResourceInterface
	world *world
}

func (c client) Resource(schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return resource{world: c.world}
}

type resource struct {
	dynamic.NamespaceableResourceInterface
	world *world
}

func (r resource) Namespace(string) dynamic.ResourceInterface { return r }

// ApplyStatus merges the status as far as the tests need it: conditions by their type, anything else as it is.
func (r resource) ApplyStatus(ctx context.Context, name string, obj *unstructured.Unstructured,
	options metav1.ApplyOptions) (*unstructured.Unstructured, error) {
	w := r.world
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tried++
	if w.meanwhile != nil {
		w.meanwhile()
	}
	if w.refusal != nil {
		return nil, w.refusal
	}
	if _, ok := ctx.Deadline(); !ok {
		return nil, fmt.Errorf("no time limit")
	}
	if !options.Force {
		return nil, fmt.Errorf("not forced")
	}
	stored, ok, err := w.cache.GetByKey("default/" + name)
	if !ok {
		return nil, fmt.Errorf("no policy %s: %w", name, err)
	}
	policy := stored.(*unstructured.Unstructured).DeepCopy()
	policy.SetResourceVersion(rand.Text())
	status, _ := policy.Object["status"].(map[string]any)
	merged := maps.Clone(status)
	if merged == nil {
		merged = map[string]any{}
	}
	update := obj.DeepCopy().Object["status"].(map[string]any)
	maps.Copy(merged, update)
	before, _ := status["conditions"].([]any)
	conditions, _ := update["conditions"].([]any)
	for _, old := range before {
		if !slices.ContainsFunc(conditions, func(c any) bool {
			return c.(map[string]any)["type"] == old.(map[string]any)["type"]
		}) {
			conditions = append(conditions, old)
		}
	}
	merged["conditions"] = conditions
	policy.Object["status"] = merged
	w.applied = append(w.applied, applied{name, options.FieldManager, obj, statusIn(obj)})
	if w.lags {
		return policy, nil
	}
	return policy, w.cache.Update(policy)
}

// recorder keeps events.
type recorder struct {
	mu     sync.Mutex
	events []string
}

func (r *recorder) Eventf(regarding, _ runtime.Object, kind, reason, action, note string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	object := regarding.(metav1.Object)
	r.events = append(r.events, fmt.Sprintf("%s/%s %s %s %s: %s",
		object.GetNamespace(), object.GetName(), kind, reason, action, fmt.Sprintf(note, args...)))
}

// recorded returns the events since the last call.
func (r *recorder) recorded() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	recorded := r.events
	r.events = nil
	return recorded
}
