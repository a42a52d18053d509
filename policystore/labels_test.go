package policystore

import (
	"maps"
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

func TestFlatLabels(t *testing.T) {
	sets := []map[string]string{{}, {"a": ""}, {"a": "b"}, {"a": "bc"}, {"b": "b"}, {"a": "b", "c": "d"}, {"a": "b", "c": ""}, {"a": "", "ab": "c"}}
	for _, set := range sets {
		flat := flatten(set)
		for _, other := range sets {
			assert.Equal(t, maps.Equal(set, other), flat.equal(other), "%v and %v", set, other)
		}
		assert.Equal(t, set, flat.toMap())
		for _, key := range []string{"a", "ab", "b", "c", ""} {
			want, has := set[key]
			got, ok := flat.Lookup(key)
			assert.Equal(t, has, ok, "%q of %v", key, set)
			assert.Equal(t, want, got, "%q of %v", key, set)
		}
		assert.Equal(t, pick(set, []string{"a", "c"}), flat.only([]string{"a", "c"}), "%v", set)
	}

	// No API server lets these through; they must do no harm.
	for _, set := range []map[string]string{{"a": "b\x00"}, {"a\x00": "b"}, {"a": "\x00"}, {"\x00": ""}} {
		assert.NotPanics(t, func() {
			flat := flatten(set)
			flat.equal(set)
			flat.equal(map[string]string{"a": "b\x00c\x00"})
			flat.Lookup("a")
			flat.toMap()
		}, "%q", set)
	}
}
