// Command quickstart shows a placement policy at work on a real control plane, which it starts on this machine and
// removes again: etcd, kube-apiserver, kube-controller-manager, a scheduler with the plugin, and kwok in place of the
// kubelets.
//
//	go run ./examples/quickstart
//
// It scales, updates, disturbs and breaks a Deployment step by step, and checks in the end that the share of its pods
// in the target group is exact.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/placement-policy/scheduler-plugin/examples"
	"github.com/placement-policy/scheduler-plugin/examples/internal/controlplane"
	"github.com/placement-policy/scheduler-plugin/placementpolicy"
)

const usage = `Usage: go run ./examples/quickstart [flags]

Starts a control plane on this machine, applies a placement policy and a Deployment, and then scales it, updates it, deletes
half of its pods, relabels a node, and kills the scheduler in the middle of a scale-up. After each step a table shows where
the pods are, and what the scheduler knows. Nothing is left behind.

Exit code: 0 if the pods are in the end exactly where the policy wants them, 1 if not, or if something failed or it was
interrupted before the end, 2 if the flags are wrong. "go run" itself exits with 1 instead of 2: for scripts,
go build -o quickstart ./examples/quickstart

Flags:
`

// options are what the flags say.
type options struct {
	policyFile string
	replicas   int
	nodes      []int // of each kind; nil: 3 of each
	keep       bool
	svgFile    string
}

func main() {
	controlplane.Main(newSchedulerCommand) // does not return in the processes of the control plane
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// newSchedulerCommand is the scheduler of examples/scheduler.
func newSchedulerCommand() *cobra.Command {
	return app.NewSchedulerCommand(app.WithPlugin(placementpolicy.Name, placementpolicy.New))
}

func run(args []string, stdout, stderr io.Writer) int {
	o, err := parseFlags(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch err := demonstrate(ctx, o, stdout); {
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(stderr, "interrupted: the control plane is removed")
		return 1
	case err != nil:
		fmt.Fprintln(stdout, err)
		return 1
	default:
		return 0
	}
}

func parseFlags(args []string, stderr io.Writer) (options, error) {
	o := options{replicas: 10}
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, usage)
		flags.PrintDefaults()
	}
	flags.StringVar(
		&o.policyFile,
		"policy",
		"",
		"`FILE` with a PlacementPolicy to apply instead of examples/policies/strict-must.yaml; the Deployment and the nodes get the labels that it selects",
	)
	flags.Func(
		"replicas",
		"`N` replicas to begin with, at least 1; later steps have 2.5 and 4 times as many (default 10)",
		func(value string) (err error) {
			if o.replicas, err = strconv.Atoi(value); err != nil || o.replicas < 1 {
				return errors.New("must be a number of at least 1")
			}
			return nil
		},
	)
	flags.Func("nodes", "`N,N,...`: how many nodes in each of the policy's groups, in their order, at least one "+
		"(default 3 in each); without groups, of those that its nodeSelector matches and of the others", func(value string) error {
		o.nodes = nil
		for _, number := range strings.Split(value, ",") {
			n, err := strconv.Atoi(number)
			if err != nil || n < 1 {
				return errors.New("must be numbers of at least 1, such as 3,3")
			}
			o.nodes = append(o.nodes, n)
		}
		return nil
	})
	flags.BoolVar(
		&o.keep,
		"keep",
		false,
		"leave the control plane running at the end and print its KUBECONFIG, until Ctrl-C",
	)
	flags.StringVar(&o.svgFile, "svg", "", "draw a picture into `FILE`: how many pods are in each group over time, "+
		"beside the same steps with the stock scheduler and a topology spread constraint")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.keep && o.svgFile != "" {
		err := errors.New("--keep and --svg: write one of them")
		fmt.Fprintln(stderr, err)
		return o, err
	}
	if flags.NArg() > 0 {
		err := fmt.Errorf("unexpected argument %q: there are only flags", flags.Arg(0))
		fmt.Fprintln(stderr, err)
		flags.Usage()
		return o, err
	}
	return o, nil
}

// readPolicy returns the manifest that o asks for.
func (o options) readPolicy() ([]byte, error) {
	if o.policyFile == "" {
		return examples.Files.ReadFile("policies/strict-must.yaml")
	}
	manifest, err := os.ReadFile(o.policyFile)
	if err != nil {
		return nil, fmt.Errorf("reading the policy: %w", err)
	}
	return manifest, nil
}
