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
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

var update = flag.Bool("update", false, "write the golden files in testdata anew")

const (
	must    = "../policies/strict-must.yaml"
	mustNot = "../policies/strict-mustnot.yaml"
	dump    = "testdata/dump.yaml"
)

func TestGolden(t *testing.T) {
	tests := []struct {
		golden, args string
		exit         int
	}{
		{"status.txt", "status --from " + dump, succeeded},
		{"status-wide.txt", "status --from " + dump + " -o wide", succeeded},
		{"status.json", "status --from " + dump + " --namespace default -o json", succeeded},
		{"status.yaml", "status --from " + dump + " off-spot -o yaml", succeeded},
		{"explain-pending.txt", "explain pod web-2-z --from " + dump, succeeded},
		{"explain-pending.json", "explain pod web-2-z --from " + dump + " -o json", succeeded},
		{"explain-placed.yaml", "explain pod/db-0 -n shop --from " + dump + " -o yaml", succeeded},
		{"explain-daemon.txt", "explain pod/agent-x -n shop --from " + dump, succeeded},
		{"explain-placed.txt", "explain pod db-0 -A --from " + dump, succeeded},
		{"explain-finished.txt", "explain po web-1-c --from " + dump, succeeded},
		{"explain-waiting.txt", "explain pod api-1 --from " + dump, succeeded},
		{"explain-gated.txt", "explain pod api-2 --from " + dump, succeeded},
		{"explain-unselected.txt", "explain pod tool --from " + dump + " -o wide", succeeded},
		{"explain-no-policies.txt", "explain pod dns --from " + dump, succeeded},
		{"manifest.txt", "whatif -f " + must + " --nodes spot=3,od=5 --replicas 10", succeeded},
		{"manifest.json", "whatif -f " + must + " --nodes spot=3,od=5 --replicas 3 -o json", succeeded},
		{"manifest-defaults-mustnot.txt", "whatif -f " + mustNot, succeeded},
		{"manifest-no-target-node.txt", "whatif -f " + must + " --nodes spot=0,od=5", offTarget},
		{
			"manifest-besteffort-no-other-node.txt",
			"whatif -f ../policies/besteffort-must.yaml --nodes arm=1",
			offTarget,
		},
		{
			"manifest-labels.txt",
			"whatif -f " + mustNot + " --nodes a[pool=spot,zone=x]=1,b[pool=od]=2,c=1 --replicas 30",
			succeeded,
		},
		{"manifest-wide.txt", "whatif -f " + mustNot + " --nodes a=5,b=5 --replicas 30 -o wide", succeeded},
		{
			"manifest-change.txt",
			"whatif -f " + must + " --nodes spot=3,od=5 --replicas 5 --set policy.targetSize=60% --set spec.weight=7",
			succeeded,
		},
		{
			"manifest-change.json",
			"whatif -f " + must + " --replicas 1 --set policy.action=MustNot --set policy.targetSize= -o json",
			succeeded,
		},
		{"groups.txt", "whatif -f ../policies/three-pools.yaml --nodes zone-a=3,zone-b=0,elsewhere=2", offTarget},
		{"groups.json", "whatif -f ../policies/max.yaml --replicas 4 -o json", succeeded},
		{
			"groups-change.txt",
			"whatif -f ../policies/base-and-percentage.yaml --replicas 6 --set groups=[{\"name\":\"all\"}]",
			succeeded,
		},
		{"plan.txt", "whatif --plan -f ../policies/base-and-percentage.yaml", succeeded},
		{"plan-two-groups.txt", "whatif --plan -f " + must, succeeded},
		{"plan-change.txt", "whatif --plan -f " + must + " --set policy.targetSize=3", succeeded},
		{"plan.json", "whatif --plan -f ../policies/max.yaml -o json", succeeded},
		{"dump.txt", "whatif --from " + dump, offTarget},
		{"dump-namespace.txt", "whatif --from " + dump + " --namespace shop", offTarget},
		{"dump.json", "whatif --from " + dump + " -o json", offTarget},
		{
			"dump-replicas-change.txt",
			"whatif --from " + dump + " --policy web-on-spot --replicas 6 --set policy.targetSize=60%",
			offTarget,
		},
		{
			"dump-mended.txt",
			"whatif --from " + dump + " --policy default/broken --set policy.targetSize=1 --set policy.action=MustNot",
			offTarget,
		},
		{
			"dump-unselected.txt",
			"whatif --from " + dump + " --policy default/web-on-spot --set podSelector.matchLabels.app=none",
			offTarget,
		},
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
	const policy = "{apiVersion: placement-policy.scheduling.x-k8s.io/v1alpha1, kind: PlacementPolicy, " +
		"metadata: {name: p}, spec: "
	const node = "\n---\n{apiVersion: v1, kind: Node, metadata: {name: node-1}}\n---\n"
	const twins = "{apiVersion: v1, kind: Pod, metadata: {namespace: a, name: x}}\n---\n" +
		"{apiVersion: v1, kind: Pod, metadata: {namespace: b, name: x}}"
	tests := map[string]struct {
		args, stdin, err string
	}{
		"unknown command": {
			args: "bogus",
			err:  `unknown command "bogus" for "kubectl placement"`,
		},
		"unknown flag": {
			args: "status --bogus",
			err:  "unknown flag: --bogus",
		},
		"unknown output": {
			args: "status --from " + dump + " -o xml",
			err:  "--output xml: write one of text, wide, json, yaml",
		},
		"no such policy": {
			args: "status --from " + dump + " web",
			err:  "there is no placement policy web: there are default/broken, default/web-on-spot, jobs/api, ...",
		},
		"explain what": {
			args: "explain pod",
			err:  "write which pod, as in: kubectl placement explain pod NAME",
		},
		"explain else": {
			args: "explain node a",
			err:  "write which pod, as in: kubectl placement explain pod NAME",
		},
		"no such pod": {
			args: "explain pod web -n shop --from " + dump,
			err:  "there is no pod shop/web",
		},
		"which pod": {
			args:  "explain pod x --from -",
			stdin: policy + "{podSelector: {}}}" + node + twins,
			err:   "there are pods a/x and b/x: say which with --namespace",
		},
		"two sources": {
			args: "whatif -f " + must + " --from " + dump,
			err:  "--filename and --from: write one of them, a manifest or a dump of a cluster",
		},
		"argument": {
			args: "whatif -f " + must + " x",
			err:  `unexpected argument "x": there are only flags`,
		},
		"nodes for a dump": {
			args: "whatif --from " + dump + " --nodes a=1",
			err:  "--nodes goes with --filename: a cluster has nodes of its own",
		},
		"negative replicas": {
			args: "whatif -f " + must + " --replicas -1",
			err:  "--replicas -1: write a number from 0 to 99999",
		},
		"no such file": {
			args: "whatif -f testdata/none.yaml",
			err:  "open testdata/none.yaml: no such file or directory",
		},
		"not YAML": {
			args:  "whatif -f -",
			stdin: "kind: x\n---\na: b: c",
			err:   "-: document 2: yaml: mapping values are not allowed in this context",
		},
		"not an object": {
			args:  "whatif -f -",
			stdin: "hello",
			err:   "-: document 1: it is not an object of Kubernetes, which begins with apiVersion and kind",
		},
		"key twice": {
			args:  "whatif -f -",
			stdin: "{kind: x, kind: y}",
			err:   "-: document 1: yaml: unmarshal errors:\n  line 1: key \"kind\" already set in map",
		},
		"no policy": {
			args:  "whatif -f -",
			stdin: "# nothing\n---\nkind: ConfigMap",
			err:   "-: there is no PlacementPolicy in it",
		},
		"invalid policy": {
			args:  "whatif -f -",
			stdin: policy + "{podSelector: {}}}",
			err: "-: invalid placement policy default/p: spec.nodeSelector: Required value: write {} to select " +
				"everything",
		},
		"unknown field": {
			args:  "whatif -f -",
			stdin: policy + "{podSelector: {}, nodeSelector: {}, policy: {size: 1}}}",
			err:   `-: spec of placement policy default/p: strict decoding error: unknown field "policy.size"`,
		},
		"dump without nodes": {
			args:  "status --from -",
			stdin: policy + "{}}",
			err:   "-: there is no Node in it: write it with " + dumpCommand,
		},
		"bad pod": {
			args: "status --from -",
			stdin: "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Pod, metadata: {namespace: a, name: b}, " +
				"spec: 1}]}",
			err: `-: document 1: Pod a/b: cannot restore struct from: int64`,
		},
		"bad workload": {
			args:  "status --from -",
			stdin: "{apiVersion: apps/v1, kind: ReplicaSet, metadata: {namespace: a, name: b}, spec: {replicas: x}}",
			err: "-: document 1: ReplicaSet a/b: .spec.replicas accessor error: x is of the type string, expected " +
				"int64",
		},
		"which policy": {
			args: "whatif --from " + dump + " --set weight=1",
			err:  "say which policy with --policy, one of default/broken, default/web-on-spot, jobs/api, ...",
		},
		"no policy of that name": {
			args: "whatif -f " + must + " --policy web",
			err:  "say which policy with --policy, one of default/web-on-spot",
		},
		"pods for an invalid policy": {
			args:  "whatif --from - --replicas 1",
			stdin: policy + "{podSelector: {}}}" + node,
			err:   "invalid placement policy default/p: spec.nodeSelector: Required value: write {} to select everything",
		},
		"no labels for nodes": {
			args: "whatif -f -",
			stdin: policy +
				"{podSelector: {}, nodeSelector: {matchExpressions: [{key: a, operator: Exists}, {key: a, operator: " +
				"DoesNotExist}]}}}",
			err: "--nodes: labels of selected: found none that a node of group target may have: write them, as " +
				"in selected[key=value]=1",
		},
		"a kind of nodes that is no group": {
			args: "whatif -f ../policies/three-pools.yaml --nodes zone-c=1",
			err:  "--nodes: labels of zone-c: no group has this name: write them, as in zone-c[key=value]=1",
		},
		"no labels for pods": {
			args: "whatif -f -",
			stdin: policy +
				"{nodeSelector: {}, podSelector: {matchExpressions: [{key: a, operator: Exists}, {key: a, operator: " +
				"DoesNotExist}]}}}",
			err: "--replicas: labels of the pods: found none that the selector a,!a matches: write a simpler " +
				"podSelector",
		},
		"bad nodes": {
			args: "whatif -f " + must + " --nodes spot=1,od",
			err:  `--nodes: reading "od": write KIND=N or KIND[key=value,...]=N, as in spot=3,od=5 (N is at most 99999)`,
		},
		"bad labels": {
			args: "whatif -f " + must + " --nodes spot[a]=1",
			err:  "--nodes: labels of spot: invalid selector: [a]: write them, as in spot[key=value]=1",
		},
		"kind twice": {
			args: "whatif -f " + must + " --nodes a=1,a[b=c]=1",
			err:  "--nodes: two kinds are named a: give each its own name",
		},
		"set nothing": {
			args: "whatif -f " + must + " --set weight",
			err:  "--set weight: write FIELD=VALUE, as in policy.targetSize=60%",
		},
		"set bad YAML": {
			args: "whatif -f " + must + " --set policy={",
			err:  "--set policy={: yaml: line 1: did not find expected node content",
		},
		"set in a list": {
			args: "whatif -f " + must + " --set podSelector.matchLabels.app.x=1",
			err: "--set podSelector.matchLabels.app.x=1: value cannot be set because " +
				".spec.podSelector.matchLabels.app is not a map[string]interface{}",
		},
		"set wrong type": {
			args: "whatif -f " + must + " --set weight=true",
			err: "--set weight=true: decoding placement policy default/web-on-spot: json: cannot unmarshal bool into " +
				"Go struct field PlacementPolicySpec.spec.weight of type int32 (--help explains fields and values)",
		},
		"set unknown": {
			args: "whatif -f " + must + " --set policy.targetsize=1",
			err: `--set policy.targetsize=1: spec of placement policy default/web-on-spot: strict decoding error: ` +
				`unknown field "policy.targetsize" (--help explains fields and values)`,
		},
		"set invalid": {
			args: "whatif -f " + must + " --set weight=1 --set policy.targetSize=200%",
			err: `--set weight=1 --set policy.targetSize=200%: invalid placement policy default/web-on-spot: ` +
				`spec.policy.targetSize: Invalid value: "200%": must be an integer of 0 or more, or a percentage ` +
				`from 0% to 100%, such as 40% (--help explains fields and values)`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			exit, stdout, stderr := call(test.args, test.stdin)
			assert.Equal(t, failed, exit)
			assert.Empty(t, stdout)
			assert.Equal(t, "error: "+test.err+"\n", stderr)
		})
	}
}

