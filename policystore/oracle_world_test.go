package policystore

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
)

// world drives a tandem as a cluster would: an API server, an informer for each kind of object, which lags behind it,
// and a scheduler, which may be ahead of the informers or behind. There are few names and few values, so that
// everything meets everything. All that happens is picked.
type world struct {
	*tandem
	pick    picker
	reserve func(pod *v1.Pod, node *v1.Node)

	policyNames                        []types.NamespacedName
	nodeNames, podNames, workloadNames []string

	policies  *informer[policyObject]
	nodes     *informer[v1.Node]
	pods      *informer[v1.Pod]
	workloads *informer[workloadObject]
	// versions are the pods that were ever created under a name, in each of their states.
	versions map[string][]*v1.Pod
}

// picker picks a number from 0 to n-1. The simplest choice is 0.
type picker func(what string, n int) int

func choose[T any](pick picker, what string, from ...T) T { return from[pick(what, len(from))] }

type policyObject struct {
	Policy
	unreadable bool
}

type workloadObject struct {
	uid  types.UID
	size int
}

func newWorld(x *tandem, pick picker) *world {
	return &world{
		tandem:  x,
		pick:    pick,
		reserve: func(pod *v1.Pod, node *v1.Node) { _ = x.assume(pod, node) },

		policyNames:   []types.NamespacedName{{Namespace: "a", Name: "p1"}, {Namespace: "a", Name: "p2"}, {Namespace: "a", Name: "p3"}, {Namespace: "b", Name: "p1"}},
		nodeNames:     []string{"n1", "n2", "n3"},
		podNames:      []string{"a/1", "a/2", "a/3", "a/4", "a/5", "a/6", "b/1", "b/2"},
		workloadNames: []string{"rs1", "rs2"},

		policies: newInformer(func(old, new *policyObject) {
			switch {
			case new == nil:
				x.removePolicy(old.NamespacedName)
			case new.unreadable:
				x.rejectPolicy(new.NamespacedName)
			default:
				x.setPolicy(new.Policy)
			}
		}),
		nodes: newInformer(func(old, new *v1.Node) {
			switch {
			case new == nil:
				x.removeNode(old)
			case old == nil:
				x.addNode(new)
			default:
				x.updateNode(new)
			}
		}),
		pods: newInformer(func(old, new *v1.Pod) {
			switch {
			case new == nil:
				x.removePod(old)
			case old == nil:
				x.addPod(new)
			case old == new:
				x.updatePod(nil, new)
			default:
				x.updatePod(old, new)
			}
		}),
		workloads: newInformer(func(old, new *workloadObject) {
			if new == nil {
				x.removeSize(old.uid)
			} else {
				x.setSize(new.uid, new.size)
			}
		}),
		versions: map[string][]*v1.Pod{},
	}
}

// informer is one kind of objects, by name: as they are on the API server, and as they were shown. Between the two is a
// queue: events keep their order within a kind, not between kinds, and several changes of an object may become one.
type informer[T any] struct {
	server       map[string]*T
	queue        []change[T]
	shown, ended map[string]*T
	event        func(old, new *T) // old is nil for a new object, new for a removed one
}

type change[T any] struct {
	name string
	obj  *T // nil for a removal
}

func newInformer[T any](event func(old, new *T)) *informer[T] {
	return &informer[T]{server: map[string]*T{}, shown: map[string]*T{}, ended: map[string]*T{}, event: event}
}

// write puts an object on the API server; nil removes it.
func (i *informer[T]) write(name string, obj *T) {
	if obj == nil {
		delete(i.server, name)
	} else {
		i.server[name] = obj
	}
	i.queue = append(i.queue, change[T]{name, obj})
}

func (i *informer[T]) pending() int { return len(i.queue) }

// deliver shows the next n changes, those of one object as one event.
func (i *informer[T]) deliver(n int) {
	var names []string
	last := map[string]*T{}
	for _, c := range i.queue[:n] {
		if !slices.Contains(names, c.name) {
			names = append(names, c.name)
		}
		last[c.name] = c.obj
	}
	i.queue = i.queue[n:]
	for _, name := range names {
		old, new := i.shown[name], last[name]
		if new != nil {
			i.shown[name] = new
		} else if old != nil {
			delete(i.shown, name)
			i.ended[name] = old
		} else {
			continue // came and went unseen
		}
		i.event(old, new)
	}
}

