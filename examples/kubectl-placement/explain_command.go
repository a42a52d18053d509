package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func newExplainCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain pod NAME",
		Short: "Tell what governs a pod, where it may and should go, and why it waits",
		Long: `Tell what governs a pod, where it may and should go, and why it waits; or why no policy governs it.

A group of nodes has so many pods of the pod's cohort, of those that are meant for it in the end. The nodes that are
open would take the pod: they are not cordoned, the pod tolerates their taints, and its own node selector and affinity
match them. Room and the pods that are on them do not count: the scheduler's message tells of that.`,
		Example: `  # A pod of the current namespace
  kubectl placement explain pod web-5d9c7b6f4-x2x7k

  # Likewise, with the names of all nodes that are open to it
  kubectl placement explain pod/web-5d9c7b6f4-x2x7k -o wide

  # From a dump
  kubectl placement explain pod web-5d9c7b6f4-x2x7k --namespace shop --from dump.yaml`,
		Args: func(_ *cobra.Command, args []string) error {
			if podIn(args) == "" {
				return fmt.Errorf("write which pod, as in: kubectl placement explain pod NAME")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			w, err := o.read(cmd.Context())
			if err != nil {
				return err
			}
			namespace, err := o.namespace()
			if err != nil {
				return err
			}
			explanation, err := explain(w, namespace, podIn(args))
			if err != nil {
				return err
			}
			return o.print(explanation)
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
			switch {
			case len(args) == 0:
				return []cobra.Completion{"pod"}, cobra.ShellCompDirectiveNoFileComp
			case len(args) == 1 && isPods(args[0]):
				return o.completeWith(podsResource)(cmd, args, word)
			default:
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
		},
	}
	o.addFlags(cmd)
	return cmd
}

// podIn returns the name of the pod in arguments such as "pod web" or "pod/web"; empty if they are others.
func podIn(args []string) string {
	if len(args) == 1 {
		args = strings.SplitN(args[0], "/", 2)
	}
	if len(args) != 2 || !isPods(args[0]) {
		return ""
	}
	return args[1]
}

func isPods(resource string) bool { return resource == "pod" || resource == "pods" || resource == "po" }
