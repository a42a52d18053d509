package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
)

// whatIfOptions are what the flags of whatif say.
type whatIfOptions struct {
	*options
	manifest, nodes, policy string
	replicas                int
	settings                []string
	plan                    bool
	anyNodes                bool // --nodes is left out
}

func newWhatIfCommand(shared *options) *cobra.Command {
	o := &whatIfOptions{options: shared}
	cmd := &cobra.Command{
		Use:   "whatif",
		Short: "Tell where pending and made-up pods go, and what a change of a policy would do",
		Long: `Tell where pods that are pending or made up go, and what a change of a policy would do.

It begins with the cluster, with a dump of one (--from), or with nothing but the policies of a manifest (-f) and nodes
that it makes up (--nodes). Each pending pod is placed as the scheduler would, one after another.

The room on nodes is not modelled: a node that is not cordoned takes any pod. Nor are taints, affinity, other
constraints and preemption. So a pod may still wait for a place in the group that is shown.

Exit code: 0 on target, 2 off target, 1 if something failed. On target is: in the end (with --set, after the change),
each cohort has as many pods in each group as belong there, and none is pending, or on a node that is not known.`,
		Example: `  # Where do the pending pods go, and 5 more of web, and what if the policy were Strict?
  kubectl placement whatif --policy web-on-spot --replicas 5 --set enforcementMode=Strict

  # The same with a dump of all namespaces
  ` + dumpCommand + ` >dump.yaml
  kubectl placement whatif --from dump.yaml --policy default/web-on-spot --replicas 5 --set enforcementMode=Strict

  # Without a cluster: how are 10 pods divided, and where does each go?
  kubectl placement whatif -f examples/policies/strict-must.yaml --nodes spot=3,od=5 --replicas 10

  # And if there is no spot node?
  kubectl placement whatif -f examples/policies/strict-must.yaml --nodes spot=0,od=5

  # Which pods belong where, by the groups of a policy, whatever their number?
  kubectl placement whatif -f examples/policies/base-and-percentage.yaml --plan

  # 60% instead of 40%, side by side
  kubectl placement whatif -f examples/policies/strict-must.yaml --set policy.targetSize=60%`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("unexpected argument %q: there are only flags", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(cmd.Flags().Changed); err != nil {
				return err
			}
			if o.plan {
				plan, err := o.planOf(cmd.Context())
				if err != nil {
					return err
				}
				return o.print(plan)
			}
			answer, err := o.answer(cmd.Context())
			if err != nil {
				return err
			}
			if err := o.print(answer); err != nil {
				return err
			}
			if !answer.OnTarget {
				return errOffTarget
			}
			return nil
		},
	}
	o.addFlags(cmd)
	flags := cmd.Flags()
	flags.StringVarP(
		&o.manifest,
		"filename",
		"f",
		"",
		"a manifest `FILE` with PlacementPolicies, instead of the cluster; "+
			"\"-\" is standard input. Other objects in it are ignored",
	)
	flags.StringVar(
		&o.nodes,
		"nodes",
		"",
		"with -f: a `LIST` of nodes to make up, such as spot=3,od=5; selected=1,rest=1 by "+
			"default, or one of each of the policy's groups. Those named like a group get labels that put them there. Without "+
			"groups, those of the first kind get labels that the nodeSelector matches, and those of other kinds do not. So the "+
			"first kind is group target if the action is Must, and the other kinds are if it is MustNot. "+
			"Or say the labels: 'spot[pool=spot]=3,od[pool=od,zone=a]=5'",
	)
	flags.BoolVar(
		&o.plan,
		"plan",
		false,
		"show the plan of the policy, with --set after the change, and nothing else: "+
			"to which groups its first pods go, and how many belong in each, for some numbers of pods",
	)
	flags.IntVar(
		&o.replicas,
		"replicas",
		0,
		"`N` more pods for the policy, 10 by default with -f; all are there before the "+
			"first is placed. They are like the newest pod that it governs or, if there is none, have labels that its "+
			"podSelector matches",
	)
	flags.StringVar(
		&o.policy,
		"policy",
		"",
		"the policy, by `NAME` or NAMESPACE/NAME, that --nodes, --replicas and --set are "+
			"about. Not needed if there is but one",
	)
	flags.StringArrayVar(
		&o.settings,
		"set",
		nil,
		"`FIELD=VALUE`: set a field of the policy's spec, and compare. May be "+
			"repeated. FIELD is a path with dots: weight, enforcementMode, podSelector, matchLabelKeys, groups, nodeSelector, "+
			"policy.action, policy.targetSize, or deeper. VALUE is YAML, or empty for the default. Write a key that has dots, "+
			"and text that looks like another type, in this way: "+
			"--set 'nodeSelector={matchLabels: {example.com/spot: \"true\"}}'. Pods that are on a node stay there",
	)
	_ = cmd.RegisterFlagCompletionFunc("policy", o.completeWith(policiesResource))
	return cmd
}

