// Package scale makes clusters of up to a million pods, on which the benchmarks of all packages run.
//
// They run on the smallest cluster unless they are told otherwise by a flag of this package:
//
//	go test ./labelselector ./policystore ./placementpolicy -run '^$' -bench . -large
package scale

import (
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

var large = flag.Bool(
	"large",
	false,
	"run benchmarks also on 100,000 and 1,000,000 pods, and with 1,000 and 10,000 policies",
)

// Policies are the numbers of policies that a benchmark runs with.
func Policies() []int {
	if *large {
		return []int{1, 1000, 10_000}
	}
	return []int{1}
}

// Pods are the numbers of pods that a benchmark runs with.
func Pods() []int {
	if *large {
		return []int{1000, 100_000, 1_000_000}
	}
	return []int{1000}
}

// Run runs the benchmark on a cluster of each size.
func Run(b *testing.B, benchmark func(*testing.B, *Cluster)) {
	for _, pods := range Pods() {
		for _, policies := range Policies() {
			load := sync.OnceValue(func() *Cluster { // when first needed, and once for all counts
				c := &Cluster{Pods: pods, Policies: policies, Store: policystore.New()}
				c.Load()
				return c
			})
			b.Run(fmt.Sprintf("pods=%d/policies=%d", pods, policies), func(b *testing.B) {
				b.ReportAllocs()
				benchmark(b, load())
			})
		}
	}
}

// Cluster is a store that knows many pods in one namespace: 100 of each ReplicaSet and at most 100 on each node. They
// run, in the ratio of the policies. Each policy is Strict, and selects the pods of one application: so each
// application has many ReplicaSets if there are few policies, and some policies select no pods if there are few pods.
type Cluster struct {
	Pods, Policies int
	// StatefulSets control the pods in place of ReplicaSets: no two pods have the same labels then.
	StatefulSets bool
	Store        *policystore.Store
}

const (
	podsOfWorkload = 100
	podsOnNode     = 100
)

// Load tells the store of all that is there.
func (c *Cluster) Load() {
	for i := range c.Policies {
		if err := c.Store.SetPolicy(c.Policy(i)); err != nil {
			panic(err)
		}
	}
	for i := range (c.Pods + podsOnNode - 1) / podsOnNode {
		c.Store.AddNode(c.Node(i))
	}
	for i := range c.Pods {
		c.Store.AddPod(c.Pod(i))
	}
}

// Policy returns the i-th policy.
func (c *Cluster) Policy(i int) policystore.Policy {
	return policystore.Policy{
		NamespacedName:  types.NamespacedName{Namespace: "default", Name: fmt.Sprint("policy-", i)},
		EnforcementMode: policystore.Strict,
		PodSelector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": app(i)}},
		NodeSelector:    &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "spot"}},
		TargetSize:      ptr.To(intstr.FromString("40%")),
	}
}

// Node returns the i-th node: 40 % are spot nodes. It has as many labels as the nodes of a cloud provider.
func (c *Cluster) Node(i int) *v1.Node {
	pool := "on-demand"
	if i%5 < 2 {
		pool = "spot"
	}
	name := nodeName(i)
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{
		"kubernetes.io/arch":               "amd64",
		"kubernetes.io/hostname":           name,
		"kubernetes.io/os":                 "linux",
		"node.kubernetes.io/instance-type": "m7i.4xlarge",
		"pool":                             pool,
		"topology.kubernetes.io/region":    "eu-central-1",
		"topology.kubernetes.io/zone":      fmt.Sprint("eu-central-1", string(rune('a'+i%3))),
		"topology.ebs.csi.aws.com/zone":    fmt.Sprint("eu-central-1", string(rune('a'+i%3))),
	}}}
}

// Pod returns the i-th pod. Its strings are its own, as those of a decoded object are.
func (c *Cluster) Pod(i int) *v1.Pod {
	pod := c.PendingPod(i)
	pod.UID = types.UID(fmt.Sprintf("a56cb8d8-7e5f-4a39-9c1d-%012d", i))
	pod.Spec.NodeName = nodeName(i % ((c.Pods + podsOnNode - 1) / podsOnNode))
	return pod
}

// PendingPod returns another pod of the i-th pod's ReplicaSet, that the store does not know yet.
func (c *Cluster) PendingPod(i int) *v1.Pod {
	workload := i / podsOfWorkload
	labels := map[string]string{
		"app":                          app(workload % c.Policies),
		"app.kubernetes.io/managed-by": "Helm",
		"app.kubernetes.io/version":    "1.27.4",
		"pod-template-hash":            fmt.Sprintf("5d4f8c%04d", workload),
		"team":                         "storefront",
	}
	if c.StatefulSets {
		delete(labels, "pod-template-hash")
		labels["controller-revision-hash"] = fmt.Sprintf("web-5d4f8c%04d", workload)
		labels["statefulset.kubernetes.io/pod-name"] = fmt.Sprint("web-", i)
		labels["apps.kubernetes.io/pod-index"] = fmt.Sprint(i)
	}
	own := map[string]string{}
	for key, value := range labels {
		own[strings.Clone(key)] = strings.Clone(value)
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default",
			Name:      fmt.Sprint("web-", i),
			UID:       types.UID(fmt.Sprintf("c0ffee00-7e5f-4a39-9c1d-%012d", i)),
			Labels:    own,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web",
				UID:        types.UID(fmt.Sprintf("00c0ffee-7e5f-4a39-9c1d-%012d", workload)),
				Controller: ptr.To(true),
			}},
		},
		Spec: v1.PodSpec{SchedulerName: v1.DefaultSchedulerName, Priority: new(int32)},
	}
}

func app(i int) string { return fmt.Sprint("app-", i) }

func nodeName(i int) string {
	return fmt.Sprintf("ip-10-0-%d-%d.eu-central-1.compute.internal", i/250, i%250)
}
