// Command kubectl-placement is a plugin of kubectl that tells how placement policies fare, what they mean for a pod,
// and what would happen if something were changed. It reads what the scheduler reads and embeds the same package
// policystore, so that both decide alike.
//
//	go build -o ~/.local/bin/kubectl-placement ./examples/kubectl-placement && kubectl placement status
//
// --help tells more.
package main

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

const (
	succeeded = 0
	failed    = 1
	offTarget = 2
)

// errOffTarget makes the exit code offTarget. All is printed already.
var errOffTarget = errors.New("off target")

func main() {
	os.Exit(run(os.Args[1:], genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}))
}

func run(args []string, streams genericiooptions.IOStreams) int {
	cmd := newCommand(streams)
	cmd.SetArgs(args)
	switch err := cmd.Execute(); {
	case err == nil:
		return succeeded
	case errors.Is(err, errOffTarget):
		return offTarget
	default:
		fmt.Fprintln(streams.ErrOut, "error:", err)
		return failed
	}
}

// dumpCommand writes what --from reads.
const dumpCommand = "kubectl get " +
	"pods,nodes,placementpolicies,replicasets,statefulsets,replicationcontrollers -A -o yaml"

func newCommand(streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{IOStreams: streams, config: genericclioptions.NewConfigFlags(true)}
	cmd := &cobra.Command{
		Use:   "kubectl-placement",
		Short: "Tell how placement policies fare, what governs a pod, and what a change would do",
		Long: `Tell how placement policies fare, what governs a pod, and what a change would do.

It reads the cluster of your kubeconfig, or a dump of one:

  ` + dumpCommand + ` >dump.yaml

All of kubectl's flags that choose a cluster and a user work here too.

It writes nothing, and needs only the right to list: pods, placementpolicies, replicasets, statefulsets and
replicationcontrollers in the namespaces that it is asked about, and nodes.

For completion, put an executable kubectl_complete-placement into the PATH:

  #!/bin/sh
  exec kubectl placement __complete "$@"`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl placement"},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	cmd.SetIn(streams.In)
	cmd.SetOut(streams.Out)
	cmd.SetErr(streams.ErrOut)
	o.config.AddFlags(cmd.PersistentFlags())
	cmd.PersistentFlags().VisitAll(func(f *pflag.Flag) {
		f.Hidden = !slices.Contains([]string{"kubeconfig", "context", "namespace"}, f.Name)
	})
	_ = cmd.RegisterFlagCompletionFunc("namespace", cobra.NoFileCompletions)
	cmd.AddCommand(newStatusCommand(o), newExplainCommand(o), newWhatIfCommand(o))
	return cmd
}
