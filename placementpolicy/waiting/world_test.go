package waiting

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

// world is a line, the store that it asks, the node m of the target group and the node o of the other one. The test
// plays the scheduler and the informers. The clock is that of testing/synctest.
type world struct {
	*Line
	t       testing.TB
	store   *policystore.Store
	lister  cache.Indexer
	created int

	mu     sync.Mutex // guards tries
	tries  map[string]int
	begins []string
}

func newWorld(t testing.TB) *world {
	w := &world{
		t:      t,
		store:  policystore.New(),
		lister: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
		tries:  map[string]int{},
	}
	w.Line = New(w.store, corelisters.NewPodLister(w.lister), clock.RealClock{}, func(_ context.Context, pods ...*v1.Pod) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, pod := range pods {
			w.tries[pod.Name]++
		}
	}, func(policy types.NamespacedName) { w.begins = append(w.begins, policy.Name) })
	w.store.Subscribe(w.PolicyChanged)
	w.store.AddNode(node("m", "spot"))
	w.store.AddNode(node("o", "on-demand"))
	go w.Run(t.Context())
	return w
}

func node(name, pool string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": pool}}}
}

// strict is a policy for the pods with app=web, whose target group is the nodes with pool=spot.
func strict(name string, weight int32, size string) policystore.Policy {
	return policystore.Policy{
		NamespacedName:  policyKey(name),
		Weight:          weight,
		EnforcementMode: policystore.Strict,
		PodSelector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		NodeSelector:    &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "spot"}},
		TargetSize:      ptr.To(intstr.Parse(size)),
	}
}

func policyKey(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "default", Name: name}
}

func (w *world) set(policy policystore.Policy) { require.NoError(w.t, w.store.SetPolicy(policy)) }

// addPods adds n pods with app=web. The first one's name is web-0, and each is younger than the ones before.
func (w *world) addPods(n int) []*v1.Pod {
	pods := make([]*v1.Pod, n)
	for i := range pods {
		pods[i] = &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: fmt.Sprint("web-", w.created), UID: types.UID(fmt.Sprint("uid-", w.created)),
			CreationTimestamp: metav1.Unix(int64(w.created), 0),
			Labels:            map[string]string{"app": "web"},
		}}
		w.show(pods[i])
		w.created++
	}
	return pods
}

// show delivers the pod's event.
func (w *world) show(pod *v1.Pod) {
	require.NoError(w.t, w.lister.Add(pod))
	w.store.AddPod(pod)
	if pod.Spec.NodeName != "" {
		w.Remove(pod)
	}
}

// change delivers that the pod has changed.
func (w *world) change(pod *v1.Pod, change func(*v1.Pod)) *v1.Pod {
	pod = pod.DeepCopy()
	change(pod)
	w.show(pod)
	return pod
}

func (w *world) bind(pod *v1.Pod, node string) *v1.Pod {
	return w.change(pod, func(pod *v1.Pod) { pod.Spec.NodeName = node })
}

// addPodsOn adds n pods that run on the node.
func (w *world) addPodsOn(node string, n int) []*v1.Pod {
	pods := w.addPods(n)
	for i := range pods {
		pods[i] = w.bind(pods[i], node)
	}
	return pods
}

// remove delivers that the pod was deleted.
func (w *world) remove(pod *v1.Pod) {
	require.NoError(w.t, w.lister.Delete(pod))
	w.Remove(pod)
	w.store.RemovePod(pod.UID)
}

// keepOut has each pod fail in a scheduling cycle, since no node of an open group has room.
func (w *world) keepOut(pods ...*v1.Pod) {
	for _, pod := range pods {
		w.Tried(pod)
		decision, _ := w.store.Decide(pod)
		w.Add(Pod{Pod: pod, Decision: decision})
	}
}

// keepOutNamed is keepOut for the pods with these names.
func (w *world) keepOutNamed(names map[string]int) {
	for _, name := range slices.Sorted(maps.Keys(names)) {
		pod, ok, err := w.lister.GetByKey("default/" + name)
		require.NoError(w.t, err)
		require.True(w.t, ok)
		w.keepOut(pod.(*v1.Pod))
	}
}

// triedWithin returns how often pods were to be tried within the time.
func (w *world) triedWithin(d time.Duration) map[string]int {
	time.Sleep(d)
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	tries := w.tries
	w.tries = map[string]int{}
	return tries
}

// soon is more than it takes from a change to the first attempt.
const soon = gatherDelay + 2*minBackoff
