package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
)

const (
	// fieldManager owns the fields of applied manifests.
	fieldManager = "controlplane"

	// servedTimeout is how long an object's kind may take to be served, after its CustomResourceDefinition was applied.
	servedTimeout = 10 * time.Second
)

// Apply applies manifests as the admin, like kubectl apply --server-side --force-conflicts, in the order given. Each manifest is YAML
// or JSON of one or more documents. Objects without a namespace go to the namespace default. Custom resources may follow
// their definition: Apply waits up to 10 seconds until their kind is served.
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
	ctx, cancel := context.WithTimeout(ctx, servedTimeout)
	defer cancel()
	var refusal error
	err := cp.await(ctx, "its kind to be served", func(ctx context.Context) error {
		resource, err := cp.resourceFor(object)
		if err == nil {
			_, err = resource.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
		}
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			cp.mapper.Reset()
			return err
		}
		refusal = err
		return nil
	})
	if err != nil {
		return err
	}
	return refusal
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