// repeat shows an object, or that it is gone, once more.
func (i *informer[T]) repeat(name string) {
	if obj := i.shown[name]; obj != nil {
		i.event(obj, obj)
	} else if obj := i.ended[name]; obj != nil {
		i.event(obj, nil)
	}
}

// anyInformer is an informer of whatever kind.
type anyInformer interface {
	pending() int
	deliver(n int)
	repeat(name string)
}

// sync delivers now what was written or, if it is so picked, leaves it for later.
func (w *world) sync(i anyInformer) {
	if w.pick("late", 3) < 2 {
		i.deliver(i.pending())
	}
}

// start fills the world.
func (w *world) start() {
	for _, name := range w.nodeNames {
		if w.pick("node at start", 2) > 0 {
			w.nodes.write(name, w.newNode(name))
		}
	}
	for _, key := range w.policyNames {
		if w.pick("policy at start", 2) > 0 {
			w.policies.write(key.String(), w.newPolicy(key))
		}
	}
	for _, name := range w.podNames {
		if w.pick("pod at start", 2) > 0 {
			w.writePod(name, w.newPod(name))
		}
	}
	w.deliverAll()
}

// step lets one thing happen.
func (w *world) step() {
	choose(w.pick, "step",
		w.changePod, w.assumePod, w.changePod, w.forgetPod, w.changePod, w.assumePod,
		w.changePolicy, w.changePolicy, w.changeNode, w.changeWorkload, w.deliverSome, w.deliverSome, w.repeatSome,
	)()
}

// end removes everything that is left.
func (w *world) end() {
	for _, key := range w.policyNames {
		w.policies.write(key.String(), nil)
	}
	for _, name := range w.nodeNames {
		w.nodes.write(name, nil)
	}
	for _, name := range w.podNames {
		w.pods.write(name, nil)
	}
	for _, name := range w.workloadNames {
		w.workloads.write(name, nil)
	}
	w.deliverAll()
	for _, uid := range sets.List(w.oracle.unseen) {
		w.forget(w.oracle.pods[uid])
	}
}

func (w *world) deliverAll() {
	for _, i := range []anyInformer{w.pods, w.policies, w.nodes, w.workloads} {
		i.deliver(i.pending())
	}
}

func (w *world) deliverSome() {
	if i := choose[anyInformer](w.pick, "kind", w.pods, w.policies, w.nodes, w.workloads); i.pending() > 0 {
		i.deliver(1 + w.pick("how many more", i.pending()))
	}
}

func (w *world) repeatSome() {
	switch w.pick("kind", 4) {
	case 0:
		name := choose(w.pick, "pod", w.podNames...)
		if pod := w.pods.shown[name]; pod != nil && w.pick("older", 3) == 2 {
			w.updatePod(nil, choose(w.pick, "version", w.versionsOf(pod)...))
		} else {
			w.pods.repeat(name)
		}
	case 1:
		w.policies.repeat(choose(w.pick, "policy", w.policyNames...).String())
	case 2:
		w.nodes.repeat(choose(w.pick, "node", w.nodeNames...))
	case 3:
		w.workloads.repeat(choose(w.pick, "workload", w.workloadNames...))
	}
}

func (w *world) changeNode() {
	name := choose(w.pick, "node", w.nodeNames...)
	if w.nodes.server[name] != nil && w.pick("remove", 2) > 0 {
		w.nodes.write(name, nil)
	} else {
		w.nodes.write(name, w.newNode(name))
	}
	w.sync(w.nodes)
}

func (w *world) newNode(name string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: w.newLabels(map[string][]string{"pool": {"spot", "", "od"}})}}
}

// newLabels picks for each key a value or that there is none.
func (w *world) newLabels(values map[string][]string) map[string]string {
	labels := map[string]string{}
	for _, key := range sets.List(sets.KeySet(values)) {
		if i := w.pick(key, len(values[key])+1); i < len(values[key]) {
			labels[key] = values[key][i]
		}
	}
	return labels
}

func (w *world) changeWorkload() {
	name := choose(w.pick, "workload", w.workloadNames...)
	if i := w.pick("size", 5); i < 4 {
		w.workloads.write(name, &workloadObject{types.UID(name), []int{5, 3, 1, 0}[i]})
	} else {
		w.workloads.write(name, nil)
	}
	w.sync(w.workloads)
}

