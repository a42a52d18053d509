package perf

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
)

// The label of nodes that divides them into groups, and its value in the target group.
const (
	poolLabel  = "pool"
	targetPool = "spot"
)

// createPolicies returns when the plugin knows all policies.
func (r *run) createPolicies(ctx context.Context, client dynamic.Interface) error {
	names := make([]string, *policies)
	for i := range names {
		policy := newPolicy(i, r.Variant)
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(policy)
		if err != nil {
			return err
		}
		if _, err := client.Resource(
			v1alpha1.Resource(),
		).Namespace(
			namespace,
		).Create(
			ctx,
			&unstructured.Unstructured{Object: object},
			metav1.CreateOptions{},
		); err != nil {
			return fmt.Errorf("creating a policy: %w", err)
		}
		names[i] = policy.Name
	}
	return wait.PollUntilContextTimeout(
		ctx,
		100*time.Millisecond,
		readyTimeout,
		true,
		func(context.Context) (bool, error) {
			for _, name := range names {
				if _, ok := r.store.Policy(types.NamespacedName{Namespace: namespace, Name: name}); !ok {
					return false, nil
				}
			}
			return true, nil
		},
	)
}

// newPolicy returns the policy of the i-th application.
func newPolicy(i int, v variant) *v1alpha1.PlacementPolicy {
	app := fmt.Sprint("app-", i)
	if v.Unrelated {
		app = fmt.Sprint("unrelated-", i)
	}
	size := intstr.FromString(fmt.Sprint(targetSize, "%"))
	return &v1alpha1.PlacementPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "PlacementPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec: v1alpha1.PlacementPolicySpec{
			EnforcementMode: v.Policies,
			PodSelector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
			NodeSelector:    &metav1.LabelSelector{MatchLabels: map[string]string{poolLabel: targetPool}},
			Policy:          v1alpha1.Policy{TargetSize: &size},
		},
	}
}

// placement is where the pods went.
type placement struct {
	pods     int // that have a node
	inTarget int
	// misplaced is how many pods would have to be in the other group for each application to have its share in the
	// target group.
	misplaced int
}

func newPlacement(pods *v1.PodList, nodes *v1.NodeList) placement {
	target := map[string]bool{}
	for _, node := range nodes.Items {
		target[node.Name] = node.Labels[poolLabel] == targetPool
	}
	all := placement{}
	apps := map[string]placement{}
	for _, pod := range pods.Items {
		if pod.Spec.NodeName == "" {
			continue
		}
		app := apps[pod.Labels["app"]]
		app.pods++
		if target[pod.Spec.NodeName] {
			app.inTarget++
		}
		apps[pod.Labels["app"]] = app
	}
	for _, app := range apps {
		all.pods += app.pods
		all.inTarget += app.inTarget
		wanted := app.pods * targetSize / 100
		all.misplaced += max(app.inTarget-wanted, wanted-app.inTarget)
	}
	return all
}
