// Command whatif tells, without a cluster, what placement policies do to pods and what a change of a policy would do. It
// embeds package policystore, as the scheduler plugin does, so that both decide alike.
//
//	go run ./examples/kubectl-placement -f examples/policies/strict-must.yaml --nodes spot=3,od=5 --replicas 10
//
// --help tells more.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/types"
)

const usage = `Tells, without a cluster, what placement policies do to pods, and what a change of a policy would do.

Usage:
  whatif -f FILE [--nodes KIND=N,...] [--replicas N] [--policy NAMESPACE/NAME] [--set FIELD=VALUE]... [-o json]
  whatif --from FILE [--replicas N] [--policy NAMESPACE/NAME] [--set FIELD=VALUE]... [-o json]

Examples:
  # How are 10 pods divided, and where does each go?
  go run ./examples/kubectl-placement -f examples/policies/strict-must.yaml --nodes spot=3,od=5 --replicas 10

  # And if there is no spot node?
  go run ./examples/kubectl-placement -f examples/policies/strict-must.yaml --nodes spot=0,od=5

  # 60% instead of 40%, side by side
  go run ./examples/kubectl-placement -f examples/policies/strict-must.yaml --set policy.targetSize=60%

  # A real cluster: where do its pending pods go, and 5 more of web, and what if the policy were Strict?
  kubectl get pods,nodes,placementpolicies,replicasets,statefulsets -A -o yaml >dump.yaml
  go run ./examples/kubectl-placement --from dump.yaml --policy default/web-on-spot --replicas 5 --set enforcementMode=Strict

Flags:
  -f FILE        a manifest with PlacementPolicies ("-" is standard input). Other objects in it are ignored.
  --from FILE    what kubectl get -o yaml (or json) wrote. Used are pods, nodes and placementpolicies, and for the sizes that
                 workloads want replicasets, statefulsets and replicationcontrollers; other objects are ignored. An invalid
                 policy is listed, and governs nothing.
  --nodes LIST   with -f: nodes to make up, such as spot=3,od=5; selected=1,rest=1 by default. Those of the first kind get
                 labels that the nodeSelector of the policy matches, those of other kinds none. So the first kind is the
                 target group if the action is Must, and the other kinds are if it is MustNot. Or say the labels:
                 'spot[pool=spot]=3,od[pool=od,zone=a]=5'.
  --replicas N   N more pods for the policy, 10 by default with -f; all are there before the first is placed. They are like
                 the newest pod that it governs or, if there is none, have labels that its podSelector matches.
  --policy NAMESPACE/NAME
                 the policy that --nodes, --replicas and --set are about. Not needed if there is but one.
  --set FIELD=VALUE
                 set a field of the policy's spec, and compare. May be repeated. FIELD is a path with dots: weight,
                 enforcementMode, podSelector, nodeSelector, matchLabelKeys, policy.action, policy.targetSize, or deeper.
                 VALUE is YAML, or empty for the default. Write a key that has dots, and text that looks like another type,
                 in this way: --set 'nodeSelector={matchLabels: {example.com/spot: "true"}}'. Pods that are on a node stay
                 there.
  -o json        print all; the type Answer in answer.go says what the fields mean. Text shows the first 20 of each list.

The room on nodes is not modelled: a node that is not cordoned takes any pod. Nor are taints, affinity, other constraints
and preemption. So a pod may still wait for a place in the group that is shown.

Exit code: 0 on target, 2 off target, 1 if the input is wrong. On target is: in the end (with --set, after the change), each
cohort has as many pods in the target group as belong there, and none is pending, or on a node that is not in the file.
"go run" itself exits with 1 instead of 2: for scripts, go build -o whatif ./examples/kubectl-placement
`

