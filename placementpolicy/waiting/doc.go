// Package waiting has the pods wait that a placement policy keeps out of a group of nodes, and has them tried once the
// policy lets them in. A scheduler has no event for most of what can do that: other pending pods raise the targets, and
// policies are edited and replaced. And for the rest it may ask before the store knows.
//
// A pod is in one of these states:
//
//	           Add               a place for it               try, PreFilter: Tried
//	unknown ---------> waiting ------------------> its turn ------------------------> tried
//	                      ^                           |                                 |
//	                      +---- others were faster ---+                                 |
//	                      +------------------------ Add --------------------------------+
//
//	Remove leads from everywhere back to unknown: the pod is placed, bound or gone.
//
// It is the turn of as many pods of a cohort as it has places: if all were tried, of thousands, the scheduler would do
// nothing else for long. Pods that cannot use the place, which only the scheduler's filters can tell, give way to twice
// as many each time that all of them were tried. A pod whose turn comes again and again in vain is tried ever more
// seldom, as the scheduler's own back-off has it.
//
// Pods wait for the policy that governs them now, not for the one that has kept them out: if that is replaced, or their
// labels change, they follow.
//
// The package is for schedulers that ask a [policystore.Store]. It knows no scheduler framework.
package waiting
