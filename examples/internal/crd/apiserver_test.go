// Package crd tests the CustomResourceDefinition of placement policies with the code of the API server.
package crd

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
)

// apiServer does to an object what an API server with the embedded CRD does when the object is created.
type apiServer struct {
	structural *schema.Structural
	schema     validation.SchemaValidator
	cel        *cel.Validator
}

// newAPIServer fails the test if an API server would not take the CRD.
func newAPIServer(t testing.TB) apiServer {
	t.Helper()
	var v1CRD apiextensionsv1.CustomResourceDefinition
	require.NoError(t, yaml.UnmarshalStrict([]byte(v1alpha1.CRDManifest()), &v1CRD))
	apiextensionsv1.SetDefaults_CustomResourceDefinition(&v1CRD)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&v1CRD.Spec)
	var crd apiextensions.CustomResourceDefinition
	require.NoError(
		t,
		apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(
			&v1CRD,
			&crd,
			nil,
		),
	)
	crd.Status.StoredVersions = []string{v1alpha1.SchemeGroupVersion.Version}
	// Structural schema, valid defaults, rules that compile and cost little enough.
	require.Empty(t, apiextensionsvalidation.ValidateCustomResourceDefinition(t.Context(), &crd))

	openAPI, err := apiextensions.GetSchemaForVersion(&crd, v1alpha1.SchemeGroupVersion.Version)
	require.NoError(t, err)
	var s apiServer
	s.structural, err = schema.NewStructural(openAPI.OpenAPIV3Schema)
	require.NoError(t, err)
	s.schema, _, err = validation.NewSchemaValidator(openAPI.OpenAPIV3Schema)
	require.NoError(t, err)
	s.cel = cel.NewValidator(s.structural, true, celconfig.PerCallLimit)
	return s
}

// create prunes nulls from obj, sets its defaults and returns what is wrong with it; unknown fields too, as with
// kubectl.
func (s apiServer) create(t testing.TB, obj map[string]any) field.ErrorList {
	t.Helper()
	unknown := pruning.PruneWithOptions(
		obj,
		s.structural,
		true,
		schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true},
	)
	var errs field.ErrorList
	for _, path := range unknown {
		errs = append(errs, field.Forbidden(field.NewPath(path), "unknown field"))
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(obj, s.structural)
	defaulting.Default(obj, s.structural)

	errs = append(errs, validation.ValidateCustomResource(nil, obj, s.schema)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s.structural, obj)...)
	if len(errs) == 0 { // as an API server does after most of these errors
		celErrs, _ := s.cel.Validate(t.Context(), nil, s.structural, obj, nil, celconfig.RuntimeCELCostBudget)
		errs = append(errs, celErrs...)
	}
	return errs
}

// object decodes a manifest in the way an API server does: integers stay integers.
func object(t testing.TB, manifest string) *unstructured.Unstructured {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(manifest))
	require.NoError(t, err)
	u := &unstructured.Unstructured{}
	require.NoError(t, u.UnmarshalJSON(data))
	return u
}

// policyObject returns a placement policy with the given fields below spec, as a YAML flow mapping.
func policyObject(t testing.TB, spec string) *unstructured.Unstructured {
	t.Helper()
	return object(t, `
apiVersion: placement-policy.scheduling.x-k8s.io/v1alpha1
kind: PlacementPolicy
metadata: {name: web-on-spot, namespace: default}
spec: `+spec)
}
