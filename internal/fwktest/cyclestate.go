package fwktest

import (
	"reflect"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
)

// CycleState is what plugins write down in one scheduling cycle of a pod. It is safe for concurrent use as far as the
// scheduler's is: Read, Write and Delete.
type CycleState struct {
	fwk.CycleState // the methods that know the pod group, if there is one

	storage    sync.Map
	skipFilter sets.Set[string]
	inPodGroup bool
}

// NewCycleState returns the state of a cycle that begins.
func NewCycleState() *CycleState { return &CycleState{} }

func (s *CycleState) Read(key fwk.StateKey) (fwk.StateData, error) {
	if data, ok := s.storage.Load(key); ok {
		return data.(fwk.StateData), nil
	}
	return nil, fwk.ErrNotFound
}

func (s *CycleState) Write(key fwk.StateKey, data fwk.StateData) { s.storage.Store(key, data) }
func (s *CycleState) Delete(key fwk.StateKey)                    { s.storage.Delete(key) }

// Clone returns a state with clones of all data.
func (s *CycleState) Clone() fwk.CycleState {
	clone := &CycleState{CycleState: s.CycleState, skipFilter: s.skipFilter, inPodGroup: s.inPodGroup}
	s.storage.Range(func(key, data any) bool {
		clone.storage.Store(key, data.(fwk.StateData).Clone())
		return true
	})
	return clone
}

func (s *CycleState) GetSkipFilterPlugins() sets.Set[string]        { return s.skipFilter }
func (s *CycleState) SetSkipFilterPlugins(plugins sets.Set[string]) { s.skipFilter = plugins }

// NeedPodGroups skips the test with Kubernetes 1.35, whose scheduler has no cycles for pod groups.
func NeedPodGroups(t testing.TB) {
	if _, has := reflect.TypeFor[fwk.CycleState]().MethodByName("IsPodGroupSchedulingCycle"); !has {
		t.Skip("this release of Kubernetes has no pod groups")
	}
}

// InPodGroup makes the cycle a part of that of the pod's group. See NeedPodGroups.
func (s *CycleState) InPodGroup(group *CycleState) {
	s.inPodGroup = true
	s.CycleState = newMember(anyRelease.GetPodGroupSchedulingCycle, anyRelease.GetPlacementCycleState, group)
}

func (s *CycleState) IsPodGroupSchedulingCycle() bool { return s.inPodGroup }

// anyRelease has the methods whose result types have come with Kubernetes 1.36 (G) and 1.37 (P) in older releases, too:
// those of fwk.CycleState hide those of older, which are a level deeper. Only their types are used.
type anyRelease struct {
	fwk.CycleState
	deeper
}

type deeper struct{ older }

type older struct{}

func (older) GetPodGroupSchedulingCycle() any { return nil }
func (older) GetPlacementCycleState() any     { return nil }

// member has the method that leads to the group, and no other.
type member[G any] struct {
	fwk.CycleState
	group G
}

func (m member[G]) GetPodGroupSchedulingCycle() G { return m.group }

// podGroup is a CycleState as that of a group.
type podGroup[P any] struct{ *CycleState }

func (podGroup[P]) GetParentPlacementCycleState() (none P) { return none }

func newMember[G, P any](_ func(anyRelease) G, _ func(anyRelease) P, group *CycleState) fwk.CycleState {
	return any(member[G]{group: any(podGroup[P]{group}).(G)}).(fwk.CycleState)
}
