// Package v1alpha1 holds the PlacementPolicy API: its types, the CustomResourceDefinition that makes an API server
// serve, default and validate them, and their conversion to the policies of package policystore.
//
// The API server refuses what [CRDManifest] can tell to be wrong. A scheduler still has to expect anything, since
// objects stay stored when a definition becomes stricter: it reads each object with [FromUnstructured], which confines
// a value of the wrong type to the object that has it, and checks the rest with [PlacementPolicy.ToPolicy].
//
// +kubebuilder:object:generate=true
// +groupName=placement-policy.scheduling.x-k8s.io
package v1alpha1

//go:generate env GOWORK=off go tool -modfile=../../internal/tools/go.mod controller-gen object crd paths=. output:dir=.