func (w *world) changePolicy() {
	key := choose(w.pick, "policy", w.policyNames...)
	obj := w.policies.server[key.String()]
	if obj == nil {
		w.policies.write(key.String(), w.newPolicy(key))
		w.sync(w.policies)
		return
	}
	changed := &policyObject{Policy: obj.Policy}
	switch choose(w.pick, "policy change", "edit", "edit", "edit", "replace", "spoil", "garble", "remove") {
	case "edit":
		choose(w.pick, "field", policyFields...)(w.pick, &changed.Policy)
	case "replace":
		changed = w.newPolicy(key)
	case "spoil":
		choose(w.pick, "fault", policyFaults...)(&changed.Policy)
	case "garble":
		changed.unreadable = true
	case "remove":
		changed = nil
	}
	w.policies.write(key.String(), changed)
	w.sync(w.policies)
}

func (w *world) newPolicy(key types.NamespacedName) *policyObject {
	p := &policyObject{Policy: Policy{NamespacedName: key}}
	for _, set := range policyFields {
		set(w.pick, &p.Policy)
	}
	return p
}

// policyFields set one field each.
var policyFields = []func(picker, *Policy){
	func(pick picker, p *Policy) { p.Weight = choose(pick, "weight", int32(0), 1, 2) },
	func(pick picker, p *Policy) { p.EnforcementMode = choose(pick, "mode", Strict, BestEffort, "") },
	func(pick picker, p *Policy) {
		p.PodSelector = choose(pick, "pod selector",
			selector(nil),
			selector(map[string]string{"app": "web"}),
			selector(map[string]string{"app": "web", "tier": "x"}),
			selector(map[string]string{"tier": "x"}, requirement("app", metav1.LabelSelectorOpIn, "web", "db")),
			selector(nil, requirement("tier", metav1.LabelSelectorOpExists)),
			selector(nil, requirement("tier", metav1.LabelSelectorOpDoesNotExist)),
			selector(nil, requirement("app", metav1.LabelSelectorOpNotIn, "web")),
		)
	},
	func(pick picker, p *Policy) {
		if p.Groups = newGroups(pick); p.Groups != nil {
			p.NodeSelector, p.Action, p.TargetSize = nil, "", nil
			return
		}
		p.Action = choose(pick, "action", Must, MustNot, "")
		p.TargetSize = choose(pick, "size",
			ptr.To(intstr.FromString("50%")), ptr.To(intstr.FromInt32(1)), ptr.To(intstr.FromString("40%")), ptr.To(intstr.FromInt32(2)),
			ptr.To(intstr.FromString("100%")), ptr.To(intstr.FromString("0%")), ptr.To(intstr.FromInt32(0)), nil)
		p.NodeSelector = choose(pick, "node selector",
			selector(map[string]string{"pool": "spot"}),
			selector(nil, requirement("pool", metav1.LabelSelectorOpNotIn, "spot")),
			selector(nil, requirement("pool", metav1.LabelSelectorOpExists)),
			selector(nil),
		)
	},
	func(pick picker, p *Policy) {
		p.MatchLabelKeys = choose(pick, "keys", []string{}, nil, []string{"app"}, []string{"tier", "app", "tier"})
	},
}

// newGroups picks up to 8 groups, or that there are none but those of a node selector.
func newGroups(pick picker) []NodeGroup {
	if pick("form", 2) == 0 {
		return nil
	}
	var groups []NodeGroup
	left := 100
	for i := range 1 + pick("groups", MaxGroups) {
		g := NodeGroup{Name: string(rune('a' + i)), Base: choose(pick, "base", int32(0), 0, 0, 1, 2)}
		g.NodeSelector = choose(pick, "node selector",
			selector(map[string]string{"pool": "spot"}),
			selector(map[string]string{"pool": "od"}),
			selector(nil, requirement("pool", metav1.LabelSelectorOpDoesNotExist)),
			selector(nil),
		)
		if share := choose(pick, "share", 50, 30, 0, 100, -1); share >= 0 {
			g.Share = fmt.Sprintf("%d%%", min(share, left))
			left -= min(share, left)
		}
		if i := pick("max", 6); i > 2 {
			g.Max = ptr.To(int32(i - 3))
		}
		groups = append(groups, g)
	}
	last := &groups[len(groups)-1]
	last.Share, last.Max = "", nil
	if pick("the rest", 2) == 0 {
		last.NodeSelector = nil
	}
	return groups
}

