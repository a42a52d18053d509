package perf

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"
)

var (
	nodes    = flag.Int("perf.nodes", 100, "how many nodes the cluster has")
	pods     = flag.Int("perf.pods", 500, "how many pods are scheduled")
	policies = flag.Int(
		"perf.policies",
		1000,
		"how many policies there are in the variants that have some; the first 100 govern the pods",
	)
	repetitions = flag.Int("perf.repetitions", 1, "how often each variant runs")
	only        = flag.String("perf.variants", "", "the variants to run, separated by commas; all by default")

	targetShare = flag.Int(
		"perf.target-share",
		40,
		"the share of the nodes that are in the target group, in percent",
	)
	targetJoinsLast = flag.Bool(
		"perf.target-joins-last",
		false,
		"let the nodes of the target group join after all others, instead of evenly mixed with them",
	)
)

const (
	// namespace has the pods and the policies.
	namespace = "workload-0"
	// maxApps is how many applications the pods belong to, evenly, each with a policy of its own. So there are a few
	// dozen pods to a policy, as there are in most workloads; the other policies are for applications that have no
	// pods.
	maxApps = 100
	// targetSize is how many percent of the pods of an application belong in the target group.
	targetSize = 40
)

// workload is one run of a variant, for the template of scheduler_perf's configuration.
type workload struct {
	Variant           variant
	Repetition        int
	Nodes, Pods, Apps int
	TargetShare       int
	TargetJoinsLast   bool
}

func newWorkload(v variant, repetition int) workload {
	return workload{
		Variant:         v,
		Repetition:      repetition,
		Nodes:           *nodes,
		Pods:            *pods,
		Apps:            min(maxApps, *policies),
		TargetShare:     *targetShare,
		TargetJoinsLast: *targetJoinsLast,
	}
}

// writeConfig writes scheduler_perf's configuration for the run, and returns the file's path.
func (w workload) writeConfig(b *testing.B) string {
	b.Helper()
	config, err := template.ParseFiles("testdata/performance-config.yaml")
	if err != nil {
		b.Fatal(err)
	}
	file, err := os.Create(filepath.Join(b.TempDir(), "performance-config.yaml"))
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	if err := config.Execute(file, w); err != nil {
		b.Fatal(err)
	}
	return file.Name()
}

// selectVariants returns the variants that the flags ask for.
func selectVariants() ([]variant, error) {
	if *only == "" {
		return variants, nil
	}
	var selected []variant
	for _, name := range strings.Split(*only, ",") {
		i := slices.IndexFunc(variants, func(v variant) bool { return v.Name == name })
		if i < 0 {
			return nil, fmt.Errorf(
				"-perf.variants: there is no variant %q; there are %s",
				name,
				strings.Join(variantNames(), ", "),
			)
		}
		selected = append(selected, variants[i])
	}
	return selected, nil
}

func variantNames() []string {
	names := make([]string, len(variants))
	for i, v := range variants {
		names[i] = v.Name
	}
	return names
}
