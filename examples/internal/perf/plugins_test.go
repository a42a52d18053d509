package perf

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"sigs.k8s.io/yaml"

	"github.com/placement-policy/scheduler-plugin/placementpolicy"
	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
)

// newPlugin makes the plugin, with the run's store. It installs the CustomResourceDefinition, since scheduler_perf lets
// nobody do that between the starts of the API server and the scheduler.
func newPlugin(r *run) frameworkruntime.PluginFactory {
	factory := placementpolicy.NewWithStore(r.store)
	return func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		if err := installCRD(ctx, handle.KubeConfig()); err != nil {
			return nil, fmt.Errorf("installing the CustomResourceDefinition: %w", err)
		}
		return factory(ctx, args, handle)
	}
}

// installCRD returns when the API server serves policies.
func installCRD(ctx context.Context, config *rest.Config) error {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict([]byte(v1alpha1.CRDManifest()), &crd); err != nil {
		return err
	}
	client, err := apiextensions.NewForConfig(config)
	if err != nil {
		return err
	}
	if _, err := client.ApiextensionsV1().CustomResourceDefinitions().Create(
		ctx,
		&crd,
		metav1.CreateOptions{},
	); err != nil {
		return err
	}
	policies, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(
		ctx,
		100*time.Millisecond,
		30*time.Second,
		true,
		func(ctx context.Context) (bool, error) {
			_, err := policies.Resource(v1alpha1.Resource()).List(ctx, metav1.ListOptions{})
			return err == nil, nil
		},
	)
}

// nothing is a plugin that does nothing: what any plugin costs, and how exact the measurement is.
type nothing struct{}

var (
	_ fwk.PreFilterPlugin = nothing{}
	_ fwk.FilterPlugin    = nothing{}
	_ fwk.ScorePlugin     = nothing{}
)

func newDoNothing(*run) frameworkruntime.PluginFactory {
	return func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return nothing{}, nil }
}

// Name is that of the plugin whose place it takes in the configuration.
func (nothing) Name() string { return placementpolicy.Name }

func (nothing) PreFilter(context.Context, fwk.CycleState, *v1.Pod, []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	return nil, nil
}

func (nothing) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

func (nothing) Filter(context.Context, fwk.CycleState, *v1.Pod, fwk.NodeInfo) *fwk.Status { return nil }

func (nothing) Score(context.Context, fwk.CycleState, *v1.Pod, fwk.NodeInfo) (int64, *fwk.Status) {
	return 0, nil
}

func (nothing) ScoreExtensions() fwk.ScoreExtensions { return nil }