// policyFaults make a policy invalid, in one field each.
var policyFaults = []func(*Policy){
	func(p *Policy) { p.Weight = -1 },
	func(p *Policy) { p.EnforcementMode = "Sometimes" },
	func(p *Policy) { p.PodSelector = nil },
	func(p *Policy) { p.PodSelector = selector(nil, requirement("app", "Like", "web")) },
	func(p *Policy) { p.NodeSelector = nil },
	func(p *Policy) { p.NodeSelector = selector(nil, requirement("pool", metav1.LabelSelectorOpIn)) },
	func(p *Policy) { p.MatchLabelKeys = []string{"app", "not a key"} },
	func(p *Policy) { p.Action = "mustnot" },
	func(p *Policy) { p.TargetSize = ptr.To(intstr.FromInt32(-1)) },
	func(p *Policy) { p.TargetSize = ptr.To(intstr.FromString("150%")) },
	func(p *Policy) { p.TargetSize = ptr.To(intstr.FromString("5")) },
	func(p *Policy) { p.Groups = []NodeGroup{} },
	func(p *Policy) { p.Groups = []NodeGroup{{Name: "a"}}; p.NodeSelector = selector(nil) },
	func(p *Policy) { twoGroups(p); p.Groups[1].Name = "a" },
	func(p *Policy) { twoGroups(p); p.Groups[0].Name = "" },
	func(p *Policy) { twoGroups(p); p.Groups[0].NodeSelector = nil },
	func(p *Policy) { twoGroups(p); p.Groups[0].Base = -1 },
	func(p *Policy) { twoGroups(p); p.Groups[0].Share = "101%" },
	func(p *Policy) { twoGroups(p); p.Groups[0].Max = ptr.To(int32(-1)) },
	func(p *Policy) { twoGroups(p); p.Groups[1].Share = "0%" },
	func(p *Policy) { twoGroups(p); p.Groups[1].Max = ptr.To(int32(1)) },
}

// twoGroups gives the policy two groups.
func twoGroups(p *Policy) {
	p.NodeSelector, p.Action, p.TargetSize = nil, "", nil
	p.Groups = []NodeGroup{{Name: "a", NodeSelector: selector(nil), Share: "40%"}, {Name: "b"}}
}

func selector(match map[string]string, expressions ...metav1.LabelSelectorRequirement) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: match, MatchExpressions: expressions}
}

func requirement(key string, operator metav1.LabelSelectorOperator, values ...string) metav1.LabelSelectorRequirement {
	return metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: values}
}

func (w *world) changePod() {
	name := choose(w.pick, "pod", w.podNames...)
	obj := w.pods.server[name]
	if obj == nil {
		w.writePod(name, w.newPod(name))
		w.sync(w.pods)
		return
	}
	changed := obj.DeepCopy()
	switch choose(w.pick, "pod change", "bind", "relabel", "nominate", "bind", "own", "heartbeat", "gate", "terminate", "finish", "remove", "replace") {
	case "bind":
		if obj.Spec.NodeName == "" {
			changed.Spec.NodeName = w.bindTo(obj)
		}
	case "relabel":
		changed.Labels = w.newPodLabels()
	case "nominate":
		changed.Status.NominatedNodeName = choose(w.pick, "nominated", "n1", "n2", "n3", "never known", "")
	case "own":
		changed.OwnerReferences = w.newOwners()
	case "heartbeat":
		changed.Status.Phase = v1.PodRunning
	case "gate":
		if len(obj.Spec.SchedulingGates) > 0 {
			changed.Spec.SchedulingGates = nil
		} else {
			changed.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "wait"}} // as in an object that is late
		}
	case "terminate":
		changed.DeletionTimestamp = ptr.To(metav1.Now())
	case "finish":
		changed.Status.Phase = choose(w.pick, "phase", v1.PodSucceeded, v1.PodFailed)
	case "remove":
		changed = nil
	case "replace":
		w.writePod(name, nil)
		changed = w.newPod(name)
	}
	w.writePod(name, changed)
	w.sync(w.pods)
}

