package v1alpha1

import (
	_ "embed"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of placement policies.
const GroupName = "placement-policy.scheduling.x-k8s.io"

// SchemeGroupVersion is the group and version of the types in this package.
var SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

// Resource returns the resource under which an API server serves placement policies.
func Resource() schema.GroupVersionResource {
	return SchemeGroupVersion.WithResource("placementpolicies")
}

// AddToScheme adds the types in this package to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion, &PlacementPolicy{}, &PlacementPolicyList{})
	metav1.AddToGroupVersion(scheme, SchemeGroupVersion)
	return nil
}

// CRDFile is the name of the file, in this package's folder, that has the manifest of [CRDManifest].
const CRDFile = "placement-policy.scheduling.x-k8s.io_placementpolicies.yaml"

//go:embed placement-policy.scheduling.x-k8s.io_placementpolicies.yaml
var crdManifest string

// CRDManifest returns the CustomResourceDefinition of placement policies as YAML: one document, to be applied before
// the scheduler starts.
func CRDManifest() string { return crdManifest }
