package waiting

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

// TestNoPodWaitsThatMayGo passes random events to a scheduler that tries pods only when they are new, when the line
// says so, and when a node changes. At rest no pod may be left that the store lets onto a node with room.
func TestNoPodWaitsThatMayGo(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScheduler(t, rand.New(rand.NewPCG(seed, 0)))
				for range 15 {
					for range 1 + s.rand.IntN(6) {
						s.randomEvent()
						time.Sleep(time.Duration(s.rand.IntN(60)) * time.Millisecond)
					}
					s.requireNoneForgotten()
				}
			})
		})
	}
}

// scheduler is a scheduler with its informers, whose events and cycles come one after another.
type scheduler struct {
	*Line
	t      *testing.T
	rand   *rand.Rand
	store  *policystore.Store
	lister cache.Indexer

	room    map[string]int // of the nodes that there are
	pods    map[types.UID]*v1.Pod
	queue   chan *v1.Pod
	created int
}

func newScheduler(t *testing.T, random *rand.Rand) *scheduler {
	s := &scheduler{
		t: t, rand: random, store: policystore.New(),
		lister: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
		room:   map[string]int{}, pods: map[types.UID]*v1.Pod{}, queue: make(chan *v1.Pod, 10_000),
	}
	calls := 0 // which come one after another
	try := func(_ context.Context, pods ...*v1.Pod) {
		for _, pod := range pods {
			if calls++; calls%3 != 0 { // else the scheduler holds the pod back
				s.queue <- pod
			}
		}
	}
	s.Line = New(s.store, corelisters.NewPodLister(s.lister), clock.RealClock{}, try, nil)
	s.store.Subscribe(s.PolicyChanged)
	for _, name := range []string{"m1", "m2", "o1", "o2"} {
		s.setNode(name, string(name[0]))
		s.room[name] = 2
	}
	go s.Run(t.Context())
	return s
}

func (s *scheduler) setNode(name, pool string) {
	s.store.AddNode(node(name, pool))
}

// cycles schedules what is in the queue.
func (s *scheduler) cycles() {
	for {
		select {
		case pod := <-s.queue:
			if now := s.pods[pod.UID]; now != nil && now.Spec.NodeName == "" {
				s.cycle(now)
			}
		default:
			return
		}
	}
}

// cycle tries the pod on all nodes that have room for it.
func (s *scheduler) cycle(pod *v1.Pod) {
	s.Tried(pod)
	decision, _ := s.store.Decide(pod)
	if s.rand.IntN(5) == 0 { // something happens meanwhile
		s.randomEvent()
	}
	if s.pods[pod.UID] == nil {
		s.Add(Pod{Pod: pod, Decision: decision}) // it was deleted
		return
	}
	for _, name := range slices.Sorted(maps.Keys(s.room)) {
		if !s.fits(pod, name) {
			continue
		}
		if group := decision.GroupOf(s.nodeLabels(name)); !decision.Allows(group) {
			s.Add(Pod{Pod: pod, Decision: decision})
			continue
		}
		var refused *policystore.QuotaError
		if err := s.store.AssumePod(pod, node(name, s.nodeLabels(name)["pool"])); err != nil {
			require.ErrorAs(s.t, err, &refused)
			s.Add(Pod{Pod: pod, Decision: refused.Decision, Refused: true})
			return
		}
		s.Remove(pod)
		s.room[name]--
		pod = pod.DeepCopy()
		pod.Spec.NodeName = name
		s.show(pod)
		return
	}
}

func (s *scheduler) nodeLabels(name string) map[string]string {
	if name[0] == 'm' {
		return map[string]string{"pool": "m"}
	}
	return map[string]string{"pool": "o"}
}

// fits reports what the filters of other plugins say.
func (s *scheduler) fits(pod *v1.Pod, node string) bool {
	pool := pod.Annotations["pool"]
	return s.room[node] > 0 && (pool == "" || pool == node[:1])
}

func (s *scheduler) show(pod *v1.Pod) {
	require.NoError(s.t, s.lister.Add(pod))
	s.pods[pod.UID] = pod
	s.store.AddPod(pod)
	s.Reconsider(pod)
	if pod.Spec.NodeName != "" {
		s.Remove(pod)
	}
}

