//go:build !race

package policystore

import (
	"runtime/debug"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// TestOracleSmallWorlds takes every order of every set of up to seven of a world's eight events, and compares the store
// with the oracle after each event. Of k events there are 8!/(8-k)! orders; those of up to seven are 69,281 in a world.
func TestOracleSmallWorlds(t *testing.T) {
	const longest = 7
	gcPercent := debug.SetGCPercent(400) // all that a run makes is garbage after it
	t.Cleanup(func() { debug.SetGCPercent(gcPercent) })

	spot := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "spot", Labels: map[string]string{"pool": "spot"}}}
	unlabelled := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "spot"}}
	other := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other"}}

	strict := Policy{
		NamespacedName: types.NamespacedName{Namespace: "a", Name: "strict"}, Weight: 1, EnforcementMode: Strict,
		PodSelector: selector(map[string]string{"app": "web"}), NodeSelector: selector(spot.Labels), TargetSize: ptr.To(intstr.FromString("50%")),
	}
	light, invalid := strict, strict
	light.Weight, light.EnforcementMode, light.MatchLabelKeys = 0, BestEffort, []string{}
	invalid.TargetSize = ptr.To(intstr.FromString("half"))
	loose := Policy{
		NamespacedName: types.NamespacedName{Namespace: "a", Name: "loose"}, Action: MustNot,
		PodSelector: selector(nil), NodeSelector: selector(spot.Labels), TargetSize: ptr.To(intstr.FromInt32(1)),
	}

	onDemand := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other", Labels: map[string]string{"pool": "od"}}}
	three := strict
	three.NodeSelector, three.TargetSize = nil, nil
	three.Groups = []NodeGroup{
		{Name: "spot", NodeSelector: selector(spot.Labels), Share: "50%"},
		{Name: "on-demand", NodeSelector: selector(onDemand.Labels), Base: 1, Share: "50%", Max: ptr.To(int32(1))},
		{Name: "labelled", NodeSelector: selector(nil, requirement("pool", metav1.LabelSelectorOpExists))},
	}
	last := three // the second group is the last
	last.Groups = []NodeGroup{three.Groups[0], {Name: "labelled", NodeSelector: three.Groups[2].NodeSelector}}

	pod := func(uid types.UID, change ...func(*v1.Pod)) *v1.Pod {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", UID: uid, Labels: map[string]string{"app": "web"}}}
		for _, f := range change {
			f(p)
		}
		return p
	}
	on := func(node string) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.NodeName = node } }
	label := func(key, value string) func(*v1.Pod) { return func(p *v1.Pod) { p.Labels[key] = value } }
	of := func(workload types.UID) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{UID: workload, Controller: ptr.To(true)}}
		}
	}
	nominated := func(node string) func(*v1.Pod) { return func(p *v1.Pod) { p.Status.NominatedNodeName = node } }
	gated := func(p *v1.Pod) { p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "wait"}} }
	terminating := func(p *v1.Pod) { p.DeletionTimestamp = ptr.To(metav1.Now()) }
	finished := func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded }
	p, q := pod("p"), pod("q")

	shows := func(pod *v1.Pod) func(*tandem) { return func(x *tandem) { x.updatePod(nil, pod) } }
	removes := func(pod *v1.Pod) func(*tandem) { return func(x *tandem) { x.removePod(pod) } }
	assumes := func(pod *v1.Pod, node *v1.Node) func(*tandem) { return func(x *tandem) { x.mustAssume(pod, node) } }
	forgets := func(pod *v1.Pod) func(*tandem) { return func(x *tandem) { x.forget(pod) } }
	sets := func(policy Policy) func(*tandem) { return func(x *tandem) { x.setPolicy(policy) } }
	drops := func(policy Policy) func(*tandem) { return func(x *tandem) { x.removePolicy(policy.NamespacedName) } }
	knows := func(node *v1.Node) func(*tandem) { return func(x *tandem) { x.addNode(node) } }
	loses := func(node *v1.Node) func(*tandem) { return func(x *tandem) { x.removeNode(node) } }
	wants := func(workload types.UID, size int) func(*tandem) { return func(x *tandem) { x.setSize(workload, size) } }
	unknown := func(workload types.UID) func(*tandem) { return func(x *tandem) { x.removeSize(workload) } }

	type events []func(*tandem)
	for _, world := range []struct {
		name          string
		start, events events
	}{{
		name:  "arrival",
		start: events{knows(other)},
		events: events{
			sets(strict), drops(strict), knows(spot), knows(unlabelled), loses(spot),
			shows(pod("p", on("spot"))), shows(pod("q", on("other"))), assumes(q, spot),
		},
	}, {
		name:  "reservation",
		start: events{sets(strict), knows(spot), knows(other), shows(q)},
		events: events{
			shows(p), shows(pod("p", on("spot"))), removes(p), assumes(p, spot), assumes(p, other), forgets(p),
			assumes(q, spot), forgets(q),
		},
	}, {
		name:  "two policies",
		start: events{knows(spot), knows(other), shows(pod("p", on("spot")))},
		events: events{
			sets(strict), sets(light), sets(invalid), drops(strict), sets(loose),
			shows(pod("p", on("spot"), label("app", "db"))), assumes(q, spot), forgets(q),
		},
	}, {
		name:  "three groups",
		start: events{sets(three), knows(spot), shows(pod("p", on("other")))},
		events: events{
			knows(onDemand), knows(other), loses(spot), sets(last), sets(strict), shows(pod("r", on("spot"))),
			assumes(q, onDemand), assumes(p, spot),
		},
	}, {
		name:  "life of a pod",
		start: events{sets(strict), knows(spot), knows(other), shows(pod("q", on("other")))},
		events: events{
			shows(pod("p", gated)), shows(p), assumes(p, spot), shows(pod("p", on("spot"))), shows(pod("p", on("spot"), terminating)),
			shows(pod("p", on("spot"), finished)), removes(p),
			func(x *tandem) { x.updatePod(p, pod("p again", label("pod-template-hash", "2"))) },
		},
	}, {
		name:  "workloads",
		start: events{sets(strict), knows(spot), knows(other), wants("rs2", 3)},
		events: events{
			shows(pod("p", of("rs"))), shows(p), removes(p), assumes(p, spot),
			shows(pod("q", of("rs"), on("other"))), shows(pod("q", of("rs2"))), wants("rs", 4), unknown("rs"),
		},
	}, {
		name:  "nomination",
		start: events{sets(strict), knows(other), shows(q)},
		events: events{
			knows(spot), loses(spot), shows(p), shows(pod("p", nominated("spot"))), shows(pod("p", nominated("spot"), on("other"))),
			assumes(p, spot), forgets(p), assumes(q, spot),
		},
	}} {
		t.Run(world.name, func(t *testing.T) {
			t.Parallel()
			var calls []func() // that log the calls of the current order
			t.Cleanup(func() {
				for _, log := range calls {
					if t.Failed() {
						log()
					}
				}
			})
			replay := func(order events) *tandem {
				x := newTandem(t, New())
				calls = nil
				x.log = func(format string, args ...any) { calls = append(calls, func() { t.Logf(format, args...) }) }
				for _, event := range slices.Concat(world.start, order) {
					event(x)
				}
				return x
			}
			orders := 0
			var walk func(x *tandem, order, rest events)
			walk = func(x *tandem, order, rest events) {
				orders++
				x.check(p, q)
				if len(order) == longest {
					return
				}
				for i, event := range rest {
					if i > 0 { // the first goes on where the order ended
						x = replay(order)
					}
					event(x)
					walk(x, append(order, event), slices.Delete(slices.Clone(rest), i, i+1))
				}
			}
			walk(replay(nil), nil, world.events)
			t.Log(orders, "orders")
		})
	}
}
