package policystore

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// RequireEmpty fails the test unless the store has let go of everything: each map and list of its state, also those
// that are yet to be invented.
func RequireEmpty(t *testing.T, s *Store) {
	t.Helper()
	s.mu.RLock()
	defer s.mu.RUnlock()
	state := reflect.ValueOf(&s.state).Elem()
	for i := range state.NumField() {
		require.Zerof(t, state.Field(i).Len(), "%s: %v", state.Type().Field(i).Name, state.Field(i))
	}
}
