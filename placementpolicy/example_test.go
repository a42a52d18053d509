package placementpolicy_test

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/placement-policy/scheduler-plugin/placementpolicy"
	"github.com/placement-policy/scheduler-plugin/policystore"
)

// A scheduler's other plugins may read the store, which all profiles share. The registry of kube-scheduler's plugins is such a
// map; app.WithPlugin adds to it.
func ExampleNewWithStore() {
	store := policystore.New()
	registry := map[string]func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error){
		placementpolicy.Name: placementpolicy.NewWithStore(store),
		// "another": newAnother(store),
	}
	_, registered := registry["placementpolicy"]
	fmt.Println(registered, len(store.Policies()))
	// Output: true 0
}
