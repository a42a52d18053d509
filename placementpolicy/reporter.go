package placementpolicy

import (
	"context"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
)

// Reasons of the events on a PlacementPolicy.
const (
	// ReasonInvalid: the policy is invalid and governs nothing. The API server refuses such policies, but may have
	// stored them before its schema was as strict.
	ReasonInvalid = "Invalid"
	// ReasonConflicted: other policies govern pods that the policy selects.
	ReasonConflicted = "Conflicted"
	// ReasonNotFiltered: a profile schedules pods of a Strict policy without the plugin's Filter.
	ReasonNotFiltered = "NotFiltered"
)

// maxNote is the length in bytes that the API server allows for an event's note.
const maxNote = 1024

// reporter says on a policy, in the log and in metrics what an operator has to know of it.
type reporter struct {
	recorder events.EventRecorder
	policies cache.Store

	mu         sync.Mutex // guards unfiltered
	unfiltered map[types.NamespacedName]types.UID
}

func newReporter(recorder events.EventRecorder, policies cache.Store) *reporter {
	registerMetrics()
	return &reporter{recorder: recorder, policies: policies, unfiltered: map[types.NamespacedName]types.UID{}}
}

// changed reports what is wrong by the policy's conditions, as far as they did not say so before. It goes with the status, which one
// replica of the scheduler writes: so each change is reported once.
func (r *reporter) changed(policy runtime.Object, before, now []metav1.Condition) {
	for _, c := range now {
		if then := meta.FindStatusCondition(before, c.Type); then != nil && then.Status == c.Status && then.Message == c.Message {
			continue
		}
		switch {
		case c.Type == v1alpha1.ConditionAccepted && c.Status == metav1.ConditionFalse:
			r.event(policy, ReasonInvalid, "Validating", "it governs no pods until it is mended: "+c.Message)
		case c.Type == v1alpha1.ConditionConflicted && c.Status == metav1.ConditionTrue:
			r.event(policy, ReasonConflicted, "Governing", c.Message)
		}
	}
}

// notFiltered reports, once for each policy, that only the score points act for a Strict policy.
func (r *reporter) notFiltered(ctx context.Context, profile string, key types.NamespacedName) {
	obj, ok, err := r.policies.GetByKey(key.String())
	if !ok || err != nil {
		return
	}
	policy := obj.(*unstructured.Unstructured)
	r.mu.Lock()
	known := r.unfiltered[key] == policy.GetUID()
	r.unfiltered[key] = policy.GetUID()
	r.mu.Unlock()
	if known {
		return
	}
	klog.FromContext(ctx).Info("Strict placement policy acts as BestEffort: the profile enables the plugin without its PreFilter and Filter points",
		"placementPolicy", klog.KRef(key.Namespace, key.Name), "profile", profile)
	notFiltered.Inc()
	r.event(policy, ReasonNotFiltered, "Scheduling",
		"it acts as BestEffort: scheduler profile "+profile+" enables plugin "+Name+" without its preFilter and filter points")
}

func (r *reporter) event(policy runtime.Object, reason, action, note string) {
	if r.recorder == nil {
		return // a bare framework in a unit test
	}
	r.recorder.Eventf(policy, nil, v1.EventTypeWarning, reason, action, "%s", note[:min(len(note), maxNote)])
}
