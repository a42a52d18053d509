package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The comments on the types below are also what `kubectl explain placementpolicy` prints.
//
// The two selectors are required by rules on the spec, not by the schema, because a rule can say what to write. The
// syntax of label keys and values in selectors is left to the store, and so are the operators in those of groups: rules
// for it would cost more than an API server allows, since nothing bounds the size of a metav1.LabelSelector.
//
// matchLabelKeys is an atomic list: in a set, the default would stay beside the keys that a server-side apply brings.
// groups is one too, since the order of the groups matters.
//
// policy has no default of its own, which would stand beside groups. Objects that were stored with one keep it, and may
// have groups put in its place by an apply that knows nothing of it: so groups bear with a policy that says no more
// than that.

// EnforcementMode says what happens to a pod when the nodes that it should go to have no room.
// +kubebuilder:validation:Enum=BestEffort;Strict
type EnforcementMode string

const (
	// BestEffort lets the pod go to the other nodes.
	BestEffort EnforcementMode = "BestEffort"
	// Strict keeps the pod pending rather than break the ratio.
	Strict EnforcementMode = "Strict"
)

// Action says which nodes are the target group.
// +kubebuilder:validation:Enum=Must;MustNot
type Action string

const (
	// Must makes the nodes that the node selector matches the target group.
	Must Action = "Must"
	// MustNot makes the nodes that the node selector does not match the target group.
	MustNot Action = "MustNot"
)

// PlacementPolicy asks the scheduler to divide some pods over groups of nodes, such as 40% of the pods of an
// application on spot nodes, and the rest on the other nodes.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=pp
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.enforcementMode`
// +kubebuilder:printcolumn:name="Action",type=string,JSONPath=`.spec.policy.action`
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.spec.policy.targetSize`
// +kubebuilder:printcolumn:name="Managed",type=integer,JSONPath=`.status.managedPods`
// +kubebuilder:printcolumn:name="Target",type=integer,JSONPath=`.status.targetPods`
// +kubebuilder:printcolumn:name="Qualifying",type=integer,JSONPath=`.status.qualifyingPods`
// +kubebuilder:printcolumn:name="On-Target",type=string,JSONPath=`.status.conditions[?(@.type=="OnTarget")].status`
// +kubebuilder:printcolumn:name="Weight",type=integer,JSONPath=`.spec.weight`,priority=1
// +kubebuilder:printcolumn:name="Pods",type=string,JSONPath=`.spec.podSelector`,priority=1
// +kubebuilder:printcolumn:name="Nodes",type=string,JSONPath=`.spec.nodeSelector`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PlacementPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says which pods are to be placed where.
	// +required
	Spec PlacementPolicySpec `json:"spec"`

	// status says where the pods are, as the scheduler counts them. The scheduler writes it, within seconds.
	// +optional
	Status PlacementPolicyStatus `json:"status,omitzero"`
}

