package v1alpha1

import (
	"errors"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

// FromUnstructured decodes one object of the API. It shares nothing with u. The error names a value of the wrong type;
// it leaves values of the right type to [PlacementPolicy.ToPolicy], and ignores fields that this version does not know.
// A status that cannot be decoded is left out: it says nothing of what is asked for.
func FromUnstructured(u *unstructured.Unstructured) (*PlacementPolicy, error) {
	object := maps.Clone(u.Object)
	delete(object, "status")
	p := &PlacementPolicy{}
	if err := decode(object, p); err != nil {
		return nil, fmt.Errorf("decoding placement policy %s/%s: %w", u.GetNamespace(), u.GetName(), err)
	}
	if status, ok := u.Object["status"]; ok {
		if err := decode(status, &p.Status); err != nil {
			p.Status = PlacementPolicyStatus{}
		}
	}
	return p, nil
}

// decode is not runtime.DefaultUnstructuredConverter, which lets a number that is too large for its field wrap around.
func decode(object, into any) error {
	data, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// ToPolicy converts p to the policy that a [policystore.Store] takes. What p leaves out gets the same defaults as an
// API server would give it. The result shares the selectors and keys of p: they must not change afterwards.
//
// The error lists what [policystore.Policy.Validate] finds wrong, by field.
func (p *PlacementPolicy) ToPolicy() (policystore.Policy, error) {
	policy := policystore.Policy{
		NamespacedName:  types.NamespacedName{Namespace: p.Namespace, Name: p.Name},
		Weight:          p.Spec.Weight,
		EnforcementMode: policystore.EnforcementMode(p.Spec.EnforcementMode),
		PodSelector:     p.Spec.PodSelector,
		NodeSelector:    p.Spec.NodeSelector,
		MatchLabelKeys:  p.Spec.MatchLabelKeys,
		Action:          policystore.Action(p.Spec.Policy.Action),
		TargetSize:      p.Spec.Policy.TargetSize,
	}
	if p.Spec.Groups != nil {
		policy.Groups = make([]policystore.NodeGroup, len(p.Spec.Groups)) // not nil, even if there are none
		for i, g := range p.Spec.Groups {
			policy.Groups[i] = policystore.NodeGroup(g)
		}
	}
	err := policy.Validate()
	if err == nil {
		return policy, nil
	}
	// Validate leaves spec out of the names of the fields. It makes new errors each time, so these may be changed.
	if list := utilerrors.Aggregate(nil); errors.As(err, &list) {
		for _, e := range list.Errors() {
			if f := (*field.Error)(nil); errors.As(e, &f) {
				f.Field = "spec." + f.Field
			}
		}
		err = list
	}
	return policystore.Policy{}, fmt.Errorf("invalid placement policy %s: %w", policy.NamespacedName, err)
}
