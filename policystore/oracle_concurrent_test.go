package policystore

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// TestOracleConcurrent lets several worlds loose on one store. Each has objects of its own, so that it knows what
// became of them; but they select each other's pods and use each other's nodes. At rest the store must be what the
// oracle makes of all that they know together.
func TestOracleConcurrent(t *testing.T) {
	const rounds, worlds, steps = 10, 8, 100
	for range rounds {
		store := New()
		all := newTandem(t, store)
		var ws []*world
		for i := 1; i <= worlds; i++ {
			w := newWorld(newTandem(t, store), func(_ string, n int) int { return rand.IntN(n) })
			w.policyNames = []types.NamespacedName{{Namespace: "a", Name: fmt.Sprint("p", i)}}
			w.nodeNames = []string{fmt.Sprint("n", i)}
			w.podNames = []string{fmt.Sprint("a/", i), fmt.Sprint("a/", i, "-2"), fmt.Sprint("b/", i)}
			w.workloadNames = []string{fmt.Sprint("rs", i)}
			ws = append(ws, w)
		}
		// atRest runs the worlds, with readers beside them, until they have done, and checks what they left.
		atRest := func(run func(*world)) {
			var writers, readers sync.WaitGroup
			var done atomic.Bool
			for range 2 {
				readers.Go(func() {
					for !done.Load() {
						checkNumbers(t, store)
					}
				})
			}
			for _, w := range ws {
				writers.Go(func() { run(w) })
			}
			writers.Wait()
			done.Store(true)
			readers.Wait()

			all.oracle = newOracle()
			for _, w := range ws {
				all.oracle.merge(w.oracle)
			}
			all.check()
		}
		atRest(func(w *world) {
			w.start()
			for range steps {
				w.step()
			}
		})
		atRest((*world).end)
		RequireEmpty(t, store)
	}
}

// merge takes over the facts that another oracle knows.
func (o *oracle) merge(other *oracle) {
	maps.Copy(o.policies, other.policies)
	maps.Copy(o.nodes, other.nodes)
	maps.Copy(o.sizes, other.sizes)
	maps.Copy(o.pods, other.pods)
	maps.Copy(o.unseen, other.unseen)
	maps.Copy(o.reservations, other.reservations)
	maps.Copy(o.assumed, other.assumed)
}

// checkNumbers checks what holds of a store at any moment.
func checkNumbers(t *testing.T, store *Store) {
	for _, key := range store.Policies() {
		info, _ := store.Policy(key)
		for _, c := range info.Cohorts {
			if c.Qualifying == 0 || c.Qualifying > c.Size || sum(c.Placed) > c.Qualifying || sum(c.Quota) != c.Size {
				t.Errorf("policy %s: impossible numbers: %+v", key, c)
			}
			for uid := range c.QualifyingPods.All() {
				d, governed := store.Decide(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, Namespace: key.Namespace}})
				if governed && !d.Allows(d.Preferred) {
					t.Errorf("pod %s is allowed nowhere: %+v", uid, d)
				}
				for _, names := range store.NodesIn(d, Target) {
					if names.Len() == 0 {
						t.Errorf("policy %s: an empty set of nodes", d.Policy)
					}
				}
			}
		}
	}
}

func sum(numbers []int) int {
	sum := 0
	for _, n := range numbers {
		sum += n
	}
	return sum
}

// TestOracleLastPlaces lets all pods of a Strict cohort reach for the target group at once, again and again.
func TestOracleLastPlaces(t *testing.T) {
	const pods, rounds = 10, 200
	for name, tt := range map[string]struct {
		size  intstr.IntOrString
		known bool // the store has seen the pods before
		quota int
	}{
		"pods that are known":   {size: intstr.FromString("40%"), known: true, quota: 4},
		"pods that are unknown": {size: intstr.FromInt32(4), quota: 4},
	} {
		t.Run(name, func(t *testing.T) {
			x := newTandem(t, New())
			policy := Policy{
				NamespacedName:  types.NamespacedName{Namespace: "a", Name: "p"},
				EnforcementMode: Strict,
				PodSelector:     selector(nil),
				NodeSelector:    selector(map[string]string{"pool": "spot"}),
				TargetSize:      &tt.size,
			}
			x.setPolicy(policy)
			spot := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "spot", Labels: map[string]string{"pool": "spot"}}}
			x.addNode(spot)
			var all []*v1.Pod
			for i := range pods {
				pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", UID: types.UID(fmt.Sprint(i))}}
				all = append(all, pod)
				if tt.known {
					x.addPod(pod)
				}
			}
			for range rounds {
				start := make(chan struct{})
				var reserved sync.Map
				var wg sync.WaitGroup
				for _, pod := range all {
					wg.Go(func() {
						<-start
						err := x.store.AssumePod(pod, spot)
						if err == nil {
							reserved.Store(pod, true)
						} else if quota := (*QuotaError)(nil); !errors.As(err, &quota) {
							t.Error(err)
						}
					})
				}
				close(start)
				wg.Wait()
				for pod := range reserved.Range {
					x.oracle.assume(pod.(*v1.Pod), spot)
				}
				x.check()
				if n := len(x.oracle.reservations); n != tt.quota {
					t.Fatalf("%d pods got a place, want %d", n, tt.quota)
				}
				for _, pod := range all {
					wg.Go(func() { x.store.ForgetPod(pod) })
				}
				wg.Wait()
				for _, pod := range all {
					x.oracle.forget(pod)
				}
				x.check()
			}
		})
	}
}
