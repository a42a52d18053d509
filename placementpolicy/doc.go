// Package placementpolicy is a kube-scheduler plugin that holds the pods of a workload to a ratio between groups of
// nodes, as PlacementPolicy objects say. It is thin: what it knows is in a [policystore.Store], which also decides.
//
// A scheduler registers it and enables it with one line of its configuration:
//
//	app.NewSchedulerCommand(app.WithPlugin(placementpolicy.Name, placementpolicy.New))
//
//	profiles:
//	- schedulerName: default-scheduler
//	  plugins:
//	    multiPoint:
//	      enabled:
//	      - {name: placementpolicy, weight: 20}
//
// What it does at each extension point:
//
//	PreFilter  waits, before the first decision, until the store knows all that was there at the start; takes the decision;
//	           keeps the pod, in a large cluster, to nodes of its preferred group while there is room
//	Filter     keeps pods of Strict policies out of groups that have all their pods, and pods of BestEffort policies off a
//	           nominated node outside their preferred group until all nodes were tried
//	PostFilter has a pod that found no room in its preferred group tried on all nodes
//	PreScore   takes a decision of its own, so that the score points also work alone
//	Score      prefers the nodes that keep the ratio of what is placed exact
//	Reserve    counts the pod as placed, in one step with a last check
//	Permit     lets every pod pass, and notes that it came so far
//	Unreserve  undoes what Reserve did, at once if the pod cannot be bound, else when the API server has said that it is not
//
// A pod that the plugin has kept out of a group is tried again when the group opens: as many of them as there are
// places. Pods that no policy governs cost a map lookup. The plugin writes nothing to the API server on the way of a
// pod. Beside it, it keeps the status of the policies up to date, and records events on those that cannot be followed.
//
// The package needs no k8s.io/kubernetes, so it compiles into any scheduler distribution.
package placementpolicy
