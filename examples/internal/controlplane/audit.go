package controlplane

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

const (
	auditPolicyFile = "audit-policy.yaml"
	auditLogFile    = "audit.log"
)

// auditPolicy keeps the log small: one line for each write request, without bodies.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted, Panic]
rules:
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
`

// AuditEvents calls visit for each write request that the API server has answered so far, granted or refused, in the
// order of its audit log. The events say who, what and when, but hold no bodies. A request's event may appear shortly
// after its answer.
func (cp *ControlPlane) AuditEvents(visit func(*auditv1.Event)) error {
	file, err := os.Open(cp.file(auditLogFile))
	if err != nil {
		return fmt.Errorf("reading the audit log: %w", err)
	}
	defer file.Close()
	for reader := bufio.NewReader(file); ; {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // what stands behind the last newline is still being written
		}
		if err != nil {
			return fmt.Errorf("reading the audit log: %w", err)
		}
		var event auditv1.Event
		if err := json.Unmarshal(line, &event); err != nil {
			return fmt.Errorf("reading the audit log: %w", err)
		}
		visit(&event)
	}
}

// WriteRequests counts the write requests so far of a user, such as system:serviceaccount:kube-system:my-scheduler, by
// verb and resource: "create pods/binding", "patch pods/status", "create events". Like [ControlPlane.AuditEvents], it
// counts refused requests too, and may be a little behind.
func (cp *ControlPlane) WriteRequests(user string) (map[string]int, error) {
	counts := map[string]int{}
	err := cp.AuditEvents(func(event *auditv1.Event) {
		if event.User.Username != user || event.ObjectRef == nil {
			return
		}
		key := event.Verb + " " + event.ObjectRef.Resource
		if event.ObjectRef.Subresource != "" {
			key += "/" + event.ObjectRef.Subresource
		}
		counts[key]++
	})
	if err != nil {
		return nil, err
	}
	return counts, nil
}
