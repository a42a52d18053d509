package policystore

import (
	"slices"
	"strings"
)

// flatLabels is a label set in one string: key, 0, value, 0 for each label, in the order of the keys. No label contains a 0. So two
// label sets are equal if and only if the strings are, and a label set is a third of the size of a map, shares nothing with
// the object that it comes from, and lies in one place in memory. It implements labels.Labels.
type flatLabels string

func flatten(m map[string]string) flatLabels {
	keys := make([]string, 0, 16) // on the stack
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return pick(m, keys)
}

// pick returns the labels of m with the given keys, which are sorted.
func pick(m map[string]string, keys []string) flatLabels {
	size := 0
	for _, key := range keys {
		if value, ok := m[key]; ok {
			size += len(key) + len(value) + 2
		}
	}
	var b strings.Builder
	b.Grow(size)
	for _, key := range keys {
		if value, ok := m[key]; ok {
			appendLabel(&b, key, value)
		}
	}
	return flatLabels(b.String())
}

func appendLabel(b *strings.Builder, key, value string) {
	b.WriteString(key)
	b.WriteByte(0)
	b.WriteString(value)
	b.WriteByte(0)
}

// next returns the first label and those that follow.
func (l flatLabels) next() (key, value string, rest flatLabels) {
	key, after, _ := strings.Cut(string(l), "\x00")
	value, after, _ = strings.Cut(after, "\x00")
	return key, value, flatLabels(after)
}

// Has implements labels.Labels.
func (l flatLabels) Has(key string) bool {
	_, ok := l.Lookup(key)
	return ok
}

// Get implements labels.Labels.
func (l flatLabels) Get(key string) string {
	value, _ := l.Lookup(key)
	return value
}

// Lookup implements labels.Labels.
func (l flatLabels) Lookup(key string) (string, bool) {
	for rest := l; rest != ""; {
		var k, value string
		if k, value, rest = rest.next(); k == key {
			return value, true
		}
	}
	return "", false
}

// only returns the labels with the given keys, which are sorted.
func (l flatLabels) only(keys []string) flatLabels {
	var b strings.Builder
	for _, key := range keys {
		if value, ok := l.Lookup(key); ok {
			appendLabel(&b, key, value)
		}
	}
	return flatLabels(b.String())
}

// equal does without next, since most events of a cluster come here to find that they change nothing.
func (l flatLabels) equal(m map[string]string) bool {
	n := 0
	for rest := string(l); rest != ""; n++ {
		i := max(0, strings.IndexByte(rest, 0))
		value, ok := m[rest[:i]]
		after, same := strings.CutPrefix(rest[i+1:], value)
		if !ok || !same || after == "" || after[0] != 0 {
			return false
		}
		rest = after[1:]
	}
	return n == len(m)
}

func (l flatLabels) toMap() map[string]string {
	m := map[string]string{}
	for rest := l; rest != ""; {
		var key, value string
		key, value, rest = rest.next()
		m[key] = value
	}
	return m
}