func (w *world) writePod(name string, pod *v1.Pod) {
	if pod != nil {
		w.versions[name] = append(w.versions[name], pod)
	}
	w.pods.write(name, pod)
}

// bindTo picks the node that is reserved for the pod, if there is one, or another: someone else may bind it.
func (w *world) bindTo(pod *v1.Pod) string {
	if reserved := w.oracle.reservations[pod.UID]; reserved != "" && w.pick("elsewhere", 4) < 3 {
		return reserved
	}
	return w.anyNode()
}

func (w *world) anyNode() string { return choose(w.pick, "node", "n1", "n2", "n3", "never known") }

func (w *world) newPod(name string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace:       name[:1],
		Name:            name[2:],
		UID:             types.UID(fmt.Sprintf("%s#%d", name, len(w.versions[name]))),
		Labels:          w.newPodLabels(),
		OwnerReferences: w.newOwners(),
	}}
	if w.pick("important", 3) == 2 {
		pod.Spec.Priority = ptr.To(int32(10))
	}
	if w.pick("gated", 5) == 4 {
		pod.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "wait"}}
	}
	return pod
}

func (w *world) newPodLabels() map[string]string {
	return w.newLabels(map[string][]string{"app": {"web", "db"}, "tier": {"x", ""}, "pod-template-hash": {"1", "2"}})
}

func (w *world) newOwners() []metav1.OwnerReference {
	return choose(w.pick, "owner", nil,
		[]metav1.OwnerReference{{UID: "rs1", Controller: ptr.To(true)}},
		[]metav1.OwnerReference{{UID: "rs1"}, {UID: "rs2", Controller: ptr.To(true)}},
		[]metav1.OwnerReference{{UID: "rs2"}},
		[]metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", UID: "ds", Controller: ptr.To(true)}},
	)
}

// assumePod reserves a node for a pod as the scheduler knows it. That may be a version that no event has shown yet, or
// an old one, or of a pod that is gone. The node is none of another world: it makes a difference whether it is known.
func (w *world) assumePod() {
	pod := w.schedulerPod().DeepCopy()
	node := w.newNode(choose(w.pick, "node", append(slices.Clip(w.nodeNames), "never known")...)) // as the cycle sees it
	if w.pick("node in the pod", 2) > 0 {
		pod.Spec.NodeName = node.Name
	}
	if w.pick("by force", 6) == 5 {
		w.force(pod, node)
	} else {
		w.reserve(pod, node)
	}
}

// forgetPod ends a reservation or, if the API server has said that the pod is bound, moves it.
func (w *world) forgetPod() {
	pod := w.schedulerPod()
	if w.pick("confirmed", 3) == 2 {
		w.confirm(pod, w.anyNode())
	} else {
		w.forget(pod)
	}
}

func (w *world) schedulerPod() *v1.Pod {
	name := choose(w.pick, "pod", w.podNames...)
	versions := w.versions[name]
	if len(versions) == 0 {
		return w.newPod(name)
	}
	return versions[len(versions)-1-w.pick("how old", min(3, len(versions)))]
}

// versionsOf returns the states that the pod was in.
func (w *world) versionsOf(pod *v1.Pod) []*v1.Pod {
	var versions []*v1.Pod
	for _, version := range w.versions[pod.Namespace+"/"+pod.Name] {
		if version.UID == pod.UID {
			versions = append(versions, version)
		}
	}
	return versions
}

// strangers are pods to decide about whether the store knows them or not.
func (w *world) strangers() []*v1.Pod {
	stranger := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "a", Name: "stranger", UID: "stranger", Labels: map[string]string{"app": "web", "tier": "x"},
		OwnerReferences: []metav1.OwnerReference{{UID: "rs1", Controller: ptr.To(true)}},
	}}
	nobody := stranger.DeepCopy()
	nobody.Name, nobody.UID = "", ""
	daemon := stranger.DeepCopy()
	daemon.UID, daemon.OwnerReferences = "daemon", []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", UID: "ds", Controller: ptr.To(true)}}
	pods := []*v1.Pod{stranger, nobody, daemon}
	for _, name := range w.podNames {
		if versions := w.versions[name]; len(versions) > 0 {
			pods = append(pods, versions[len(versions)-1])
		}
	}
	return pods
}
