package policystore

import (
	"maps"
	"slices"
	"strings"
)

// sortedLabels is a label set as pairs in the order of their keys. It is immutable. It is a third of the size of a map,
// and implements labels.Labels.
type sortedLabels []labelPair

type labelPair struct{ key, value string }

func sortLabels(m map[string]string) sortedLabels {
	l := make(sortedLabels, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		l = append(l, labelPair{k, m[k]})
	}
	return l
}

// Has implements labels.Labels.
func (l sortedLabels) Has(key string) bool {
	_, ok := l.Lookup(key)
	return ok
}

// Get implements labels.Labels.
func (l sortedLabels) Get(key string) string {
	value, _ := l.Lookup(key)
	return value
}

// Lookup implements labels.Labels.
func (l sortedLabels) Lookup(key string) (string, bool) {
	i, ok := slices.BinarySearchFunc(l, key, func(p labelPair, key string) int { return strings.Compare(p.key, key) })
	if !ok {
		return "", false
	}
	return l[i].value, true
}

// only returns the pairs with the given keys, which are sorted.
func (l sortedLabels) only(keys []string) sortedLabels {
	var some sortedLabels
	for _, key := range keys {
		if value, ok := l.Lookup(key); ok {
			some = append(some, labelPair{key, value})
		}
	}
	return some
}

// key returns a string that two label sets share if and only if they are equal.
func (l sortedLabels) key() string {
	var b strings.Builder
	for _, p := range l {
		b.WriteString(p.key)
		b.WriteByte(0) // in no label
		b.WriteString(p.value)
		b.WriteByte(0)
	}
	return b.String()
}

func (l sortedLabels) equal(m map[string]string) bool {
	if len(l) != len(m) {
		return false
	}
	for _, p := range l {
		if value, ok := m[p.key]; !ok || value != p.value {
			return false
		}
	}
	return true
}

func (l sortedLabels) toMap() map[string]string {
	m := make(map[string]string, len(l))
	for _, p := range l {
		m[p.key] = p.value
	}
	return m
}
