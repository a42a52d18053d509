package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

const (
	outputText = "text"
	outputWide = "wide"
	outputJSON = "json"
	outputYAML = "yaml"
)

var outputs = []string{outputText, outputWide, outputJSON, outputYAML}

// options are what the commands share: what they read, and how they print.
type options struct {
	genericiooptions.IOStreams
	config        *genericclioptions.ConfigFlags
	dump          string
	allNamespaces bool
	output        string
}

// addFlags adds the flags of a command that reads a cluster or a dump.
func (o *options) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&o.dump, "from", "",
		"read `FILE`, which kubectl get -o yaml (or json) wrote, instead of the cluster; \"-\" is standard input")
	flags.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false,
		"all namespaces, as a dump is read unless there is --namespace")
	flags.StringVarP(&o.output, "output", "o", outputText,
		"`FORMAT`: text, wide (more columns, and all rows), json or yaml")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(outputs, cobra.ShellCompDirectiveNoFileComp))
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if !slices.Contains(outputs, o.output) {
			return fmt.Errorf("--output %s: write one of %s", o.output, strings.Join(outputs, ", "))
		}
		return nil
	}
}

// namespace returns the namespace to read; empty means all.
func (o *options) namespace() (string, error) {
	switch {
	case o.allNamespaces:
		return "", nil
	case o.dump != "":
		return *o.config.Namespace, nil
	default:
		namespace, _, err := o.config.ToRawKubeConfigLoader().Namespace()
		return namespace, err
	}
}

// read reads the dump, if there is one, or the cluster.
func (o *options) read(ctx context.Context) (*world, error) {
	namespace, err := o.namespace()
	if err != nil {
		return nil, err
	}
	if o.dump != "" {
		w, err := o.readFile(o.dump)
		if err == nil && len(w.nodes) == 0 {
			err = fmt.Errorf("%s: there is no Node in it: write it with %s", o.dump, dumpCommand)
		}
		if err == nil && namespace != "" {
			w.keepNamespace(namespace)
		}
		return w, err
	}
	client, err := o.client()
	if err != nil {
		return nil, err
	}
	return readCluster(ctx, client, namespace)
}

func (o *options) client() (dynamic.Interface, error) {
	config, err := o.config.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	return dynamic.NewForConfig(config)
}

// completeWith completes a word by the names of the resource's objects.
func (o *options) completeWith(resource schema.GroupVersionResource) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return o.completeNames(cmd.Context(), resource), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeNames returns the names of the resource's objects in the cluster; none if they cannot be listed.
func (o *options) completeNames(ctx context.Context, resource schema.GroupVersionResource) (names []string) {
	client, err := o.client()
	if err != nil {
		return nil
	}
	namespace, err := o.namespace()
	if err != nil {
		return nil
	}
	_ = listAll(ctx, client.Resource(resource).Namespace(namespace), func(object *unstructured.Unstructured) error {
		names = append(names, object.GetName())
		return nil
	})
	return names
}

func (o *options) readFile(name string) (*world, error) {
	file := o.In
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

// answer is a result that can be printed as text.
type answer interface {
	text(out *tables)
}

// print prints in the format that was asked for.
func (o *options) print(a answer) error {
	switch o.output {
	case outputJSON:
		encoder := json.NewEncoder(o.Out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(a)
	case outputYAML:
		data, err := yaml.Marshal(a)
		if err == nil {
			_, err = o.Out.Write(data)
		}
		return err
	default:
		a.text(&tables{Writer: o.Out, wide: o.output == outputWide})
		return nil
	}
}
