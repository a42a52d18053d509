// Package schedulerplugin is the root of a module that divides a workload's pods over groups of nodes, such as 40% on
// spot nodes and the rest elsewhere. It has no code of its own. The packages, each of which may import those above it:
//
//   - labelselector compiles label selectors, and finds those of many that match a label set.
//   - policystore keeps all placement state in memory and takes the decisions. It knows nothing of schedulers and clients, so
//     that a scheduler, a descheduler, a controller, a simulator or a unit test can embed it.
//   - placementpolicy/v1alpha1 has the PlacementPolicy API: types, defaults, and the CustomResourceDefinition.
//   - placementpolicy is the kube-scheduler plugin, a thin layer over policystore. It does not import k8s.io/kubernetes, so it
//     compiles in any scheduler distribution.
//   - examples has a custom scheduler, one with plugins of its own beside this one, a quickstart that shows it at work on a
//     control plane of its own, a simulator that needs no cluster, manifests, and the documentation for operators.
package schedulerplugin
