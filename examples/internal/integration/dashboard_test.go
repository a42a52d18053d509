package integration

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/VictoriaMetrics/metricsql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	"github.com/placement-policy/scheduler-plugin/examples"
)

// dashboard is what the test reads of a Grafana dashboard.
type dashboard struct {
	Panels []struct {
		Title   string
		Targets []struct{ Expr, LegendFormat string }
	}
	Templating struct {
		List []struct{ Definition string }
	}
}

var (
	legendLabel     = regexp.MustCompile(`\{\{(\w+)\}\}`)
	annotationLabel = regexp.MustCompile(`\{\{ \$labels\.(\w+) \}\}`)
	// labelValues is the query of a dashboard's variable.
	labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)
)

// TestDashboard holds the queries of the dashboard and of the alerts against the metrics that a scheduler serves.
func TestDashboard(t *testing.T) {
	t.Parallel()
	w := fourOfTen(t, strict40)
	served, err := w.metrics()
	require.NoError(t, err)

	data, err := examples.Files.ReadFile("deploy/dashboard.json")
	require.NoError(t, err)
	var board dashboard
	require.NoError(t, json.Unmarshal(data, &board))
	require.NotEmpty(t, board.Panels)
	shown := sets.New[string]()
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			t.Run(panel.Title, func(t *testing.T) {
				query := parseQuery(t, target.Expr)
				query.check(t, served)
				shown = shown.Union(query.metrics)
				for _, label := range legendLabel.FindAllStringSubmatch(target.LegendFormat, -1) {
					assert.Contains(t, query.groupedBy, label[1], "labels of the legend")
				}
			})
		}
	}
	for _, variable := range board.Templating.List {
		if variable.Definition == "" { // the data source
			continue
		}
		match := labelValues.FindStringSubmatch(variable.Definition)
		require.NotNil(t, match, variable.Definition)
		query := parseQuery(t, match[1])
		query.labels.Insert(match[2])
		query.check(t, served)
	}
	for name := range served {
		if strings.HasPrefix(name, "scheduler_placement_policy_") {
			assert.Contains(t, shown, name, "no panel shows it")
		}
	}

	data, err = examples.Files.ReadFile("deploy/alerts.yaml")
	require.NoError(t, err)
	var alerts struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Annotations map[string]string
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(data, &alerts))
	require.NotEmpty(t, alerts.Groups)
	for _, rule := range alerts.Groups[0].Rules {
		t.Run(rule.Alert, func(t *testing.T) {
			query := parseQuery(t, rule.Expr)
			query.check(t, served)
			for _, label := range annotationLabel.FindAllStringSubmatch(rule.Annotations["summary"], -1) {
				assert.Contains(t, query.groupedBy, label[1], "labels of the summary")
			}
		})
	}
}

// query is what a query in the language of Prometheus asks for.
type query struct {
	metrics   sets.Set[string]
	labels    sets.Set[string] // that all these metrics must have
	groupedBy []string
}

// parseQuery parses a query that Grafana has filled in. The parser knows more than Prometheus does, so there are only
// the functions that are known to be common.
func parseQuery(t *testing.T, expr string) query {
	t.Helper()
	expr = strings.ReplaceAll(expr, "$__rate_interval", "5m")
	parsed, err := metricsql.Parse(expr)
	require.NoError(t, err, expr)
	q := query{metrics: sets.New[string](), labels: sets.New[string]()}
	metricsql.VisitAll(parsed, func(e metricsql.Expr) {
		switch e := e.(type) {
		case *metricsql.MetricExpr:
			require.Len(t, e.LabelFilterss, 1, expr)
			for _, filter := range e.LabelFilterss[0] {
				if filter.Label == "__name__" {
					q.metrics.Insert(filter.Value)
				} else {
					q.labels.Insert(filter.Label)
				}
			}
		case *metricsql.AggrFuncExpr:
			require.Contains(t, []string{"count", "max", "sum"}, e.Name, expr)
			q.groupedBy = e.Modifier.Args
			q.labels.Insert(e.Modifier.Args...)
		case *metricsql.FuncExpr:
			if e.Name == "absent" {
				return
			}
			require.Contains(t, []string{"increase", "rate"}, e.Name, expr)
			require.Len(t, e.Args, 1)
			series, ok := e.Args[0].(*metricsql.RollupExpr)
			require.True(t, ok && series.Window != nil, "%s of a metric without an interval: %s", e.Name, expr)
			counter := string(series.Expr.AppendString(nil))
			assert.True(t, strings.HasSuffix(counter, "_total"), "%s of what is no counter: %s", e.Name, expr)
		}
	})
	require.NotEmpty(t, q.metrics, expr)
	return q
}

// check checks that the scheduler serves the metrics, with the labels.
func (q query) check(t *testing.T, served map[string][]sample) {
	t.Helper()
	for name := range q.metrics {
		series, ok := served[name]
		if !assert.True(t, ok, "the scheduler serves no %s", name) {
			continue
		}
		assert.Subset(t, slices.Collect(maps.Keys(series[0].labels)), q.labels.UnsortedList(), name)
	}
}
