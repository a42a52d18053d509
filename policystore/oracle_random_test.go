package policystore

import (
	"testing"

	"pgregory.net/rapid"
)

// TestOracleRandom compares the store with the oracle after each step of random sequences. Run more of them with
// -rapid.checks=100000, longer ones with -rapid.steps=100.
func TestOracleRandom(t *testing.T) {
	steps := 0
	rapid.Check(t, func(t *rapid.T) {
		x := newTandem(t, New())
		x.log = t.Logf
		w := newWorld(x, func(what string, n int) int { return rapid.IntRange(0, n-1).Draw(t, what) })
		w.reserve = x.mustAssume
		check := func() { x.check(w.strangers()...) }

		w.start()
		t.Repeat(map[string]func(*rapid.T){
			"":     func(*rapid.T) { check() },
			"step": func(*rapid.T) { w.step(); steps++ },
		})
		w.deliverAll()
		check()
		w.end()
		check() // nothing is left
	})
	t.Log("steps:", steps)
}
