package placementpolicy_test

import (
	"fmt"

	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/placement-policy/scheduler-plugin/placementpolicy"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

// The command has the flags of kube-scheduler. Its main runs it by cli.Run of k8s.io/component-base/cli.
func ExampleNew() {
	command := app.NewSchedulerCommand(app.WithPlugin(placementpolicy.Name, placementpolicy.New))
	fmt.Println(command.Name())
	// Output: kube-scheduler
}

// The scheduler's other plugins may read the store, which all profiles share.
func ExampleNewWithStore() {
	store := policystore.New()
	command := app.NewSchedulerCommand(
		app.WithPlugin(placementpolicy.Name, placementpolicy.NewWithStore(store)),
		// app.WithPlugin("another", newAnother(store)),
	)
	fmt.Println(command.Name(), len(store.Policies()))
	// Output: kube-scheduler 0
}
