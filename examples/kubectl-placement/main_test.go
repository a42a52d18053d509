package main

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files in testdata anew")

const (
	must    = "../policies/strict-must.yaml"
	mustNot = "../policies/strict-mustnot.yaml"
	dump    = "testdata/dump.yaml"
)

func TestGolden(t *testing.T) {
	tests := []struct {
		golden string
		args   []string
		exit   int
	}{
		{"manifest.txt", []string{"-f", must, "--nodes", "spot=3,od=5", "--replicas", "10"}, onTarget},
		{"manifest.json", []string{"-f", must, "--nodes", "spot=3,od=5", "--replicas", "3", "-o", "json"}, onTarget},
		{"manifest-defaults-mustnot.txt", []string{"-f", mustNot}, onTarget},
		{"manifest-no-target-node.txt", []string{"-f", must, "--nodes", "spot=0,od=5"}, offTarget},
		{"manifest-besteffort-no-other-node.txt", []string{"-f", "../policies/besteffort-must.yaml", "--nodes", "arm=1"}, offTarget},
		{"manifest-labels.txt", []string{"-f", mustNot, "--nodes", "a[pool=spot,zone=x]=1,b[pool=od]=2,c=1", "--replicas", "30"}, onTarget},
		{"manifest-change.txt", []string{"-f", must, "--nodes", "spot=3,od=5", "--replicas", "5", "--set", "policy.targetSize=60%", "--set", "spec.weight=7"}, onTarget},
		{"manifest-change.json", []string{"-f", must, "--replicas", "1", "--set", "policy.action=MustNot", "--set", "policy.targetSize=", "-o", "json"}, onTarget},
		{"dump.txt", []string{"--from", dump}, offTarget},
		{"dump.json", []string{"--from", dump, "-o", "json"}, offTarget},
		{"dump-replicas-change.txt", []string{"--from", dump, "--policy", "default/web-on-spot", "--replicas", "6", "--set", "policy.targetSize=60%"}, offTarget},
		{"dump-mended.txt", []string{"--from", dump, "--policy", "default/broken", "--set", "policy.targetSize=1", "--set", "policy.action=MustNot"}, offTarget},
		{"dump-unselected.txt", []string{"--from", dump, "--policy", "default/web-on-spot", "--set", "podSelector={matchLabels: {app: none}}"}, offTarget},
	}
	for _, test := range tests {
		t.Run(test.golden, func(t *testing.T) {
			exit, stdout, stderr := call(test.args, "")
			assert.Equal(t, test.exit, exit)
			assert.Empty(t, stderr)
			file := filepath.Join("testdata", "golden", test.golden)
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(stdout), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Equal(t, string(want), stdout)
		})
	}
}

