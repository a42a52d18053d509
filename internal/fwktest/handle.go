package fwktest

import (
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"
)

// NewHandle returns a handle of nothing but the recorder of events, to embed in one that has more.
func NewHandle(recorder events.EventRecorderLogger) fwk.Handle {
	return newHandle(fwk.Handle.EventRecorder, recorder)
}

// handle has a recorder of the type that the release of Kubernetes says: 1.35 has an older one than those since.
type handle[R any] struct {
	fwk.Handle
	recorder R
}

func (h handle[R]) EventRecorder() R { return h.recorder }

// newHandle uses only the type of its first argument.
func newHandle[R any](_ func(fwk.Handle) R, recorder events.EventRecorderLogger) fwk.Handle {
	return any(handle[R]{recorder: recorder.(R)}).(fwk.Handle)
}