// pick returns one of the pods, pending or placed, or nil.
func (s *scheduler) pick(placed bool) *v1.Pod {
	var pods []*v1.Pod
	for _, uid := range slices.Sorted(maps.Keys(s.pods)) {
		if pod := s.pods[uid]; (pod.Spec.NodeName != "") == placed {
			pods = append(pods, pod)
		}
	}
	if len(pods) == 0 {
		return nil
	}
	return pods[s.rand.IntN(len(pods))]
}

func oneOf[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

func (s *scheduler) randomEvent() {
	switch s.rand.IntN(10) {
	case 0, 1, 2:
		s.created++
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: fmt.Sprint("pod-", s.created), UID: types.UID(fmt.Sprint("pod-", s.created)),
			Labels:      s.randomLabels(),
			Annotations: map[string]string{"pool": oneOf(s.rand, "", "m", "o")},
		}}
		if s.rand.IntN(4) == 0 { // the scheduler hears of it first
			require.NoError(s.t, s.lister.Add(pod))
			s.pods[pod.UID] = pod
			s.cycle(pod)
			if now := s.pods[pod.UID]; now != nil {
				s.show(now)
			}
			return
		}
		s.show(pod)
		s.queue <- pod
	case 3, 4:
		if pod := s.pick(s.rand.IntN(3) > 0); pod != nil {
			s.delete(pod)
		}
	case 5:
		if pod := s.pick(false); pod != nil {
			pod = pod.DeepCopy()
			pod.Labels = s.randomLabels()
			s.show(pod)
		}
	case 6, 7, 8:
		policy := strict(oneOf(s.rand, "a", "b", "c"), s.rand.Int32N(3), oneOf(s.rand, "0%", "20%", "40%", "70%", "100%", "1", "3"))
		policy.EnforcementMode = oneOf(s.rand, policystore.Strict, policystore.Strict, policystore.Strict, policystore.BestEffort)
		policy.PodSelector.MatchLabels["app"] = oneOf(s.rand, "web", "db")
		policy.NodeSelector.MatchLabels["pool"] = oneOf(s.rand, "m", "o")
		require.NoError(s.t, s.store.SetPolicy(policy))
	case 9:
		key := policyKey(oneOf(s.rand, "a", "b", "c"))
		if s.rand.IntN(2) == 0 {
			s.store.RemovePolicy(key)
		} else if _, there := s.store.Policy(key); there {
			s.store.RejectPolicy(key, fmt.Errorf("it is not a policy"))
		}
	}
}

func (s *scheduler) randomLabels() map[string]string {
	return map[string]string{"app": oneOf(s.rand, "web", "web", "db", "none"), "pod-template-hash": oneOf(s.rand, "1", "2")}
}

// delete delivers that the pod is gone. If it had a node, this has more room: the scheduler then tries the pods that it
// kept out.
func (s *scheduler) delete(pod *v1.Pod) {
	require.NoError(s.t, s.lister.Delete(pod))
	delete(s.pods, pod.UID)
	s.Remove(pod)
	s.store.RemovePod(pod.UID)
	if name := pod.Spec.NodeName; name != "" {
		s.room[name]++
		for _, uid := range slices.Sorted(maps.Keys(s.pods)) {
			if other := s.pods[uid]; other.Spec.NodeName == "" && s.room[name] == 1 && s.fits(other, name) {
				s.queue <- other // NodeResourcesFit has rejected it on this node
			}
		}
	}
}

// requireNoneForgotten lets the scheduler come to rest.
func (s *scheduler) requireNoneForgotten() {
	s.t.Helper()
	for range 600 {
		s.cycles()
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
	}
	for uid, pod := range s.pods {
		if pod.Spec.NodeName != "" {
			continue
		}
		decision, governed := s.store.Decide(pod)
		for name := range s.room {
			may := !governed || decision.Allows(decision.GroupOf(s.nodeLabels(name)))
			require.False(s.t, may && s.fits(pod, name), "pod %s waits, although it may go to node %s; policy %s",
				uid, name, decision.Policy)
		}
	}
	for uid := range s.all {
		require.Contains(s.t, s.pods, uid, "of a pod that is gone nothing is kept")
	}
}
