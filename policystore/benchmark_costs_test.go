package policystore_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/placement-policy/scheduler-plugin/internal/scale"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

// larger returns the small size or, with the flag -large, also the large one.
func larger(small, large int) []int {
	if len(scale.Pods()) > 1 {
		return []int{small, large}
	}
	return []int{small}
}

// selecting returns a policy of the given name.
func selecting(name string, pods *metav1.LabelSelector) policystore.Policy {
	p := must(policystore.Strict, "40%")
	p.Name, p.PodSelector = name, pods
	return p
}

// A node comes and goes, where policies divide the nodes in so many ways.
func BenchmarkNodeEventsWithDivisions(b *testing.B) {
	for _, nodes := range larger(100, 5000) {
		for _, divisions := range larger(1, 100) {
			b.Run(fmt.Sprintf("nodes=%d/divisions=%d", nodes, divisions), func(b *testing.B) {
				s := policystore.New()
				pool := func(i int) map[string]string { return map[string]string{"pool": fmt.Sprint("pool-", i%100)} }
				for i := range nodes {
					s.AddNode(newNode(fmt.Sprint("n", i), pool(i)))
				}
				var asked []policystore.Decision
				for i := range divisions {
					app := map[string]string{"app": fmt.Sprint("app-", i)}
					p := selecting(fmt.Sprint("p", i), &metav1.LabelSelector{MatchLabels: app})
					p.NodeSelector = &metav1.LabelSelector{MatchLabels: pool(i)}
					if err := s.SetPolicy(p); err != nil {
						b.Fatal(err)
					}
					d, _ := s.Decide(newPod("pod", labelled("app", app["app"])))
					asked = append(asked, d)
					s.NodesIn(d, d.Preferred)
				}
				b.Run("event", func(b *testing.B) {
					for i := 0; b.Loop(); i++ {
						node := newNode("new", pool(i))
						s.AddNode(node)
						s.RemoveNode(node.Name)
					}
				})
				b.Run("event and NodesIn", func(b *testing.B) { // of one division
					for i := 0; b.Loop(); i++ {
						node := newNode("new", pool(i))
						s.AddNode(node)
						s.NodesIn(asked[i%len(asked)], other)
						s.RemoveNode(node.Name)
					}
				})
			})
		}
	}
}

// Policies that select every pod of a namespace come, and then pods.
func BenchmarkManyPoliciesSelectAPod(b *testing.B) {
	for _, policies := range larger(100, 10_000) {
		b.Run(fmt.Sprintf("policies=%d", policies), func(b *testing.B) {
			var s *policystore.Store
			load := func() {
				s = policystore.New()
				s.Subscribe(func(types.NamespacedName) {})
				s.AddPod(newPod("first"))
				for i := range policies {
					if err := s.SetPolicy(selecting(fmt.Sprint("p", i), &metav1.LabelSelector{})); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.Run("load", func(b *testing.B) {
				for b.Loop() {
					load()
				}
			})
			load()
			for name, pod := range map[string]*v1.Pod{
				"pod with known labels":      newPod("pod"),
				"pod with labels of its own": newPod("pod", labelled("new", "")),
			} {
				b.Run(name, func(b *testing.B) {
					for b.Loop() {
						s.AddPod(pod)
						s.RemovePod(pod.UID)
					}
				})
			}
		})
	}
}

// What those wait who decide about other pods while something large is done: beside the time that it takes itself, the
// longest Decide meanwhile, as the median of all runs.
func BenchmarkPause(b *testing.B) {
	for _, pods := range larger(1000, 100_000) {
		c := sync.OnceValue(func() *scale.Cluster {
			c := &scale.Cluster{Pods: pods, Policies: 1, StatefulSets: true, Store: policystore.New()}
			c.Load()
			p := selecting("jobs", &metav1.LabelSelector{MatchLabels: map[string]string{"jobs": ""}})
			p.MatchLabelKeys = []string{"job-name"}
			if err := c.Store.SetPolicy(p); err != nil {
				b.Fatal(err)
			}
			for i := range pods {
				c.Store.AddPod(newPod(fmt.Sprint("job-", i), labelled("jobs", ""), labelled("job-name", fmt.Sprint(i))))
			}
			return c
		})
		for _, op := range []struct {
			name string
			do   func(*scale.Cluster)
		}{
			{"nothing", func(*scale.Cluster) { time.Sleep(10 * time.Millisecond) }},
			{"SetPolicy that selects all", func(c *scale.Cluster) {
				c.Store.RemovePolicy(c.Policy(0).NamespacedName)
				_ = c.Store.SetPolicy(c.Policy(0))
			}},
			{"SetPolicy that selects none", func(c *scale.Cluster) {
				p := selecting("none", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "none"}})
				_ = c.Store.SetPolicy(p)
				c.Store.RemovePolicy(p.NamespacedName)
			}},
			{"Policy with a cohort for each pod", func(c *scale.Cluster) {
				c.Store.Policy(types.NamespacedName{Namespace: "default", Name: "jobs"})
			}},
			{"PodsOf", func(c *scale.Cluster) { c.Store.PodsOf(c.Policy(0).NamespacedName) }},
			{"Snapshot", func(c *scale.Cluster) { c.Store.Snapshot() }},
			{"Compare", func(c *scale.Cluster) { c.Store.Compare(policystore.Cluster{}) }},
		} {
			b.Run(fmt.Sprintf("pods=%d/%s", pods, op.name), func(b *testing.B) {
				c := c()
				longestDecide, stop := decideBeside(c.Store)
				defer stop()
				var pauses []time.Duration
				for b.Loop() {
					pauses = append(pauses, longestDecide(func() { op.do(c) }))
				}
				slices.Sort(pauses)
				b.ReportMetric(float64(pauses[len(pauses)/2].Microseconds()), "µs-longest-Decide")
			})
		}
	}
}

