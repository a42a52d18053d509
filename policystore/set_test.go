package policystore_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/placement-policy/scheduler-plugin/policystore"
)

func ExampleSet() {
	seen := policystore.NewSet("a", "b")
	fmt.Println(seen.Insert("b"), seen.Insert("c"), seen.Len())
	for item := range seen.All() {
		seen.Delete(item) // the loop is over a snapshot
	}
	fmt.Println(seen.Len())
	// Output:
	// false true 3
	// 0
}

func TestSet(t *testing.T) {
	var s policystore.Set[string]
	assert.False(t, s.Has("a"))
	assert.False(t, s.Delete("a"))
	assert.Zero(t, s.Len())
	assert.Empty(t, slices.Collect(s.All()))

	assert.True(t, s.Insert("a"), "a is new")
	assert.False(t, s.Insert("a"), "a is there")
	assert.True(t, s.Insert("b"))
	assert.True(t, s.Has("a"))
	assert.Equal(t, 2, s.Len())
	assert.Equal(t, []string{"a", "b"}, slices.Sorted(s.All()))

	assert.True(t, s.Delete("a"), "a is there")
	assert.False(t, s.Delete("a"), "a is gone")
	assert.Equal(t, []string{"b"}, slices.Sorted(s.All()))
}

func TestSetIteratesOverSnapshot(t *testing.T) {
	s := policystore.NewSet(1, 2, 3)
	var seen []int
	for item := range s.All() {
		seen = append(seen, item)
		s.Insert(item + 10)
		for i := range 4 {
			s.Delete(i)
		}
	}
	assert.ElementsMatch(t, []int{1, 2, 3}, seen)
	assert.ElementsMatch(t, []int{11, 12, 13}, slices.Collect(s.All()))

	seen = nil
	for item := range s.All() {
		seen = append(seen, item)
		break
	}
	assert.Len(t, seen, 1)
}

// Many goroutines do the same: of each change exactly one must be told that it made it.
func TestSetConcurrently(t *testing.T) {
	const items = 100
	var s policystore.Set[int]
	var inserted, deleted atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range items {
				if s.Insert(i) {
					inserted.Add(1)
				}
			}
			for i := range items / 2 {
				if s.Delete(2 * i) {
					deleted.Add(1)
				}
			}
		})
		wg.Go(func() {
			seen := map[int]bool{} // odd ones, which nobody deletes
			for range items {
				now := map[int]bool{}
				for item := range s.All() {
					assert.False(t, now[item], "an item comes twice")
					now[item] = true
				}
				for item := range seen {
					assert.True(t, now[item] && s.Has(item), "an item is lost")
				}
				for item := range now {
					if item%2 == 1 {
						seen[item] = true
					}
				}
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, s.Len(), inserted.Load()-deleted.Load())
}
