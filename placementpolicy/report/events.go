package report

import (
	"context"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
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

// NotFiltered reports, once for each policy, that a Strict policy is not enforced but only preferred, and why.
func (r *Reporter) NotFiltered(ctx context.Context, policy types.NamespacedName, why string) {
	obj, ok, err := r.Policies.GetByKey(policy.String())
	if !ok || err != nil {
		return // deleted
	}
	object := obj.(*unstructured.Unstructured)
	r.mu.Lock()
	known := r.unfiltered[policy] == object.GetUID()
	r.unfiltered[policy] = object.GetUID()
	r.mu.Unlock()
	if known {
		return
	}
	klog.FromContext(ctx).Info("Strict placement policy acts as BestEffort",
		"placementPolicy", klog.KObj(object), "why", why)
	notFiltered.Inc()
	r.event(object, ReasonNotFiltered, "Scheduling", "it acts as BestEffort: "+why)
}

// tellChanges records events on what is wrong by the policy's conditions, as far as they did not say so before. It
// goes with the status, which one replica writes: so each change is told once.
func (r *Reporter) tellChanges(policy *unstructured.Unstructured, before, now []metav1.Condition) {
	for _, c := range now {
		then := meta.FindStatusCondition(before, c.Type)
		if then != nil && then.Status == c.Status && then.Message == c.Message {
			continue
		}
		switch {
		case c.Type == v1alpha1.ConditionAccepted && c.Status == metav1.ConditionFalse:
			r.tellInvalid(policy, c.Message)
		case c.Type == v1alpha1.ConditionAccepted:
			r.mended(policy)
		case c.Type == v1alpha1.ConditionConflicted && c.Status == metav1.ConditionTrue:
			r.event(policy, ReasonConflicted, "Governing", c.Message)
		}
	}
}

// tellInvalid records the event on an invalid policy, once for each reason.
func (r *Reporter) tellInvalid(policy *unstructured.Unstructured, reason string) {
	note := cut("it governs no pods until it is mended: "+reason, maxNote)
	key := types.NamespacedName(cache.MetaObjectToName(policy))
	r.mu.Lock()
	known := r.told[key] == note
	r.told[key] = note
	r.mu.Unlock()
	if !known {
		r.event(policy, ReasonInvalid, "Validating", note)
	}
}

func (r *Reporter) mended(policy *unstructured.Unstructured) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.told, types.NamespacedName(cache.MetaObjectToName(policy)))
}

func (r *Reporter) event(policy *unstructured.Unstructured, reason, action, note string) {
	if r.Recorder != nil {
		r.Recorder.Eventf(policy, nil, v1.EventTypeWarning, reason, action, "%s", cut(note, maxNote))
	}
}

// cut shortens s to at most n bytes, between two runes.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
