package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

// world is what is known of a cluster: listed, read from a file, made up, or some of each.
type world struct {
	policies map[types.NamespacedName]*unstructured.Unstructured
	nodes    map[string]*v1.Node
	pods     map[types.UID]*v1.Pod
	sizes    map[types.UID]int // that workloads want
}

func newWorld() *world {
	return &world{
		policies: map[types.NamespacedName]*unstructured.Unstructured{},
		nodes:    map[string]*v1.Node{},
		pods:     map[types.UID]*v1.Pod{},
		sizes:    map[types.UID]int{},
	}
}

// readWorld reads YAML or JSON documents, each an object or a List of them. It ignores objects of other kinds.
func readWorld(file io.Reader) (*world, error) {
	w := newWorld()
	documents := utilyaml.NewYAMLReader(bufio.NewReader(file))
	for n := 1; ; n++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return w, nil
		}
		var value any
		if err == nil {
			value, err = decode(document)
		}
		if object, ok := value.(map[string]any); ok {
			err = w.add(&unstructured.Unstructured{Object: object})
		} else if err == nil && value != nil {
			err = errors.New("it is not an object of Kubernetes, which begins with apiVersion and kind")
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
	}
}

// decode decodes YAML with whole numbers as int64, as package unstructured wants them.
func decode(text []byte) (value any, _ error) {
	data, err := yaml.YAMLToJSONStrict(text)
	if err == nil {
		err = json.Unmarshal(data, &value)
	}
	return value, err
}

func (w *world) add(u *unstructured.Unstructured) (err error) {
	if u.IsList() {
		return u.EachListItem(func(item runtime.Object) error { return w.add(item.(*unstructured.Unstructured)) })
	}
	switch kind := u.GroupVersionKind().GroupKind().String(); kind {
	case "PlacementPolicy." + v1alpha1.GroupName:
		u.SetNamespace(cmp.Or(u.GetNamespace(), metav1.NamespaceDefault))
		w.policies[keyOf(u)] = u
	case "Node":
		node := &v1.Node{}
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, node)
		w.nodes[node.Name] = node
	case "Pod":
		pod := &v1.Pod{}
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, pod)
		pod.UID = cmp.Or(pod.UID, types.UID(keyOf(pod).String())) // none if it is written by hand
		w.pods[pod.UID] = pod
	case "ReplicaSet.apps", "StatefulSet.apps", "ReplicationController":
		var replicas *int32
		n, given, wrong := unstructured.NestedInt64(u.Object, "spec", "replicas")
		if given {
			replicas = new(int32(n))
		}
		err = wrong
		if size, known := policystore.WorkloadSize(u, replicas); known {
			w.sizes[u.GetUID()] = size
		}
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", u.GetKind(), keyOf(u), err)
	}
	return nil
}

func keyOf(object metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

// keepNamespace leaves out the policies and pods of other namespaces.
func (w *world) keepNamespace(namespace string) {
	maps.DeleteFunc(w.policies, func(key types.NamespacedName, _ *unstructured.Unstructured) bool {
		return key.Namespace != namespace
	})
	maps.DeleteFunc(w.pods, func(_ types.UID, pod *v1.Pod) bool { return pod.Namespace != namespace })
}

// choose returns the policy of that name, or of that namespace/name, or the only one if there is no name.
func (w *world) choose(name string) (types.NamespacedName, error) {
	var names []string
	var found []types.NamespacedName
	for key := range w.policies {
		names = append(names, key.String())
		if name == "" || name == key.Name || name == key.String() {
			found = append(found, key)
		}
	}
	if len(found) == 1 {
		return found[0], nil
	}
	slices.Sort(names)
	if len(names) == 0 {
		return types.NamespacedName{}, errors.New("there is no placement policy")
	}
	return types.NamespacedName{}, fmt.Errorf("say which policy with --policy, one of %s", some(names))
}

// store returns a store that has seen all of w.
func (w *world) store() *policystore.Store {
	store := policystore.New()
	for key, u := range w.policies {
		policy, err := policyOf(u)
		if err == nil {
			err = store.SetPolicy(policy)
		}
		if err != nil {
			store.RejectPolicy(key, err)
		}
	}
	for _, node := range w.nodes {
		store.AddNode(node)
	}
	for uid, size := range w.sizes {
		store.SetWorkloadSize(uid, size)
	}
	for _, pod := range w.pods {
		store.AddPod(pod)
	}
	return store
}

// policy returns a policy as a store knows it. The error says why it is invalid.
func (w *world) policy(key types.NamespacedName) (policystore.PolicyInfo, error) {
	info, _ := w.store().Policy(key)
	return info, info.Err
}

func policyOf(u *unstructured.Unstructured) (policystore.Policy, error) {
	p, err := v1alpha1.FromUnstructured(u)
	if err != nil {
		return policystore.Policy{}, err
	}
	return p.ToPolicy()
}

// queue returns the pods in the order in which a scheduler takes those that are pending.
func (w *world) queue() []*v1.Pod {
	return slices.SortedFunc(maps.Values(w.pods), func(a, b *v1.Pod) int {
		return cmp.Or(
			cmp.Compare(ptr.Deref(b.Spec.Priority, 0), ptr.Deref(a.Spec.Priority, 0)),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			strings.Compare(keyOf(a).String(), keyOf(b).String()),
		)
	})
}
