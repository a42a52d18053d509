package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestChartIsWellFormedAndSaysHowItEnds(t *testing.T) {
	at := func(seconds int, pods, belong []int) sample {
		return sample{time.Duration(seconds) * time.Second, pods, belong}
	}
	r := recording{
		title:  "a <b> & c",
		groups: []string{"target", "other"},
		steps:  []mark{{0, "create 10"}, {2 * time.Second, "scale to 20"}},
		events: []mark{{3 * time.Second, "kill"}},
	}
	exact, off := r, r
	exact.samples = []sample{
		at(0, []int{0, 0}, []int{0, 0}), at(1, []int{4, 6}, []int{4, 6}), at(19, []int{8, 12}, []int{8, 12}),
	}
	off.samples = []sample{at(0, []int{0, 0}, []int{0, 0}), at(4, []int{10, 10}, []int{8, 12})}
	file := filepath.Join(t.TempDir(), "chart.svg")
	require.NoError(t, writeChart(file, exact, off))

	texts := textsIn(t, file)
	assert.Contains(t, texts, "a <b> & c")
	assert.Contains(t, texts, "In the end exact: 8 in group target, 12 in group other")
	assert.Contains(t, texts, "In the end off: 10 in group target, where 8 belong")
	assert.Contains(t, texts, "pods in group target")
	assert.Contains(t, texts, "2  scale to 20")
	assert.Contains(t, texts, "kill")
	for _, tick := range []string{"0", "5", "10", "15"} {
		assert.Contains(t, texts, tick)
	}
}

// TestPictureOfTheReadme holds the picture to what the template draws now, numbers aside.
func TestPictureOfTheReadme(t *testing.T) {
	texts := textsIn(t, "../docs/ratio.svg")
	assert.Contains(t, texts, "In the end exact: 16 in group target, 24 in group other")
	assert.Contains(t, texts, "6  scale to 40, kill the scheduler with -9 on the way, start another")
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	assert.Contains(t, string(readme), "](examples/docs/ratio.svg)")
	assert.Contains(t, string(readme), "go run ./examples/quickstart --svg examples/docs/ratio.svg")
}

// textsIn returns the texts of an SVG file, which must be well-formed.
func textsIn(t *testing.T, file string) (texts []string) {
	t.Helper()
	svg, err := os.ReadFile(file)
	require.NoError(t, err)
	decoder := xml.NewDecoder(strings.NewReader(string(svg)))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return texts
		}
		require.NoError(t, err)
		if element, ok := token.(xml.StartElement); ok && element.Name.Local == "text" {
			var text string
			require.NoError(t, decoder.DecodeElement(&text, &element))
			texts = append(texts, text)
		}
	}
}
