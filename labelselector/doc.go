// Package labelselector compiles label selectors and finds, for a set of labels, all the selectors
// that match it.
//
// A [Selector] is compiled and validated once and then matched many times. An [Index] holds many
// selectors under keys of any comparable type; finding the ones that match costs about as much as
// the label set is large, however many selectors there are.
package labelselector
