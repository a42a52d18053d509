package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
)

// fieldManager owns the fields of applied manifests.
const fieldManager = "controlplane"

// servedTimeout is how long the API server may take to serve a custom resource whose definition was applied.
const servedTimeout = 30 * time.Second

// Apply applies manifests as the admin, like kubectl apply --server-side --force-conflicts, in the order given. Each
// manifest is YAML or JSON of one or more documents. Objects without a namespace go to the namespace default. When
// Apply returns, the custom resources whose definitions it applied are served; they may be among the manifests too,
// behind their definition.
func (cp *ControlPlane) Apply(ctx context.Context, manifests ...[]byte) error {
	for _, manifest := range manifests {
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
		for {
			object := &unstructured.Unstructured{}
			err := decoder.Decode(&object.Object)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return fmt.Errorf("parsing a manifest: %w", err)
			}
			if len(object.Object) == 0 { // nothing but comments
				continue
			}
			if err := cp.applyObject(ctx, object); err != nil {
				return fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
			}
		}
	}
	return nil
}

func (cp *ControlPlane) applyObject(ctx context.Context, object *unstructured.Unstructured) error {
	resource, err := cp.resourceFor(object)
	if err != nil {
		return err
	}
	options := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
	if _, err := resource.Apply(ctx, object.GetName(), object, options); err != nil {
		return err
	}
	if object.GetKind() != "CustomResourceDefinition" {
		return nil
	}
	group, _, _ := unstructured.NestedString(object.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(object.Object, "spec", "names", "kind")
	ctx, cancel := context.WithTimeout(ctx, servedTimeout)
	defer cancel()
	return cp.await(ctx, kind+" to be served", func(context.Context) error {
		cp.mapper.Reset()
		_, err := cp.mapper.RESTMapping(schema.GroupKind{Group: group, Kind: kind})
		return err
	}, nil)
}

// resourceFor returns a client for the objects of the object's kind and namespace.
func (cp *ControlPlane) resourceFor(object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := object.GroupVersionKind()
	mapping, err := cp.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	resource := cp.dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return resource, nil
	}
	namespace := object.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return resource.Namespace(namespace), nil
}