const (
	onTarget  = 0
	badInput  = 1
	offTarget = 2
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	o, err := parseFlags(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, usage)
		return 0
	}
	var a Answer
	if err == nil {
		a, err = o.answer(stdin)
	}
	switch {
	case err != nil:
		fmt.Fprintf(stderr, "whatif: %v\n", err)
		return badInput
	case o.output == "json":
		encoder := json.NewEncoder(stdout)
		encoder.SetIndent("", "  ")
		_ = encoder.Encode(a) // nobody is left to tell
	default:
		a.text(stdout)
	}
	if !a.OnTarget {
		return offTarget
	}
	return onTarget
}

// options are what the flags say.
type options struct {
	manifest, dump, nodes, policy, output string
	replicas                              int
	settings                              []string
}

func parseFlags(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("whatif", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // run prints errors and usage
	flags.StringVar(&o.manifest, "f", "", "")
	flags.StringVar(&o.dump, "from", "", "")
	flags.StringVar(&o.nodes, "nodes", "", "")
	flags.StringVar(&o.policy, "policy", "", "")
	flags.StringVar(&o.output, "o", "", "")
	flags.IntVar(&o.replicas, "replicas", 0, "")
	flags.Func("set", "", func(setting string) error {
		o.settings = append(o.settings, setting)
		return nil
	})
	err := flags.Parse(args)
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	switch {
	case errors.Is(err, flag.ErrHelp):
		return o, err
	case err != nil:
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q: there are only flags", flags.Arg(0))
	case (o.manifest == "") == (o.dump == ""):
		err = errors.New("say where the policies are: either -f FILE, a manifest, or --from FILE, a dump of a cluster")
	case o.dump != "" && given["nodes"]:
		err = errors.New("--nodes goes with -f: a dump has nodes of its own")
	case o.replicas < 0 || o.replicas > 99999:
		err = fmt.Errorf("--replicas %d: write a number from 0 to 99999", o.replicas)
	case o.output != "" && o.output != "json":
		err = fmt.Errorf("-o %s: write -o json, or leave it out for text", o.output)
	}
	if err != nil {
		return o, fmt.Errorf("%w (--help explains)", err)
	}
	if o.manifest != "" && !given["nodes"] {
		o.nodes = "selected=1,rest=1"
	}
	if o.manifest != "" && !given["replicas"] {
		o.replicas = 10
	}
	return o, nil
}

// answer reads and makes up what the flags say, and asks about it.
func (o options) answer(stdin io.Reader) (Answer, error) {
	file := o.manifest + o.dump // one of them is empty
	w, err := readFile(file, stdin)
	if err != nil {
		return Answer{}, err
	}
	if o.manifest != "" {
		clear(w.nodes)
		clear(w.pods)
		clear(w.sizes)
		for _, u := range w.policies {
			if err := check(u); err != nil {
				return Answer{}, fmt.Errorf("%s: %w", file, err)
			}
		}
	} else if len(w.nodes) == 0 {
		return Answer{}, fmt.Errorf("%s: there is no Node in it: write it with kubectl get pods,nodes,placementpolicies,replicasets,statefulsets -A -o yaml", file)
	}
	if o.manifest == "" && o.policy == "" && o.replicas == 0 && len(o.settings) == 0 {
		return answer(w, types.NamespacedName{}, nil)
	}

	key, err := w.choose(o.policy)
	if err != nil {
		return Answer{}, fmt.Errorf("%s: %w", file, err)
	}
	if o.nodes != "" || o.replicas > 0 {
		policy, err := policyOf(w.policies[key])
		if err == nil {
			err = w.addNodes(o.nodes, policy.NodeSelector)
		}
		if err == nil {
			err = w.addPods(o.replicas, policy)
		}
		if err != nil {
			return Answer{}, err
		}
	}
	return answer(w, key, o.settings)
}

func readFile(name string, stdin io.Reader) (*world, error) {
	file := stdin
	if name != "-" {
		opened, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer opened.Close()
		file = opened
	}
	w, err := readWorld(file)
	if err == nil && len(w.policies) == 0 {
		err = errors.New("there is no PlacementPolicy in it")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return w, nil
}
