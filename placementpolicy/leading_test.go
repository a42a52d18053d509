package placementpolicy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/component-base/metrics"
)

func TestIsStandby(t *testing.T) {
	for name, tt := range map[string]struct {
		elections map[string]float64
		want      bool
	}{
		"without leader election":      {nil, false},
		"while another leads":          {map[string]float64{"kube-scheduler": 0}, true},
		"when it leads":                {map[string]float64{"kube-scheduler": 1}, false},
		"when it leads in one of two":  {map[string]float64{"controller": 0, "kube-scheduler": 1}, false},
		"when it leads in none of two": {map[string]float64{"controller": 0, "kube-scheduler": 0}, true},
	} {
		t.Run(name, func(t *testing.T) {
			registry := metrics.NewKubeRegistry()
			gauge := metrics.NewGaugeVec(&metrics.GaugeOpts{Name: leaderGauge}, []string{"name"})
			registry.MustRegister(gauge)
			for election, value := range tt.elections {
				gauge.WithLabelValues(election).Set(value)
			}
			standby, err := isStandby(registry)
			require.NoError(t, err)
			assert.Equal(t, tt.want, standby)
		})
	}
}
