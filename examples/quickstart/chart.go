package main

import (
	_ "embed"
	"fmt"
	"os"
	"strings"
	"text/template"
	"time"
)

//go:embed chart.svg.tmpl
var chartTemplate string

// The chart's sizes, in pixels. It has two panels side by side.
const (
	panelWidth, panelHeight = 400, 220
	panelTop, panelLeft     = 78, 40
	panelGap                = 44
	chartWidth              = panelLeft + 2*panelWidth + panelGap + 16
)

// panel is how the template draws a recording.
type panel struct {
	X                int
	Title, Result    string
	Exact            bool
	Areas            []area // the last group, which covers all, first
	Belong           []string
	Steps, Events    []tick
	XTicks, YTicks   []tick
	Groups, AllSteps []string
}

// area is a path in the colour of a group.
type area struct {
	Class int
	Path  string
}

// tick is a text at a place of an axis.
type tick struct {
	At   int
	Text string
}

// writeChart draws the recordings, which are of the same groups and steps, side by side.
func writeChart(file string, recordings ...recording) error {
	funcs := template.FuncMap{"add": func(a, b int) int { return a + b }, "mul": func(a, b int) int { return a * b }}
	t, err := template.New("chart").Funcs(funcs).Parse(chartTemplate)
	if err != nil {
		return err
	}
	s := newScale(recordings)
	var panels []panel
	for i, r := range recordings {
		panels = append(panels, s.panel(r, panelLeft+i*(panelWidth+panelGap)))
	}
	var out strings.Builder
	err = t.Execute(&out, map[string]any{
		"Width": chartWidth, "Top": panelTop, "PanelWidth": panelWidth, "PanelHeight": panelHeight, "Panels": panels,
	})
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(out.String()), 0o644)
}

// scale translates times and numbers of pods into places. The panels share it.
type scale struct {
	duration time.Duration
	pods     int
}

func newScale(recordings []recording) scale {
	var s scale
	for _, r := range recordings {
		for _, sample := range r.samples {
			s.duration = max(s.duration, sample.at)
			s.pods = max(s.pods, total(sample.pods), total(sample.belong))
		}
	}
	s.duration += s.duration / 20 // so that the end can be seen
	return s
}

func (s scale) x(at time.Duration) int {
	return int(int64(panelWidth) * int64(at) / max(1, int64(s.duration)))
}
func (s scale) y(pods int) int { return panelTop + panelHeight - panelHeight*pods/max(1, s.pods) }

// interval is the time between ticks: whole seconds, of which a panel has not too many.
func (s scale) interval() time.Duration {
	const most = 8
	interval := time.Second
	for _, factor := range []time.Duration{2, 5, 10, 20, 60} {
		if s.duration > most*interval {
			interval = factor * time.Second
		}
	}
	return interval
}

func (s scale) panel(r recording, x int) panel {
	p := panel{X: x, Title: r.title, Groups: r.groups}
	for g := len(r.groups) - 1; g >= 0; g-- {
		upTo := func(at sample) int { return total(at.pods[:g+1]) }
		p.Areas = append(p.Areas, area{g, s.steps(r, upTo) + fmt.Sprintf("V%d Z", s.y(0))})
	}
	for g := range max(0, len(r.groups)-1) {
		p.Belong = append(p.Belong, s.steps(r, func(at sample) int { return total(at.belong[:g+1]) }))
	}
	for i, step := range r.steps {
		p.Steps = append(p.Steps, tick{s.x(step.at), fmt.Sprint(i + 1)})
		p.AllSteps = append(p.AllSteps, step.text)
	}
	for _, event := range r.events {
		p.Events = append(p.Events, tick{s.x(event.at), event.text})
	}
	for at := time.Duration(0); at <= s.duration; at += s.interval() {
		p.XTicks = append(p.XTicks, tick{s.x(at), fmt.Sprint(int(at.Seconds()))})
	}
	for pods := 0; pods <= s.pods; pods += 10 {
		p.YTicks = append(p.YTicks, tick{s.y(pods), fmt.Sprint(pods)})
	}
	p.Result, p.Exact = result(r)
	return p
}

// steps is the path of a number that stays as it is until it changes, from the first sample to the end.
func (s scale) steps(r recording, number func(sample) int) string {
	last := s.y(0)
	path := fmt.Sprintf("M0 %d", last)
	for _, at := range r.samples {
		if y := s.y(number(at)); y != last {
			path += fmt.Sprintf(" H%d V%d", s.x(at.at), y)
			last = y
		}
	}
	return path + fmt.Sprintf(" H%d ", panelWidth)
}

// result says how it ends, and whether that is exact.
func result(r recording) (text string, exact bool) {
	if len(r.samples) == 0 {
		return "no pods", false
	}
	last := r.samples[len(r.samples)-1]
	var off, all []string
	for g, name := range r.groups {
		all = append(all, fmt.Sprintf("%d in group %s", last.pods[g], name))
		if last.pods[g] > last.belong[g] {
			off = append(off, fmt.Sprintf("%d in group %s, where %d belong", last.pods[g], name, last.belong[g]))
		}
	}
	if len(off) > 0 {
		return "off: " + strings.Join(off, "; "), false
	}
	return "exact: " + strings.Join(all, ", "), true
}

func total(numbers []int) (sum int) {
	for _, n := range numbers {
		sum += n
	}
	return sum
}
