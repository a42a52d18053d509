package feeder

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

// policySource is what messages call the policies.
const policySource = "placement policies"

func (f *Feeder) addHandlers() error {
	if err := addHandler(f, policySource, f.policies, f.setPolicy, f.removePolicy); err != nil {
		return err
	}
	if err := addHandler(f, "nodes", f.nodes, f.setNode, f.removeNode); err != nil {
		return err
	}
	for i, name := range []string{"replica sets", "stateful sets", "replication controllers"} {
		if err := addHandler(f, name, f.workloads[i], f.setWorkload, f.removeWorkload); err != nil {
			return err
		}
	}
	return addHandler(f, "pods", f.pods, f.setPod, f.removePod)
}

// setPolicy does nothing if the spec is the same: most updates are of the status.
func (f *Feeder) setPolicy(old, obj *unstructured.Unstructured) {
	if old != nil && old.GetGeneration() == obj.GetGeneration() {
		return
	}
	p, err := v1alpha1.FromUnstructured(obj)
	var policy policystore.Policy
	if err == nil {
		policy, err = p.ToPolicy()
	}
	if err == nil {
		err = f.store.SetPolicy(policy)
	}
	if err != nil {
		f.store.RejectPolicy(types.NamespacedName(cache.MetaObjectToName(obj)), err)
		f.logger.Error(err, "Ignoring invalid placement policy until it is mended", "placementPolicy", klog.KObj(obj))
	}
	f.policyChanged(obj)
}

func (f *Feeder) removePolicy(obj metav1.Object) {
	f.store.RemovePolicy(types.NamespacedName(cache.MetaObjectToName(obj)))
	f.policyChanged(obj)
}

func (f *Feeder) policyChanged(obj metav1.Object) {
	if f.hooks.AfterPolicy != nil {
		f.hooks.AfterPolicy(types.NamespacedName(cache.MetaObjectToName(obj)))
	}
}

func (f *Feeder) setNode(_, node *v1.Node) {
	f.store.UpdateNode(node)
	if f.hooks.AfterNode != nil {
		f.hooks.AfterNode(node)
	}
}

func (f *Feeder) removeNode(obj metav1.Object) { f.store.RemoveNode(obj.GetName()) }

func (f *Feeder) setWorkload(_, obj metav1.Object) {
	if size, known := policystore.WorkloadSize(obj, replicasOf(obj)); known {
		f.store.SetWorkloadSize(obj.GetUID(), size)
	} else {
		f.store.RemoveWorkload(obj.GetUID())
	}
}

// removeWorkload cannot forget the size of one whose UID is lost. It matters to no pod any more.
func (f *Feeder) removeWorkload(obj metav1.Object) { f.store.RemoveWorkload(obj.GetUID()) }

func replicasOf(workload metav1.Object) *int32 {
	switch workload := workload.(type) {
	case *appsv1.ReplicaSet:
		return workload.Spec.Replicas
	case *appsv1.StatefulSet:
		return workload.Spec.Replicas
	case *v1.ReplicationController:
		return workload.Spec.Replicas
	}
	return nil
}

func (f *Feeder) setPod(old, pod *v1.Pod) {
	tell(f.hooks.BeforePod, old, pod)
	f.store.UpdatePod(old, pod)
	tell(f.hooks.AfterPod, old, pod)
}

func (f *Feeder) removePod(obj metav1.Object) {
	pod, ok := obj.(*v1.Pod)
	if !ok {
		pod = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: obj.GetNamespace(), Name: obj.GetName()}}
	}
	tell(f.hooks.BeforePod, pod, nil)
	if pod.UID != "" {
		f.store.RemovePod(pod.UID)
	} else {
		f.store.RemovePodNamed(types.NamespacedName(cache.MetaObjectToName(pod)))
	}
	tell(f.hooks.AfterPod, pod, nil)
}

func tell(hook func(old, pod *v1.Pod), old, pod *v1.Pod) {
	if hook != nil {
		hook(old, pod)
	}
}

// object is what an informer has: a pointer with metadata.
type object interface {
	comparable
	metav1.Object
}

// handler is the event handler for objects of one type.
type handler[T object] struct {
	// set: the object is there. old is what it was, zero if it was not there before.
	set func(old, obj T)
	// remove: the object is gone. It is the last state that is known, or a relist has found it missing and that is
	// lost: then it is no more than its namespace and name.
	remove func(obj metav1.Object)
}

func addHandler[T object](f *Feeder, name string, informer cache.SharedIndexInformer, set func(old, obj T),
	remove func(metav1.Object)) error {
	registration, err := informer.AddEventHandler(&handler[T]{set: set, remove: remove})
	if err != nil {
		return fmt.Errorf("adding event handler for %s: %w", name, err)
	}
	f.sources = append(f.sources, source{name, registration.HasSynced})
	return nil
}

// OnAdd implements cache.ResourceEventHandler.
func (h *handler[T]) OnAdd(obj any, _ bool) {
	var none T
	h.onSet(none, obj)
}

// OnUpdate implements cache.ResourceEventHandler.
func (h *handler[T]) OnUpdate(before, obj any) {
	old, _ := before.(T)
	h.onSet(old, obj)
}

func (h *handler[T]) onSet(old T, obj any) {
	t, ok := obj.(T)
	if !ok {
		utilruntime.HandleError(fmt.Errorf("handling an event: expected %T, got %T", *new(T), obj))
		return
	}
	var none T
	if old != none && old.GetUID() != t.GetUID() { // deleted and made again
		h.remove(old)
		old = none
	}
	h.set(old, t)
}

// OnDelete implements cache.ResourceEventHandler.
func (h *handler[T]) OnDelete(obj any) {
	name, err := cache.DeletionHandlingObjectToName(obj)
	if err != nil {
		utilruntime.HandleError(fmt.Errorf("handling the deletion of a %T: %w", *new(T), err))
		return
	}
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	if t, ok := obj.(T); ok {
		h.remove(t)
	} else {
		h.remove(&metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name})
	}
}
