package policystore

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestKeysOfDifferentLabelsDiffer(t *testing.T) {
	seen := map[flatLabels]map[string]string{}
	for _, set := range []map[string]string{
		nil,
		{"": ""},
		{"a": ""},
		{"a": "b"},
		{"ab": ""},
		{"a": "bc", "d": ""},
		{"a": "b", "cd": ""},
		{"a": "", "b": ""},
	} {
		key := flatten(set)
		assert.NotContains(t, seen, key, "%v has the key of %v", set, seen[key])
		seen[key] = set
	}
}
