package report

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/component-base/metrics/legacyregistry"
)

// gather returns the values of the metrics of this package by their name and labels. They can be scraped.
func gather(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, family := range families {
		name, ours := strings.CutPrefix(family.GetName(), MetricsPrefix)
		if !ours {
			continue
		}
		for _, metric := range family.GetMetric() {
			series := name
			for _, label := range metric.GetLabel() {
				series += " " + label.GetName() + "=" + label.GetValue()
			}
			values[series] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
		}
	}
	return values
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := running(t)
		w.setPolicy("web-on-spot", strict40)
		w.setPolicy("invalid", invalid)
		w.addPods(4, "m")
		w.addPods(5, "o")
		pending := w.addPods(1, "")[0]
		w.Store.SetWorkloadSize("rs", 20)
		const labels = " policy=web-on-spot policy_namespace=default"
		ofGroup := func(group string) string { return " group=" + group + labels }
		want := map[string]float64{
			"qualifying_pods" + labels: 10,
			"managed_pods" + labels:    4,
			"other_pods" + labels:      5,
			"target_pods" + labels:     4, // of the pods that there are
			"on_target" + labels:       0,
			"synced":                   1,

			"group_pods" + ofGroup("target"):        4,
			"group_pods" + ofGroup("other"):         5,
			"group_target_pods" + ofGroup("target"): 4,
			"group_target_pods" + ofGroup("other"):  6,
			"not_filtered_total":                    gather(t)["not_filtered_total"],
		}
		assert.Equal(t, want, gather(t))

		pending.Spec.NodeName = "o"
		w.Store.AddPod(pending)
		want["other_pods"+labels], want["group_pods"+ofGroup("other")], want["on_target"+labels] = 6, 6, 1
		assert.Equal(t, want, gather(t))

		w.NotFiltered(t.Context(), webOnSpot, "for a test")
		w.NotFiltered(t.Context(), webOnSpot, "for a test")
		want["not_filtered_total"]++
		assert.Equal(t, want, gather(t))

		w.synced.Store(false)
		w.removePolicy("web-on-spot")
		want = map[string]float64{"synced": 0, "not_filtered_total": want["not_filtered_total"]}
		assert.Equal(t, want, gather(t))
		w.pass(time.Minute)
	})
	assert.Equal(t, []string{"not_filtered_total"}, slices.Collect(maps.Keys(gather(t))), "nothing runs any more")
}

// As in tests of a program. A second series of the same labels would break all of /metrics.
func TestTwoStoresWithTheSamePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := running(t), running(t)
		first.setPolicy("web-on-spot", strict40)
		second.setPolicy("web-on-spot", strict40)
		first.addPods(3, "o")
		values := gather(t)
		assert.InDelta(t, 3, values["other_pods policy=web-on-spot policy_namespace=default"], 0)
		second.synced.Store(false)
		assert.Zero(t, gather(t)["synced"], "if one is not loaded")
	})
}