// PlacementPolicySpec says which pods are to be placed where.
// +kubebuilder:validation:XValidation:rule="has(self.podSelector)",reason=FieldValueRequired,fieldPath=".podSelector",message="write the labels of the pods to place, or {} for every pod of the namespace"
// +kubebuilder:validation:XValidation:rule="has(self.nodeSelector) || has(self.groups)",reason=FieldValueRequired,fieldPath=".nodeSelector",message="write the labels of the nodes that policy.action is about, or {} for every node; or write groups in its place"
// +kubebuilder:validation:XValidation:rule="!has(self.nodeSelector) || !has(self.groups)",reason=FieldValueForbidden,fieldPath=".nodeSelector",message="leave it out, since each of the groups has its own; or leave out groups"
// +kubebuilder:validation:XValidation:rule="!has(self.policy) || !has(self.groups) || (self.policy.action == 'Must' && self.policy.targetSize == '100%')",reason=FieldValueForbidden,fieldPath=".policy",message="leave it out, since the groups say how many of the pods belong on each; or leave out groups"
type PlacementPolicySpec struct {
	// weight decides which policy governs a pod that several policies select: the one with the highest weight, then a
	// Strict one before a BestEffort one, then the first by name. An integer of 0 or more; 0 by default.
	// +optional
	// +default=0
	// +kubebuilder:validation:Minimum=0
	Weight int32 `json:"weight,omitempty"`

	// enforcementMode says what happens to a pod when the nodes that it should go to have no room. Strict keeps it
	// pending rather than break the ratio. BestEffort, the default, lets it go to the other nodes.
	// +optional
	// +default="BestEffort"
	EnforcementMode EnforcementMode `json:"enforcementMode,omitempty"`

	// podSelector selects the pods to place, by their labels, among those of the policy's own namespace. Required: {}
	// selects all of them.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && size(e.values) > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || size(e.values) == 0))",fieldPath=".matchExpressions",message="write the operator In or NotIn with values, or Exists or DoesNotExist without values"
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`

	// nodeSelector divides the nodes, by their labels, into those that it matches and the others; policy.action says
	// which of the two groups is the target. Required, unless there are groups: {} matches every node.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && size(e.values) > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || size(e.values) == 0))",fieldPath=".matchExpressions",message="write the operator In or NotIn with values, or Exists or DoesNotExist without values"
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// matchLabelKeys are keys of pod labels. The selected pods that agree on the values of all these labels are held to
	// the policy by themselves, apart from the others; a label that a pod lacks is left out. By default
	// [pod-template-hash, rollouts-pod-template-hash]: each revision of a Deployment or an Argo Rollout by itself, so
	// that a rolling update ends on the ratio. [] counts all selected pods together. At most 16 keys.
	// +optional
	// +default=["pod-template-hash","rollouts-pod-template-hash"]
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, b == a))",message="write each label key once"
	// +kubebuilder:validation:items:MaxLength=317
	// +kubebuilder:validation:items:XValidation:rule="!format.qualifiedName().validate(self).hasValue()",message="write a label key, such as pod-template-hash or example.com/revision"
	MatchLabelKeys []string `json:"matchLabelKeys,omitzero"`

	// policy says how many of the pods are to be placed in which of the two groups of nodes that nodeSelector makes. By
	// default all of them on nodes that it matches.
	// +optional
	Policy Policy `json:"policy,omitzero"`

	// groups are 1 to 8 groups of nodes, in order, in place of nodeSelector and policy. The first pods go to the bases of
	// the groups. Of the others each group has its share, all shares together rounded down to whole pods; the last group
	// has the rest. For example: {name: spot, nodeSelector: ..., share: 70%} and {name: on-demand, base: 2} place two
	// pods on demand, and then 70% of the others on spot nodes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, b.name == a.name))",message="give each group a name of its own"
	// +kubebuilder:validation:XValidation:rule="self.all(g, has(g.nodeSelector) || g.name == self[size(self) - 1].name)",message="write the nodeSelector of each group; only the last one may leave it out, and then has all other nodes"
	// +kubebuilder:validation:XValidation:rule="!has(self[size(self) - 1].share) && !has(self[size(self) - 1].max)",message="leave out share and max of the last group: it takes the rest"
	// +kubebuilder:validation:XValidation:rule="self.map(g, has(g.share) && g.share.matches('^(100|[0-9]{1,2})%$') ? int(g.share.replace('%', '')) : 0).sum() <= 100",message="write shares that add up to at most 100%"
	Groups []Group `json:"groups,omitempty"`
}

// Group is a group of nodes, and says how many of the pods belong on it.
type Group struct {
	// name of the group: a DNS label, unique in the policy. Status, events and metrics use it.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="write a DNS label, such as spot-a: lower-case letters, digits and -"
	Name string `json:"name"`

	// nodeSelector selects the nodes of the group, by their labels, but for those that an earlier group has. Required but
	// in the last group, where to leave it out means all other nodes. A node that no group has is in none: Strict keeps
	// the pods off it.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// base is how many pods belong on this group first, before any shares; of several groups with a base the first comes
	// first. An integer of 0 or more; 0 by default.
	// +optional
	// +default=0
	// +kubebuilder:validation:Minimum=0
	Base int32 `json:"base,omitempty"`

	// share is the percentage, from 0% to 100%, of the pods beyond all bases that belong on this group. 0% by default. All
	// shares add up to at most 100%. The last group takes the rest, and has no share.
	// +optional
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XValidation:rule="self.matches('^(100|[0-9]{1,2})%$')",message="write a percentage from 0% to 100%, such as 40%"
	Share string `json:"share,omitempty"`

	// max is how many pods belong on this group at most. What is over belongs on the last group, which has no max. An
	// integer of 0 or more; no limit by default.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Max *int32 `json:"max,omitempty"`
}

// Policy says how many of the pods are to be placed in which of two groups of nodes.
type Policy struct {
	// action says which nodes are the target group: with Must, the default, those that nodeSelector matches; with
	// MustNot those that it does not match.
	// +optional
	// +default="Must"
	Action Action `json:"action,omitempty"`

	// targetSize is how many of the pods belong in the target group: an integer of 0 or more, or a percentage from 0% to
	// 100%, rounded down to whole pods. The rest belong on the other nodes. 100% by default.
	// +optional
	// +default="100%"
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 2147483647 : self.matches('^(100|[0-9]{1,2})%$')",message="write an integer of 0 or more, or a percentage from 0% to 100%, such as 40%"
	TargetSize *intstr.IntOrString `json:"targetSize,omitempty"`
}

// MaxOffTargetCohorts is how many off-target cohorts a status lists at most.
const MaxOffTargetCohorts = 10

// Types of the conditions of a PlacementPolicy, and their reasons.
const (
	// ConditionAccepted is False if the spec is invalid: the policy then governs no pods until it is mended.
	ConditionAccepted = "Accepted"
	ReasonValid       = "Valid"
	ReasonInvalid     = "Invalid"

	// ConditionOnTarget is True if all qualifying pods are placed, and in each cohort as many in each group as belong
	// there. It is Unknown if the spec is invalid.
	ConditionOnTarget = "OnTarget"
	ReasonOnTarget    = "OnTarget"
	// ReasonPodsPending: pods are yet to be placed.
	ReasonPodsPending = "PodsPending"
	// ReasonNoRoom: pods wait because groups that are full keep them out, and no node of the others takes them: these have
	// no room, or the pods may not go there.
	ReasonNoRoom = "NoRoom"
	// ReasonDrift: all pods are placed, but not as they should be: after a scale-down, for example, after a change of the
	// policy or of a node's labels, or because a BestEffort policy found no room. The next pods repair it.
	ReasonDrift = "Drift"

	// ConditionConflicted is True if the policy selects pods that another policy governs: a heavier one, say.
	ConditionConflicted = "Conflicted"
	ReasonOverruled     = "Overruled"
	ReasonNoConflict    = "NoConflict"
)

// PlacementPolicyStatus says where the pods of a policy are.
type PlacementPolicyStatus struct {
	// observedGeneration is the metadata.generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// qualifyingPods is how many active pods the policy governs, pending ones too.
	// +optional
	QualifyingPods int32 `json:"qualifyingPods"`

	// managedPods is how many of them are placed in any group but the last: without groups in the spec, in target.
	// +optional
	ManagedPods int32 `json:"managedPods"`

	// otherPods is how many of them are placed in the last group.
	// +optional
	OtherPods int32 `json:"otherPods"`

	// targetPods is how many of them belong where the managed ones are.
	// +optional
	TargetPods int32 `json:"targetPods"`

	// groups says how many pods are in each group, in order. Without groups in the spec they are target and other.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Groups []GroupStatus `json:"groups,omitempty"`

	// cohorts is how many cohorts there are: sets of pods, such as the revisions of a Deployment, that are held to
	// the policy each by itself.
	// +optional
	Cohorts int32 `json:"cohorts"`

	// offTargetCohorts are the cohorts, or the first of them, that have more or fewer pods in a group than belong there.
	// At most 10.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	OffTargetCohorts []CohortStatus `json:"offTargetCohorts,omitempty"`

	// conditions are Accepted, OnTarget and Conflicted.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// GroupStatus says how many pods are in a group.
type GroupStatus struct {
	// name of the group.
	Name string `json:"name"`

	// pods is how many pods are placed in the group.
	Pods int32 `json:"pods"`

	// targetPods is how many of the qualifying pods belong in the group.
	TargetPods int32 `json:"targetPods"`
}

// CohortStatus says where the pods of one cohort are.
type CohortStatus struct {
	// labels are the labels that the pods of the cohort agree on: those of matchLabelKeys that they have.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// qualifyingPods is how many active pods the cohort has, pending ones too.
	QualifyingPods int32 `json:"qualifyingPods"`

	// managedPods is how many of them are placed in any group but the last: without groups in the spec, in target.
	ManagedPods int32 `json:"managedPods"`

	// otherPods is how many of them are placed in the last group.
	OtherPods int32 `json:"otherPods"`

	// targetPods is how many of them belong where the managed ones are.
	TargetPods int32 `json:"targetPods"`

	// groups says how many pods are in each group, in order.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Groups []GroupStatus `json:"groups,omitempty"`
}

// PlacementPolicyList is a list of placement policies.
// +kubebuilder:object:root=true
type PlacementPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []PlacementPolicy `json:"items"`
}
