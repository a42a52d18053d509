package labelselector

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func TestIndex(t *testing.T) {
	var x Index[string]
	for key, selector := range map[string]string{
		"web":       "app=web",
		"web or db": "app in (web,db)",
		"web in eu": "app=web,zone=eu",
		"not web":   "app notin (web)",
		"has app":   "app",
		"no app":    "!app",
		"all":       "",
	} {
		x.Set(key, compile(t, parse(t, selector)))
	}
	x.Set("nothing", Selector{})
	x.Set("replaced", compile(t, parse(t, "app=web")))
	x.Set("replaced", compile(t, parse(t, "app=db")))
	require.Equal(t, 9, x.Len())

	for _, tc := range []struct {
		set  labels.Set
		want []string
	}{
		{nil, []string{"all", "no app", "not web"}},
		{labels.Set{"app": "web"}, []string{"all", "has app", "web", "web or db"}},
		{labels.Set{"app": "db"}, []string{"all", "has app", "not web", "replaced", "web or db"}},
		{labels.Set{"app": "web", "zone": "eu"}, []string{"all", "has app", "web", "web in eu", "web or db"}},
		{labels.Set{"zone": "eu"}, []string{"all", "no app", "not web"}},
	} {
		assert.Equalf(t, tc.want, slices.Sorted(x.Matching(tc.set)), "for %v", tc.set)
	}

	for range x.Matching(labels.Set{"app": "web"}) {
		break // the sequence may be left early
	}

	assert.NotContains(t, x.rest.keys(), "has app", "tried only for label sets with the key")
	assert.ElementsMatch(t, []string{"all", "no app", "not web"}, x.rest.keys())

	assert.True(t, x.Delete("replaced"))
	assert.False(t, x.Delete("replaced"), "it is gone")
}

// FuzzIndex reads its input as a sequence of changes, and compares the index with plain selectors after each.
func FuzzIndex(f *testing.F) {
	random := rand.NewChaCha8([32]byte{})
	for range 30 {
		data := make([]byte, 200)
		random.Read(data)
		f.Add(data)
	}

	// Two keys with two values each, so that everything collides.
	var sets []labels.Set
	values := []string{"absent", "", "x"}
	for _, a := range values {
		for _, b := range values {
			set := labels.Set{"a": a, "b": b}
			for key, value := range set {
				if value == "absent" {
					delete(set, key)
				}
			}
			sets = append(sets, set)
		}
	}

	f.Fuzz(func(t *testing.T, data []byte) {
		next := func(n int) int {
			if len(data) == 0 {
				return 0
			}
			b := int(data[0])
			data = data[1:]
			return b % n
		}
		requirement := func() string {
			key := []string{"a", "b"}[next(2)]
			return []string{key, "!" + key, key + "=", key + "=x", key + " in (,x)", key + " notin (,x)"}[next(6)]
		}

		x := Index[int]{Order: func(a, b int) int { return b - a }}
		plain := map[int]Selector{}
		for len(data) > 0 {
			key := next(8)
			if next(4) == 0 {
				_, had := plain[key]
				require.Equal(t, had, x.Delete(key))
				delete(plain, key)
			} else {
				var all []string
				for range next(4) {
					all = append(all, requirement())
				}
				plain[key] = compile(t, parse(t, strings.Join(all, ",")))
				x.Set(key, plain[key])
			}

			for _, set := range sets {
				var want []int
				for key := range 8 {
					if plain[key].Matches(set) {
						want = append(want, key)
					}
				}
				slices.Reverse(want)
				require.Equalf(t, want, slices.Collect(x.Matching(set)), "%v with %v", set, plain)
			}
		}

		for key := range plain {
			x.Delete(key)
		}
		require.Empty(t, x.entries)
		require.Empty(t, x.buckets)
		require.Empty(t, x.rest)
		require.Zero(t, x.keyed)
	})
}

func (b bucket[K]) keys() (keys []K) {
	for _, e := range b {
		keys = append(keys, e.key)
	}
	return keys
}

// Who wants the first keys alone must not pay for those behind them.
func TestIndexYieldsTheFirstKeysWithoutALookAtTheOthers(t *testing.T) {
	looked := 0
	x := Index[int]{Order: func(a, b int) int { looked++; return a - b }}
	for i := range 1000 {
		x.Set(i, compile(t, parse(t, []string{"", "app=web", "app"}[i%3])))
	}
	looked = 0
	for key := range x.Matching(labels.Set{"app": "web"}) {
		if key == 7 {
			break
		}
	}
	assert.Less(t, looked, 50)
}

func compile(t *testing.T, s *metav1.LabelSelector) Selector {
	compiled, err := Compile(s)
	require.NoError(t, err)
	return compiled
}
