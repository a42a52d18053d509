package placementpolicy

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

// addHandlers feeds the store from the scheduler's informers and the one for placement policies.
func (s *shared) addHandlers(ctx context.Context, factory informers.SharedInformerFactory, policies cache.SharedIndexInformer) error {
	err := handle(s, policies, cache.TypedResourceEventHandlerFuncs[*unstructured.Unstructured]{
		AddFunc: func(obj *unstructured.Unstructured) { s.setPolicy(ctx, obj) },
		UpdateFunc: func(old, obj *unstructured.Unstructured) {
			if old.GetUID() != obj.GetUID() {
				s.report.forget(types.NamespacedName(cache.MetaObjectToName(obj)))
			} else if old.GetGeneration() == obj.GetGeneration() {
				return // the spec is the same
			}
			s.setPolicy(ctx, obj)
		},
		DeleteFunc: func(obj cache.DeletedObject[*unstructured.Unstructured]) {
			s.removePolicy(types.NamespacedName(obj.GetObjectName()))
		},
	})
	if err != nil {
		return err
	}

	err = handle(s, factory.Core().V1().Nodes().Informer(), cache.TypedResourceEventHandlerFuncs[*v1.Node]{
		AddFunc:    s.setNode,
		UpdateFunc: func(_, node *v1.Node) { s.setNode(node) },
		DeleteFunc: func(node cache.DeletedObject[*v1.Node]) {
			s.store.RemoveNode(node.GetName())
		},
	})
	if err != nil {
		return err
	}

	if err := addWorkloadHandler(s, factory.Apps().V1().ReplicaSets().Informer(), replicaSetReplicas); err != nil {
		return err
	}
	if err := addWorkloadHandler(s, factory.Apps().V1().StatefulSets().Informer(), statefulSetReplicas); err != nil {
		return err
	}
	if err := addWorkloadHandler(s, factory.Core().V1().ReplicationControllers().Informer(), replicationControllerReplicas); err != nil {
		return err
	}

	err = handle(s, factory.Core().V1().Pods().Informer(), cache.TypedResourceEventHandlerFuncs[*v1.Pod]{
		AddFunc: func(pod *v1.Pod) {
			s.store.AddPod(pod)
			s.wakeup.reconsider(pod.UID)
		},
		UpdateFunc: func(old, pod *v1.Pod) {
			s.store.UpdatePod(old, pod)
			settled := old.UID != pod.UID || old.Spec.NodeName == "" && pod.Spec.NodeName != ""
			if settled {
				s.confirmer.remove(old)
			}
			if settled || pod.DeletionTimestamp != nil {
				s.wakeup.remove(old.UID)
			}
		},
		DeleteFunc: func(pod cache.DeletedObject[*v1.Pod]) {
			if pod.OptionalObj != nil {
				s.store.RemovePod(pod.OptionalObj.UID)
				s.narrowing.nodeChanged(pod.OptionalObj.Spec.NodeName)
				s.confirmer.remove(pod.OptionalObj)
				s.wakeup.remove(pod.OptionalObj.UID)
			} else {
				s.store.RemovePodNamed(types.NamespacedName(pod.GetObjectName()))
			}
		},
	})
	return err
}

// handle adds the handler to the informer, and to the ones that the first decision waits for.
func handle[T cache.Object](s *shared, informer cache.SharedIndexInformer, handler cache.TypedResourceEventHandlerFuncs[T]) error {
	registration, err := cache.NewTypedSharedIndexInformer[T](informer).AddTypedEventHandler(handler)
	if err != nil {
		return fmt.Errorf("adding event handler for %T: %w", *new(T), err)
	}
	s.handlers = append(s.handlers, registration.HasSyncedChecker())
	return nil
}

// workload is an object that controls pods and wants a number of them.
type workload interface {
	cache.Object
	metav1.Object
}

func addWorkloadHandler[T workload](s *shared, informer cache.SharedIndexInformer, replicas func(T) *int32) error {
	set := func(obj T) {
		if size, known := policystore.WorkloadSize(obj, replicas(obj)); known {
			s.store.SetWorkloadSize(obj.GetUID(), size)
		} else {
			s.store.RemoveWorkload(obj.GetUID())
		}
	}
	var none T
	return handle(s, informer, cache.TypedResourceEventHandlerFuncs[T]{
		AddFunc: set,
		UpdateFunc: func(old, obj T) {
			if old.GetUID() != obj.GetUID() {
				s.store.RemoveWorkload(old.GetUID())
			}
			set(obj)
		},
		DeleteFunc: func(obj cache.DeletedObject[T]) {
			if obj.OptionalObj != none {
				s.store.RemoveWorkload(obj.OptionalObj.GetUID())
			}
		},
	})
}

func replicaSetReplicas(rs *appsv1.ReplicaSet) *int32 { return rs.Spec.Replicas }

func statefulSetReplicas(ss *appsv1.StatefulSet) *int32 { return ss.Spec.Replicas }

func replicationControllerReplicas(rc *v1.ReplicationController) *int32 { return rc.Spec.Replicas }

func (s *shared) setNode(node *v1.Node) {
	s.store.AddNode(node)
	s.narrowing.nodeChanged(node.Name)
}

func (s *shared) setPolicy(ctx context.Context, obj *unstructured.Unstructured) {
	key := types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
	p, err := v1alpha1.FromUnstructured(obj)
	if err == nil {
		policy, invalid := p.ToPolicy()
		if invalid == nil {
			invalid = s.store.SetPolicy(policy)
		}
		err = invalid
	}
	if err != nil {
		s.store.RejectPolicy(key, err)
		klog.FromContext(ctx).Error(err, "Ignoring invalid placement policy until it is mended", "placementPolicy", klog.KObj(obj))
	}
	s.narrowing.policyChanged(key)
}

func (s *shared) removePolicy(key types.NamespacedName) {
	s.store.RemovePolicy(key)
	s.narrowing.policyChanged(key)
	s.report.forget(key)
}
