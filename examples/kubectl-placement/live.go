package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/pager"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
)

var (
	policiesResource = v1alpha1.SchemeGroupVersion.WithResource("placementpolicies")
	podsResource     = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

	namespacedResources = []schema.GroupVersionResource{
		policiesResource,
		podsResource,
		{Group: "apps", Version: "v1", Resource: "replicasets"},
		{Group: "apps", Version: "v1", Resource: "statefulsets"},
		{Version: "v1", Resource: "replicationcontrollers"},
	}
	nodesResource = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
)

var errNoDefinition = errors.New("the cluster knows no placement policies: " +
	"its API server lacks the CustomResourceDefinition placementpolicies." + v1alpha1.GroupName)

// readCluster lists the nodes of a cluster, and what else matters in a namespace or, if that is empty, in all.
func readCluster(ctx context.Context, client dynamic.Interface, namespace string) (*world, error) {
	w := newWorld()
	var forbidden []schema.GroupVersionResource
	list := func(resource schema.GroupVersionResource, namespace string) error {
		err := listAll(ctx, client.Resource(resource).Namespace(namespace), w.add)
		switch {
		case apierrors.IsForbidden(err):
			forbidden = append(forbidden, resource)
		case apierrors.IsNotFound(err) && resource == policiesResource:
			return errNoDefinition
		case err != nil:
			return fmt.Errorf("listing %s: %w", resource.GroupResource(), err)
		}
		return nil
	}
	for _, resource := range namespacedResources {
		if err := list(resource, namespace); err != nil {
			return nil, err
		}
	}
	if err := list(nodesResource, ""); err != nil {
		return nil, err
	}
	if len(forbidden) > 0 {
		return nil, forbiddenError(forbidden, namespace)
	}
	return w, nil
}

// listAll calls each with all objects of a list, which may be a long one.
func listAll(ctx context.Context, client dynamic.ResourceInterface, each func(*unstructured.Unstructured) error) error {
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return client.List(ctx, options)
	})
	return pages.EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
		return each(item.(*unstructured.Unstructured))
	})
}

// forbiddenError says what to grant.
func forbiddenError(forbidden []schema.GroupVersionResource, namespace string) error {
	where := "in all namespaces"
	if namespace != "" {
		where = "in namespace " + namespace
	}
	var names []string
	for _, resource := range forbidden {
		names = append(names, resource.GroupResource().String())
		if resource == nodesResource {
			where += ", and nodes in the whole cluster"
		}
	}
	return fmt.Errorf("you may not list %s: have the verb list granted on them %s, as by\n"+
		"  kubectl create clusterrole placement-reader --verb=list --resource=%s",
		strings.Join(names, ", "), where, strings.Join(names, ","))
}
