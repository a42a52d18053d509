// Command embedding-scheduler is a scheduler with plugins of its own beside the placement policy plugin, in two
// profiles. Its plugins read the store that the placement policy plugin feeds: for them nothing is counted, watched or
// kept a second time.
package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-base/cli"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	// Registers the JSON log format, as kube-scheduler does.
	_ "k8s.io/component-base/logs/json/register"
	// Registers the metrics of client-go and of the running version.
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"

	"github.com/placement-policy/scheduler-plugin/placementpolicy"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

func main() {
	os.Exit(cli.Run(newCommand()))
}

// newCommand returns the scheduler. All of its profiles, and the plugins in them, share one store.
func newCommand() *cobra.Command {
	store := policystore.New()
	return app.NewSchedulerCommand(
		app.WithPlugin(placementpolicy.Name, placementpolicy.NewWithStore(store)),
		app.WithPlugin(makeWayName, func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
			return &makeWay{store: store}, nil
		}),
		app.WithPlugin(
			placementLogName,
			func(_ context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
				return &placementLog{
					store: store,
					nodes: handle.SharedInformerFactory().Core().V1().Nodes().Lister(),
				}, nil
			},
		),
	)
}