// complete checks the flags and fills in what -f has by default.
func (o *whatIfOptions) complete(given func(flag string) bool) error {
	switch {
	case o.manifest != "" && o.dump != "":
		return errors.New("--filename and --from: write one of them, a manifest or a dump of a cluster")
	case o.manifest == "" && given("nodes"):
		return errors.New("--nodes goes with --filename: a cluster has nodes of its own")
	case o.replicas < 0 || o.replicas > 99999:
		return fmt.Errorf("--replicas %d: write a number from 0 to 99999", o.replicas)
	}
	if o.manifest != "" && !given("nodes") {
		o.anyNodes = true
	}
	if o.manifest != "" && !given("replicas") {
		o.replicas = 10
	}
	return nil
}

// answer reads and makes up what the flags say, and asks about it.
func (o *whatIfOptions) answer(ctx context.Context) (WhatIf, error) {
	w, err := o.world(ctx)
	if err != nil {
		return WhatIf{}, err
	}
	if o.manifest == "" && o.policy == "" && o.replicas == 0 && len(o.settings) == 0 {
		return whatIf(w, types.NamespacedName{}, nil)
	}
	key, err := w.choose(o.policy)
	if err != nil {
		return WhatIf{}, err
	}
	if o.nodes != "" || o.anyNodes || o.replicas > 0 {
		policy, err := w.policy(key)
		if err == nil {
			if o.anyNodes {
				o.nodes = oneOfEachKind(policy)
			}
			err = w.addNodes(o.nodes, policy)
		}
		if err == nil {
			err = w.addPods(o.replicas, policy.Policy)
		}
		if err != nil {
			return WhatIf{}, err
		}
	}
	return whatIf(w, key, o.settings)
}

// planOf returns the plan of the policy, with the settings.
func (o *whatIfOptions) planOf(ctx context.Context) (Plan, error) {
	w, err := o.world(ctx)
	if err != nil {
		return Plan{}, err
	}
	key, err := w.choose(o.policy)
	if err == nil && len(o.settings) > 0 {
		w, err = w.with(key, o.settings)
	}
	if err != nil {
		return Plan{}, err
	}
	policy, err := w.policy(key)
	if err != nil {
		return Plan{}, err
	}
	return planOf(policy), nil
}

// world reads what there is, of a manifest nothing but the policies.
func (o *whatIfOptions) world(ctx context.Context) (*world, error) {
	if o.manifest == "" {
		return o.read(ctx)
	}
	w, err := o.readFile(o.manifest)
	if err != nil {
		return nil, err
	}
	clear(w.nodes)
	clear(w.pods)
	clear(w.sizes)
	for _, u := range w.policies {
		if err := check(u); err != nil {
			return nil, fmt.Errorf("%s: %w", o.manifest, err)
		}
	}
	return w, nil
}
