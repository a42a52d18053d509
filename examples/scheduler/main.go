// Command scheduler is a kube-scheduler with the placement policy plugin: all that a custom build takes. It has the
// flags and the configuration of kube-scheduler; config.yaml beside it enables the plugin.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	// Registers the JSON log format, as kube-scheduler does.
	_ "k8s.io/component-base/logs/json/register"
	// Registers the metrics of client-go and of the running version.
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"

	"github.com/placement-policy/scheduler-plugin/placementpolicy"
)

func main() {
	command := app.NewSchedulerCommand(app.WithPlugin(placementpolicy.Name, placementpolicy.New))
	os.Exit(cli.Run(command))
}
