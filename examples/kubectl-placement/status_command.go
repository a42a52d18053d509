package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newStatusCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status [POLICY...]",
		Short: "Tell of each policy where its pods are, what is off, and why",
		Long: `Tell of each policy where its pods are, what is off, and why.

A policy is on target if each of its cohorts has as many pods in each group of nodes as belong there, and none is
pending. "target 3/4" is 3 pods in the group target, where 4 of the pods that there are belong.`,
		Example: `  # The policies of the current namespace
  kubectl placement status

  # All policies, with their groups of nodes and all cohorts
  kubectl placement status -A -o wide

  # One policy, from a dump
  kubectl placement status --from dump.yaml default/web-on-spot

  # What is off target, for a script
  kubectl placement status -A -o json | jq '.policies[] | select(.onTarget | not) | .policy'`,
		RunE: func(cmd *cobra.Command, names []string) error {
			w, err := o.read(cmd.Context())
			if err != nil {
				return err
			}
			status, err := statusOf(w, names)
			if err != nil {
				return err
			}
			if len(status.Policies) == 0 {
				fmt.Fprintln(o.ErrOut, "There is no placement policy.")
			}
			return o.print(status)
		},
		ValidArgsFunction: o.completeWith(policiesResource),
	}
	o.addFlags(cmd)
	return cmd
}
