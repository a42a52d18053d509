package policystore

import (
	"math"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// desiredReplicas are the annotations in which the controllers of ReplicaSets keep the size of the whole, also while a
// rollout has the ReplicaSet at fewer. On a ReplicaSet that none of them controls any more they say what once was.
var desiredReplicas = map[schema.GroupKind]string{
	{Group: "apps", Kind: "Deployment"}:     "deployment.kubernetes.io/desired-replicas",
	{Group: "argoproj.io", Kind: "Rollout"}: "rollout.argoproj.io/desired-replicas",
}

// WorkloadSize returns how many pods a ReplicaSet, StatefulSet or ReplicationController wants, for
// [Store.SetWorkloadSize]: of a ReplicaSet that a Deployment or an Argo Rollout controls what its annotation says that
// this one wants, else the given spec.replicas, of which nil is the API server's default, 1. It is 0 to
// [math.MaxInt32]; an annotation that is no such number does not count, and known is false if replicas are none.
func WorkloadSize(obj metav1.Object, replicas *int32) (size int, known bool) {
	if owner := metav1.GetControllerOfNoCopy(obj); owner != nil {
		kind := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind()
		desired, err := strconv.Atoi(obj.GetAnnotations()[desiredReplicas[kind]])
		if err == nil && isSize(desired) {
			return desired, true
		}
	}
	if replicas == nil {
		return 1, true
	}
	return int(*replicas), isSize(int(*replicas))
}

func isSize(n int) bool { return 0 <= n && n <= math.MaxInt32 }

// workload is what controls pods. Its size is what it wants, or negative if that is not known.
type workload struct {
	uid     types.UID
	size    int
	pods    int
	cohorts tally[*cohort] // that count its pods
}

func (w *workload) id() types.UID {
	if w == nil {
		return ""
	}
	return w.uid
}

func (s *state) workloadFor(uid types.UID) *workload {
	w := s.workloads[uid]
	if w == nil {
		w = &workload{uid: uid, size: -1}
		s.workloads[uid] = w
	}
	return w
}

// setWorkload notes what controls the pod; an empty uid stands for nothing. The pod must not be in a cohort.
func (s *state) setWorkload(p *pod, uid types.UID) {
	if w := p.workload; w != nil {
		w.pods--
		s.tidyWorkload(w)
	}
	p.workload = nil
	if uid != "" {
		p.workload = s.workloadFor(uid)
		p.workload.pods++
	}
}

func (s *state) tidyWorkload(w *workload) {
	if w.pods == 0 && w.size < 0 {
		delete(s.workloads, w.uid)
	}
}

// hasWorkloadSize reports whether the size is nothing new.
func (s *state) hasWorkloadSize(uid types.UID, size int) bool {
	w := s.workloads[uid]
	return w != nil && w.size == size
}

// setWorkloadSize notes the size that a workload wants; a negative one is not known.
func (s *state) setWorkloadSize(uid types.UID, size int) {
	w := s.workloadFor(uid)
	w.size = size
	for c := range w.cohorts.all {
		s.touch(c.policy)
	}
	s.tidyWorkload(w)
}

// wants returns the workload's size, or 0 if it is not known.
func (w *workload) wants() int {
	if w == nil {
		return 0
	}
	return max(0, w.size)
}
