// Package integration tests the plugin in a real scheduler on a real control plane: etcd, kube-apiserver,
// kube-controller-manager, and kwok in place of the kubelets. The tests know of the scheduler only what an operator can
// see: where the API server shows the pods, events, conditions, and the scheduler's metrics.
//
// Two of them can be made to take longer, to find what is rare:
//
//	go test ./examples/internal/integration -run TestSoak -soak 10m -timeout 20m
//	go test ./examples/internal/integration -run TestKilled -kills 20 -burst 500 -timeout 30m
package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/placement-policy/scheduler-plugin/examples"
	"github.com/placement-policy/scheduler-plugin/examples/internal/controlplane"
	"github.com/placement-policy/scheduler-plugin/placementpolicy"
	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
)

// schedulerUser is who the schedulers are: the service account of examples/deploy.
const schedulerUser = "system:serviceaccount:kube-system:placement-policy-scheduler"

// defaultScheduler is the name of the profile in the example configuration.
const defaultScheduler = "default-scheduler"

func TestMain(m *testing.M) {
	runKubectl()
	controlplane.Main(func() *cobra.Command {
		return app.NewSchedulerCommand(app.WithPlugin(placementpolicy.Name, placementpolicy.New))
	})
	code := m.Run()
	if err := stopClusters(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// cluster is a control plane with the permissions of the schedulers.
type cluster struct {
	*controlplane.ControlPlane
	kubeconfig string // of the schedulers

	// scheduler serves the pods of all tests that do not start one of their own.
	scheduler *controlplane.Scheduler
}

var (
	clustersMu sync.Mutex // guards clusters
	clusters   []*cluster
)

func stopClusters() error {
	clustersMu.Lock()
	defer clustersMu.Unlock()
	var errs []error
	for _, c := range clusters {
		errs = append(errs, c.Stop())
	}
	return errors.Join(errs...)
}

// sharedCluster has the CustomResourceDefinition and a scheduler. The first test that asks for it starts it.
var sharedCluster = sync.OnceValues(func() (*cluster, error) {
	ctx := context.Background()
	c, err := startCluster(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.Apply(ctx, []byte(v1alpha1.CRDManifest())); err != nil {
		return nil, err
	}
	config, err := examples.Files.ReadFile("scheduler/config.yaml")
	if err != nil {
		return nil, err
	}
	c.scheduler, err = c.startScheduler(ctx, schedulerOptions{Config: config})
	return c, err
})

// startCluster starts a control plane with the permissions of the schedulers. It lacks the CustomResourceDefinition and
// a scheduler.
func startCluster(ctx context.Context) (*cluster, error) {
	c, err := startEmptyCluster(ctx)
	if err != nil {
		return nil, err
	}
	rbac, err := examples.Files.ReadFile("deploy/rbac.yaml")
	if err != nil {
		return nil, err
	}
	if err := c.Apply(ctx, rbac); err != nil {
		return nil, err
	}
	c.kubeconfig, err = c.ServiceAccountKubeconfig(ctx, "kube-system", "placement-policy-scheduler")
	return c, err
}

// startEmptyCluster starts a control plane that ends with the tests.
func startEmptyCluster(ctx context.Context) (*cluster, error) {
	cp, err := controlplane.Start(ctx, controlplane.Options{
		APIServerArgs: []string{
			"--feature-gates=GenericWorkload=true",
			"--runtime-config=scheduling.k8s.io/v1beta1=true",
		},
	})
	if err != nil {
		return nil, err
	}
	c := &cluster{ControlPlane: cp}
	clustersMu.Lock()
	clusters = append(clusters, c)
	clustersMu.Unlock()
	return c, nil
}

type schedulerOptions = controlplane.SchedulerOptions

// startScheduler starts a scheduler that, unless the options say otherwise, has the right to schedule at once.
func (c *cluster) startScheduler(ctx context.Context, options schedulerOptions) (*controlplane.Scheduler, error) {
	if options.Kubeconfig == "" {
		options.Kubeconfig = c.kubeconfig
	}
	options.ExtraArgs = append([]string{"--leader-elect=false"}, options.ExtraArgs...)
	return c.StartScheduler(ctx, options)
}

// exampleConfig is the example configuration of a scheduler, with the profile under another name.
func exampleConfig(t testing.TB, schedulerName string) []byte {
	t.Helper()
	config, err := examples.Files.ReadFile("scheduler/config.yaml")
	require.NoError(t, err)
	return bytes.ReplaceAll(config, []byte(defaultScheduler), []byte(schedulerName))
}
