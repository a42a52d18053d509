package main

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
)

// with returns w with fields of a policy's spec set, such as policy.targetSize=60%. It leaves w as it is.
func (w *world) with(policy types.NamespacedName, settings []string) (*world, error) {
	u := w.policies[policy].DeepCopy()
	for _, setting := range settings {
		path, text, ok := strings.Cut(setting, "=")
		value, err := decode([]byte(text))
		if err == nil && (!ok || path == "") {
			err = errors.New("write FIELD=VALUE, as in policy.targetSize=60%")
		}
		if err == nil {
			fields := strings.Split("spec."+strings.TrimPrefix(path, "spec."), ".")
			err = unstructured.SetNestedField(u.Object, value, fields...)
		}
		if err != nil {
			return nil, fmt.Errorf("--set %s: %w", setting, err)
		}
	}
	if err := check(u); err != nil {
		all := strings.Join(settings, " --set ")
		return nil, fmt.Errorf("--set %s: %w (--help explains fields and values)", all, err)
	}
	changed := *w
	changed.policies = maps.Clone(w.policies)
	changed.policies[policy] = u
	return &changed, nil
}

// check says what an API server would find wrong with a policy: unlike the store, it refuses fields that it does not
// know.
func check(u *unstructured.Unstructured) error {
	if _, err := policyOf(u); err != nil {
		return err
	}
	spec, _, _ := unstructured.NestedMap(u.Object, "spec")
	converter := runtime.DefaultUnstructuredConverter
	err := converter.FromUnstructuredWithValidation(spec, &v1alpha1.PlacementPolicySpec{}, true)
	if err != nil {
		return fmt.Errorf("spec of placement policy %s: %w", keyOf(u), err)
	}
	return nil
}