// decideBeside decides about a pod of another namespace until stop is called, beside an informer that tells of such
// pods. longestDecide runs the operation and returns the longest decision meanwhile.
func decideBeside(s *policystore.Store) (longestDecide func(op func()) time.Duration, stop func()) {
	var done atomic.Bool
	var decisions, longest atomic.Int64
	var wg sync.WaitGroup
	stranger := newPod("stranger", inNamespace("elsewhere"))
	wg.Go(func() {
		for !done.Load() {
			start := time.Now()
			s.Decide(stranger)
			longest.Store(max(longest.Load(), int64(time.Since(start))))
			decisions.Add(1)
			time.Sleep(20 * time.Microsecond)
		}
	})
	wg.Go(func() {
		for i := 0; !done.Load(); i++ {
			s.AddPod(newPod("late", inNamespace("elsewhere"), labelled("i", fmt.Sprint(i))))
			time.Sleep(time.Millisecond)
		}
		s.RemovePod("late")
	})
	longestDecide = func(op func()) time.Duration {
		longest.Store(0)
		op()
		for n := decisions.Load(); decisions.Load() < n+2; { // the one that is under way counts
			time.Sleep(20 * time.Microsecond)
		}
		return time.Duration(longest.Load())
	}
	return longestDecide, func() { done.Store(true); wg.Wait() }
}

// B/pod, as in BenchmarkMemory, of workloads that are smaller than 100 pods or have more labels; and of ReplicaSets
// that have none, of which a Deployment keeps ten.
func BenchmarkMemoryOfSmallWorkloads(b *testing.B) {
	uid := func(kind string, i int) types.UID { return types.UID(fmt.Sprintf("%s-7e5f-4a39-9c1d-%012d", kind, i)) }
	replicaSet := func(of int) func(*policystore.Store, int) {
		return func(s *policystore.Store, i int) {
			pod := newPod("x", labelled("pod-template-hash", fmt.Sprintf("5d4f8c%06d", i/of)), controlledBy(uid("c0ffee00", i/of)))
			pod.UID, pod.Spec.NodeName = uid("a56cb8d8", i), fmt.Sprint("n", i%1000)
			s.AddPod(pod)
		}
	}
	for _, kind := range []struct {
		name string
		add  func(s *policystore.Store, i int)
	}{
		{"Deployments of 1", replicaSet(1)},
		{"Deployments of 3", replicaSet(3)},
		{"StatefulSets of 3 with the labels of Helm", func(s *policystore.Store, i int) {
			pod := newPod("x", controlledBy(uid("c0ffee00", i/3)))
			pod.UID, pod.Spec.NodeName = uid("a56cb8d8", i), fmt.Sprint("n", i%1000)
			pod.Labels = map[string]string{
				"app":                                "web",
				"app.kubernetes.io/component":        "primary",
				"app.kubernetes.io/instance":         fmt.Sprint("tenant-", i/3),
				"app.kubernetes.io/managed-by":       "Helm",
				"app.kubernetes.io/name":             "postgresql",
				"app.kubernetes.io/version":          "16.2.0",
				"apps.kubernetes.io/pod-index":       fmt.Sprint(i % 3),
				"controller-revision-hash":           fmt.Sprintf("tenant-%d-postgresql-5d4f8c", i/3),
				"helm.sh/chart":                      "postgresql-14.2.3",
				"statefulset.kubernetes.io/pod-name": fmt.Sprintf("tenant-%d-postgresql-%d", i/3, i%3),
			}
			s.AddPod(pod)
		}},
		{"ReplicaSets without pods", func(s *policystore.Store, i int) { s.SetWorkloadSize(uid("c0ffee00", i), 0) }},
	} {
		for _, n := range larger(1000, 100_000) {
			b.Run(fmt.Sprintf("%s/n=%d", kind.name, n), func(b *testing.B) {
				bytes := 0
				for b.Loop() {
					before := heap()
					s := policystore.New()
					if err := s.SetPolicy(must(policystore.Strict, "40%")); err != nil {
						b.Fatal(err)
					}
					for i := range n {
						kind.add(s, i)
					}
					bytes += heap() - before
					runtime.KeepAlive(s)
				}
				b.ReportMetric(float64(bytes)/float64(b.N)/float64(n), "B/pod")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
