package perf

import (
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/placement-policy/scheduler-plugin/placementpolicy"
	"github.com/placement-policy/scheduler-plugin/placementpolicy/v1alpha1"
)

// variant is a way to schedule the workload.
type variant struct {
	// Name is what the flag -perf.variants and scheduler_perf call it.
	Name string
	// About describes it in the table of results.
	About string
	// Plugin makes the plugin that examples/scheduler/config.yaml enables, for one run. Without it the scheduler is the
	// stock one.
	Plugin func(*run) frameworkruntime.PluginFactory
	// Policies are created before the pods. Without a mode there are none.
	Policies v1alpha1.EnforcementMode
	// Unrelated: the policies are for other applications than those of the pods.
	Unrelated bool
	// Spread gives the pods a topology spread constraint over the two groups.
	Spread bool
}

// The variants that others are compared with.
const (
	stock     = "stock"
	doNothing = "do-nothing"
)

var variants = []variant{
	{Name: stock, About: "stock kube-scheduler"},
	{Name: doNothing, About: "with a plugin that does nothing", Plugin: newDoNothing},
	{Name: "no-policy", About: "with the plugin, no policy", Plugin: newPlugin},
	{
		Name:      "unrelated",
		About:     "policies govern none of the pods",
		Plugin:    newPlugin,
		Policies:  v1alpha1.Strict,
		Unrelated: true,
	},
	{Name: "strict", About: "policies govern all pods, Strict", Plugin: newPlugin, Policies: v1alpha1.Strict},
	{
		Name:     "best-effort",
		About:    "policies govern all pods, BestEffort",
		Plugin:   newPlugin,
		Policies: v1alpha1.BestEffort,
	},
	{Name: "spread", About: "stock kube-scheduler, PodTopologySpread over the groups", Spread: true},
	{
		Name:     "timed",
		About:    "as strict, with a clock at each call of the plugin",
		Plugin:   newTimedPlugin,
		Policies: v1alpha1.Strict,
	},
}

// governs reports whether policies govern the pods.
func (v variant) governs() bool { return v.Policies != "" && !v.Unrelated }

// registry has the variant's plugin under the name that examples/scheduler/config.yaml enables.
func (v variant) registry(r *run) frameworkruntime.Registry {
	if v.Plugin == nil {
		return nil
	}
	return frameworkruntime.Registry{placementpolicy.Name: v.Plugin(r)}
}
