package policystore

import (
	"slices"
	"strings"
	"unique"
)

// flatLabels is a label set: its keys in one string, in their order, and their values in another, each followed by a 0.
// No label contains a 0. So two label sets are equal if and only if their flatLabels are. It is a fraction of the size
// of a map, above all because very many label sets have the same keys, which are kept once; and it shares nothing with
// the object that it comes from. It implements labels.Labels. The zero value has no labels.
type flatLabels struct {
	keys   unique.Handle[string] // the zero one if there are no labels
	values string
}

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
	return pickFrom(keys, func(key string) (string, bool) { value, ok := m[key]; return value, ok })
}

// only returns the labels with the given keys, which are sorted.
func (l flatLabels) only(keys []string) flatLabels { return pickFrom(keys, l.Lookup) }

func pickFrom(keys []string, lookup func(key string) (string, bool)) flatLabels {
	keysSize, valuesSize := 0, 0
	for _, key := range keys {
		if value, ok := lookup(key); ok {
			keysSize += len(key) + 1
			valuesSize += len(value) + 1
		}
	}
	if valuesSize == 0 {
		return flatLabels{}
	}
	var keysText, values strings.Builder
	keysText.Grow(keysSize)
	values.Grow(valuesSize)
	for _, key := range keys {
		if value, ok := lookup(key); ok {
			keysText.WriteString(key)
			keysText.WriteByte(0)
			values.WriteString(value)
			values.WriteByte(0)
		}
	}
	return flatLabels{unique.Make(keysText.String()), values.String()}
}

// all yields the labels in the order of their keys.
func (l flatLabels) all(yield func(key, value string) bool) {
	if l.values == "" {
		return
	}
	keys, values := l.keys.Value(), l.values
	for values != "" {
		var key, value string
		key, keys, _ = strings.Cut(keys, "\x00")
		value, values, _ = strings.Cut(values, "\x00")
		if !yield(key, value) {
			return
		}
	}
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
	if l.values == "" {
		return "", false
	}
	for keys, values := l.keys.Value(), l.values; values != ""; {
		var k, value string
		k, keys, _ = strings.Cut(keys, "\x00")
		value, values, _ = strings.Cut(values, "\x00")
		if k == key {
			return value, true
		}
	}
	return "", false
}

// equal does without all, since most events of a cluster come here to find that they change nothing.
func (l flatLabels) equal(m map[string]string) bool {
	if l.values == "" || len(m) == 0 {
		return l.values == "" && len(m) == 0
	}
	n := 0
	for keys, values := l.keys.Value(), l.values; values != ""; n++ {
		i := max(0, strings.IndexByte(keys, 0))
		value, ok := m[keys[:i]]
		after, same := strings.CutPrefix(values, value)
		if !ok || !same || after == "" || after[0] != 0 {
			return false
		}
		keys, values = keys[min(i+1, len(keys)):], after[1:]
	}
	return n == len(m)
}

// compare orders label sets, those with the same keys by their values.
func (l flatLabels) compare(o flatLabels) int {
	if l.keys == o.keys {
		return strings.Compare(l.values, o.values)
	}
	return strings.Compare(l.String(), o.String())
}

// String returns the labels in the usual notation, such as app=web,tier=a.
func (l flatLabels) String() string {
	var b strings.Builder
	for key, value := range l.all {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(key + "=" + value)
	}
	return b.String()
}

func (l flatLabels) toMap() map[string]string {
	m := map[string]string{}
	for key, value := range l.all {
		m[key] = value
	}
	return m
}
