package feeder

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
)

const (
	// resourceTimeout bounds how long CheckResource waits for an API server that does not answer.
	resourceTimeout = 30 * time.Second
	// maxRefusals is how often, once a second, the API server refuses to list policies before CheckResource believes
	// it: one that has just started does not know at once what there is and who may read it.
	maxRefusals = 4
)

// NewPolicyInformer returns an informer for the placement policies of all namespaces, without their managed fields.
// They are unstructured objects: one that does not fit the type, stored before the schema was as strict as it is,
// must not hide the others.
func NewPolicyInformer(client dynamic.Interface) cache.SharedIndexInformer {
	informer := dynamicinformer.NewFilteredDynamicInformer(client, v1alpha1.Resource(), metav1.NamespaceAll, 0,
		cache.Indexers{}, nil).Informer()
	_ = informer.SetTransform(func(obj any) (any, error) { // the only possible error is that it has been started
		if o, ok := obj.(metav1.Object); ok {
			o.SetManagedFields(nil)
		}
		return obj, nil
	})
	return informer
}

// CheckResource makes sure that placement policies can be listed: a program that waits for them without that waits in
// vain. The error says what to do. If the API server does not answer it tries for half a minute.
func CheckResource(ctx context.Context, client dynamic.Interface) error {
	logger := klog.FromContext(ctx)
	refusals := 0
	var unanswered error // the first one: the last may only say that there was no time for another request
	err := wait.PollUntilContextTimeout(
		ctx,
		time.Second,
		resourceTimeout,
		true,
		func(ctx context.Context) (bool, error) {
			_, err := client.Resource(v1alpha1.Resource()).List(ctx, metav1.ListOptions{Limit: 1})
			var refused error
			switch {
			case err == nil:
				return true, nil
			case apierrors.IsNotFound(err):
				refused = fmt.Errorf("the resource %s is not installed: "+
					"apply the CustomResourceDefinition in placementpolicy/v1alpha1/%s: %w",
					v1alpha1.Resource().GroupResource(), v1alpha1.CRDFile, err)
			case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
				refused = fmt.Errorf("the client may not list %s: grant it list and watch, as examples/deploy does: %w",
					v1alpha1.Resource().GroupResource(), err)
			}
			if refused != nil {
				if refusals++; refusals == maxRefusals {
					return false, refused
				}
			}
			logger.Info("Waiting for the API server to list placement policies", "err", err)
			if unanswered == nil {
				unanswered = err
			}
			return false, nil
		},
	)
	if wait.Interrupted(err) && unanswered != nil {
		return fmt.Errorf("waiting for the API server to list placement policies: %w", unanswered)
	}
	return err
}