func TestBadInput(t *testing.T) {
	const policy = "{apiVersion: placement-policy.scheduling.x-k8s.io/v1alpha1, kind: PlacementPolicy, metadata: {name: p}, spec: "
	const node = "\n---\n{apiVersion: v1, kind: Node, metadata: {name: node-1}}\n---\n"
	tests := map[string]struct {
		args  []string
		stdin string
		err   string
	}{
		"no source":          {nil, "", "say where the policies are: either -f FILE, a manifest, or --from FILE, a dump of a cluster (--help explains)"},
		"two sources":        {[]string{"-f", must, "--from", dump}, "", "say where the policies are: either -f FILE, a manifest, or --from FILE, a dump of a cluster (--help explains)"},
		"unknown flag":       {[]string{"--bogus"}, "", "flag provided but not defined: -bogus (--help explains)"},
		"argument":           {[]string{"-f", must, "x"}, "", `unexpected argument "x": there are only flags (--help explains)`},
		"nodes for a dump":   {[]string{"--from", dump, "--nodes", "a=1"}, "", "--nodes goes with -f: a dump has nodes of its own (--help explains)"},
		"negative replicas":  {[]string{"-f", must, "--replicas", "-1"}, "", "--replicas -1: write a number from 0 to 99999 (--help explains)"},
		"unknown output":     {[]string{"-f", must, "-o", "yaml"}, "", "-o yaml: write -o json, or leave it out for text (--help explains)"},
		"no such file":       {[]string{"-f", "testdata/none.yaml"}, "", "open testdata/none.yaml: no such file or directory"},
		"not YAML":           {[]string{"-f", "-"}, "kind: x\n---\na: b: c", "-: document 2: yaml: mapping values are not allowed in this context"},
		"not an object":      {[]string{"-f", "-"}, "hello", "-: document 1: it is not an object of Kubernetes, which begins with apiVersion and kind"},
		"key twice":          {[]string{"-f", "-"}, "{kind: x, kind: y}", "-: document 1: yaml: unmarshal errors:\n  line 1: key \"kind\" already set in map"},
		"no policy":          {[]string{"-f", "-"}, "# nothing\n---\nkind: ConfigMap", "-: there is no PlacementPolicy in it"},
		"invalid policy":     {[]string{"-f", "-"}, policy + "{podSelector: {}}}", "-: invalid placement policy default/p: spec.nodeSelector: Required value: write {} to select everything"},
		"unknown field":      {[]string{"-f", "-"}, policy + "{podSelector: {}, nodeSelector: {}, policy: {size: 1}}}", `-: spec of placement policy default/p: strict decoding error: unknown field "policy.size"`},
		"dump without nodes": {[]string{"--from", "-"}, policy + "{}}", "-: there is no Node in it: write it with kubectl get pods,nodes,placementpolicies,replicasets,statefulsets -A -o yaml"},
		"bad pod": {[]string{"--from", "-"}, "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Pod, metadata: {namespace: a, name: b}, spec: 1}]}",
			`-: document 1: Pod a/b: cannot restore struct from: int64`},
		"bad workload": {[]string{"--from", "-"}, "{apiVersion: apps/v1, kind: ReplicaSet, metadata: {namespace: a, name: b}, spec: {replicas: x}}",
			"-: document 1: ReplicaSet a/b: .spec.replicas accessor error: x is of the type string, expected int64"},
		"which policy":               {[]string{"--from", dump, "--set", "weight=1"}, "", dump + ": say which policy with --policy NAMESPACE/NAME, one of default/broken, default/web-on-spot, shop/off-spot"},
		"no such policy":             {[]string{"-f", must, "--policy", "web"}, "", must + ": say which policy with --policy NAMESPACE/NAME, one of default/web-on-spot"},
		"pods for an invalid policy": {[]string{"--from", "-", "--replicas", "1"}, policy + "{podSelector: {}}}" + node, "invalid placement policy default/p: spec.nodeSelector: Required value: write {} to select everything"},
		"no labels for nodes": {[]string{"-f", "-"}, policy + "{podSelector: {}, nodeSelector: {matchExpressions: [{key: a, operator: Exists}, {key: a, operator: NotIn, values: ['true']}]}}}",
			"--nodes: labels of selected: found none that the selector a,a notin (true) matches: write them, as in selected[key=value]=1"},
		"no labels for pods": {[]string{"-f", "-"}, policy + "{nodeSelector: {}, podSelector: {matchExpressions: [{key: a, operator: Exists}, {key: a, operator: DoesNotExist}]}}}",
			"--replicas: labels of the pods: found none that the selector a,!a matches: write a simpler podSelector"},
		"bad nodes":      {[]string{"-f", must, "--nodes", "spot=1,od"}, "", `--nodes: reading "od": write KIND=N or KIND[key=value,...]=N, as in spot=3,od=5 (N is at most 99999)`},
		"bad labels":     {[]string{"-f", must, "--nodes", "spot[a]=1"}, "", "--nodes: labels of spot: invalid selector: [a]: write them, as in spot[key=value]=1"},
		"kind twice":     {[]string{"-f", must, "--nodes", "a=1,a[b=c]=1"}, "", "--nodes: two kinds are named a: give each its own name"},
		"set nothing":    {[]string{"-f", must, "--set", "weight"}, "", "--set weight: write FIELD=VALUE, as in policy.targetSize=60%"},
		"set bad YAML":   {[]string{"-f", must, "--set", "policy={"}, "", "--set policy={: yaml: line 1: did not find expected node content"},
		"set in a list":  {[]string{"-f", must, "--set", "podSelector.matchLabels.app.x=1"}, "", "--set podSelector.matchLabels.app.x=1: value cannot be set because .spec.podSelector.matchLabels.app is not a map[string]interface{}"},
		"set wrong type": {[]string{"-f", must, "--set", "weight=true"}, "", "--set weight=true: decoding placement policy default/web-on-spot: json: cannot unmarshal bool into Go struct field PlacementPolicySpec.spec.weight of type int32 (--help explains fields and values)"},
		"set unknown":    {[]string{"-f", must, "--set", "policy.targetsize=1"}, "", `--set policy.targetsize=1: spec of placement policy default/web-on-spot: strict decoding error: unknown field "policy.targetsize" (--help explains fields and values)`},
		"set invalid": {[]string{"-f", must, "--set", "weight=1", "--set", "policy.targetSize=200%"}, "",
			`--set weight=1 --set policy.targetSize=200%: invalid placement policy default/web-on-spot: spec.policy.targetSize: Invalid value: "200%": must be an integer of 0 or more, or a percentage from 0% to 100%, such as 40% (--help explains fields and values)`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			exit, stdout, stderr := call(test.args, test.stdin)
			assert.Equal(t, badInput, exit)
			assert.Empty(t, stdout)
			assert.Equal(t, "whatif: "+test.err+"\n", stderr)
		})
	}
}

// TestHelp runs the examples of the help that need no cluster.
func TestHelp(t *testing.T) {
	exit, stdout, stderr := call([]string{"--help"}, "")
	assert.Equal(t, 0, exit)
	assert.Empty(t, stderr)
	assert.Equal(t, usage, stdout)

	t.Chdir("../..") // where users are
	examples := regexp.MustCompile(`(?m)^  go run ./examples/kubectl-placement (-f .*)$`).FindAllStringSubmatch(usage, -1)
	require.Len(t, examples, 3)
	for _, example := range examples {
		exit, _, stderr := call(strings.Fields(example[1]), "")
		assert.NotEqual(t, badInput, exit, example[1])
		assert.Empty(t, stderr, example[1])
	}
}

func call(args []string, stdin string) (exit int, stdout, stderr string) {
	var out, err strings.Builder
	exit = run(args, strings.NewReader(stdin), &out, &err)
	return exit, out.String(), err.String()
}