// TestHelp runs the examples of the help that need no cluster.
func TestHelp(t *testing.T) {
	_, help, _ := call("--help", "")
	for _, command := range []string{"status", "explain", "whatif"} {
		assert.Regexp(t, `(?m)^  `+command+` +Tell `, help)
	}
	exit, help, stderr := call("whatif --help", "")
	assert.Equal(t, succeeded, exit)
	assert.Empty(t, stderr)

	t.Chdir("../..") // where users are
	examples := regexp.MustCompile(`(?m)^  kubectl placement (whatif -f .*)$`).FindAllStringSubmatch(help, -1)
	require.Len(t, examples, 4)
	for _, example := range examples {
		exit, _, stderr := call(example[1], "")
		assert.NotEqual(t, failed, exit, example[1])
		assert.Empty(t, stderr, example[1])
	}
}

// call runs the plugin with arguments that have no spaces in them.
func call(args, stdin string) (exit int, stdout, stderr string) {
	streams, in, out, err := genericiooptions.NewTestIOStreams()
	in.WriteString(stdin)
	exit = run(strings.Fields(args), streams)
	return exit, out.String(), err.String()
}

func TestCompletion(t *testing.T) {
	for args, want := range map[string]string{
		"__complete status --output j": "json\n",
		"__complete explain p":         "pod\n",
	} {
		exit, stdout, _ := call(args, "")
		assert.Equal(t, succeeded, exit)
		assert.Contains(t, stdout, want)
	}
}
