package integration

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	soakFlag = flag.Duration("soak", 20*time.Second, "for how long TestSoak disturbs the cluster")
	seedFlag = flag.Uint64("seed", uint64(time.Now().UnixNano()), "decides what TestSoak does")
)

// TestSoak does to a cluster whatever may happen to it, without waiting for its effect. When it is at rest, the
// scheduler must agree with the API server; and in the end, with a new revision of all pods, each policy must be
// followed exactly.
func TestSoak(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startScheduler(schedulerOptions{})
	w.addNodes("m1 m2 m3 o1 o2 o3")
	policies := []string{"must", "mustnot", "besteffort"} // each for the pods of the application of its name
	set := func(name string, percent int) {
		mode, action := "Strict", "Must"
		switch name {
		case "mustnot":
			action = "MustNot"
		case "besteffort":
			mode = "BestEffort"
		}
		w.applyPolicy(
			name,
			fmt.Sprintf(
				`{enforcementMode: %s, podSelector: {matchLabels: {app: %s}}, nodeSelector: {matchLabels: {pool: spot}},
			policy: {action: %s, targetSize: %d%%}}`,
				mode,
				name,
				action,
				percent,
			),
		)
	}
	for _, name := range policies {
		set(name, 40)
		w.deploy(name, 10)
	}

	random := rand.New(rand.NewPCG(*seedFlag, 0))
	pick := func(names ...string) string { return names[random.IntN(len(names))] }
	done := map[string]int{}
	kinds := []struct {
		name   string
		weight int
		do     func()
	}{
		{"scale", 6, func() { w.scale(pick(policies...), random.IntN(80)) }},
		{"delete pods", 6, func() {
			pods := w.podsOn(pick("m", "o", ""))
			w.deletePods(pods[:random.IntN(len(pods)+1)]...)
		}},
		{"edit policy", 3, func() { set(pick(policies...), random.IntN(101)) }},
		{"delete policy", 1, func() {
			name := pick(policies...)
			w.deletePolicy(name)
			set(name, 40)
		}},
		{
			"relabel node",
			3,
			func() { w.patchNode(pick("m1", "o1"), "metadata: {labels: {pool: "+pick("spot", "null")+"}}") },
		},
		{"cordon node", 2, func() { w.patchNode(pick("m2", "o2"), "spec: {unschedulable: "+pick("true", "null")+"}") }},
		{"replace node", 1, func() { w.deleteNode("m3"); w.addNodes("m3") }},
		{"roll out", 2, func() { w.newRevision(pick(policies...)) }},
		{"kill scheduler", 1, func() { w.scheduler.Kill(); w.startScheduler(schedulerOptions{}) }},
	}
	var deck []int
	for i, kind := range kinds {
		for range kind.weight {
			deck = append(deck, i)
		}
	}
	rests := 0
	for begun := time.Now(); time.Since(begun) < *soakFlag; rests++ {
		for range 10 {
			kind := kinds[deck[random.IntN(len(deck))]]
			kind.do()
			done[kind.name]++
		}
		w.requireAgreement()
	}
	t.Logf("seed %d: %v, at rest %d times", *seedFlag, done, rests)

	for _, node := range []string{"m1", "m2", "o1", "o2"} {
		pool := "null"
		if node[0] == 'm' {
			pool = "spot"
		}
		w.patchNode(node, "{metadata: {labels: {pool: "+pool+"}}, spec: {unschedulable: null}}")
	}
	for _, name := range policies {
		set(name, 40)
		w.scale(name, 50)
		w.rollOut(name)
		w.requireSplit(name, 20, 30)
	}
	require.NoError(t, w.scheduler.Err())
}
