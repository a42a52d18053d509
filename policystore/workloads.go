package policystore

import (
	"strconv"

	"k8s.io/apimachinery/pkg/types"
)

// desiredReplicasAnnotation is set by the deployment controller on the ReplicaSets of a Deployment: the size of the
// Deployment, also while a rollout has the ReplicaSet at fewer.
const desiredReplicasAnnotation = "deployment.kubernetes.io/desired-replicas"

// WorkloadSize returns how many pods a ReplicaSet, StatefulSet or ReplicationController wants, for [Store.SetWorkloadSize].
// Only a ReplicaSet's annotations count. Nil replicas are the API server's default, 1.
func WorkloadSize(annotations map[string]string, replicas *int32) int {
	if desired, err := strconv.Atoi(annotations[desiredReplicasAnnotation]); err == nil {
		return desired
	}
	if replicas == nil {
		return 1
	}
	return int(*replicas)
}

// workload is what controls pods. Its size is what it wants, or negative if that is not known.
type workload struct {
	uid     types.UID
	size    int
	pods    int
	cohorts map[*cohort]struct{} // that count its pods
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
		w = &workload{uid: uid, size: -1, cohorts: map[*cohort]struct{}{}}
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
	for c := range w.cohorts {
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
