// Package fwktest has what tests of a scheduler plugin need of a scheduler: cycle states, nodes with their pods, and
// builders of pods and nodes. They compile with each release of the published framework that the plugin compiles with,
// and need no k8s.io/kubernetes, whose own ones belong to one release. Names are as there. What the plugin does not use
// panics.
package fwktest
