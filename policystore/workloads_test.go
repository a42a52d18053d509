package policystore_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

func TestWorkloadSize(t *testing.T) {
	const ofDeployment, ofRollout = "deployment.kubernetes.io/desired-replicas", "rollout.argoproj.io/desired-replicas"
	owner := func(apiVersion, kind string, controller *bool) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "web", UID: "web", Controller: controller}}
	}
	deployment, rollout := owner("apps/v1", "Deployment", ptr.To(true)), owner("argoproj.io/v1alpha1", "Rollout", ptr.To(true))
	type annotations = map[string]string
	for name, tc := range map[string]struct {
		owners      []metav1.OwnerReference
		annotations annotations
		replicas    *int32
		want        int // -1: not known
	}{
		"by itself":                        {nil, nil, ptr.To(int32(4)), 4},
		"by default":                       {nil, nil, nil, 1},
		"of none":                          {nil, nil, ptr.To(int32(0)), 0},
		"a negative number":                {nil, nil, ptr.To(int32(-5)), -1},
		"in a Deployment's rollout":        {deployment, annotations{ofDeployment: "10"}, ptr.To(int32(4)), 10},
		"in an Argo Rollout's":             {rollout, annotations{ofRollout: "10"}, ptr.To(int32(4)), 10},
		"each has its own annotation":      {rollout, annotations{ofDeployment: "10"}, ptr.To(int32(4)), 4},
		"the other way round too":          {deployment, annotations{ofRollout: "10"}, ptr.To(int32(4)), 4},
		"orphaned":                         {nil, annotations{ofDeployment: "10", ofRollout: "10"}, ptr.To(int32(4)), 4},
		"owned, but not controlled":        {owner("apps/v1", "Deployment", nil), annotations{ofDeployment: "10"}, ptr.To(int32(4)), 4},
		"another controller":               {owner("example.com/v1", "Deployment", ptr.To(true)), annotations{ofDeployment: "10"}, ptr.To(int32(4)), 4},
		"the whole has none":               {deployment, annotations{ofDeployment: "0"}, ptr.To(int32(4)), 0},
		"the most that there can be":       {deployment, annotations{ofDeployment: "2147483647"}, ptr.To(int32(4)), math.MaxInt32},
		"an annotation that is too much":   {deployment, annotations{ofDeployment: "9000000000"}, ptr.To(int32(4)), 4},
		"an annotation beyond all numbers": {deployment, annotations{ofDeployment: "99999999999999999999"}, ptr.To(int32(4)), 4},
		"a negative annotation":            {deployment, annotations{ofDeployment: "-5"}, ptr.To(int32(4)), 4},
		"an annotation that is no number":  {deployment, annotations{ofDeployment: "a dozen"}, ptr.To(int32(4)), 4},
		"nothing that makes sense":         {deployment, annotations{ofDeployment: "-5"}, ptr.To(int32(-5)), -1},
	} {
		t.Run(name, func(t *testing.T) {
			size, known := policystore.WorkloadSize(&metav1.ObjectMeta{OwnerReferences: tc.owners, Annotations: tc.annotations}, tc.replicas)
			assert.Equal(t, tc.want >= 0, known)
			if known {
				assert.Equal(t, tc.want, size)
			}
		})
	}
}

// A size that no workload can have must not open a Strict group.
func TestImpossibleSizesAreNotKnown(t *testing.T) {
	w := newCluster(t, must(policystore.Strict, "40%"))
	w.create(5, controlledBy("rs"))
	for _, size := range []int{-1, math.MinInt, math.MaxInt32 + 1, 9_000_000_000, math.MaxInt} {
		w.SetWorkloadSize("rs", 10)
		w.SetWorkloadSize("rs", size)
		d, _ := w.Decide(w.pods["web-001"])
		assert.Equal(t, []int{5, 2}, []int{d.Size, d.Quota(target)}, "size %d", size)
	}
	w.SetWorkloadSize("rs", math.MaxInt32)
	d, _ := w.Decide(w.pods["web-001"])
	assert.Equal(t, []int{math.MaxInt32, 858993458}, []int{d.Size, d.Quota(target)})
	w.RemoveWorkload("rs")
}
