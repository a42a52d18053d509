package controlplane

import (
	"fmt"
	"io"
	"net/url"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
	"sigs.k8s.io/kwok/pkg/utils/signals"
)

const (
	etcdComponent              = "etcd"
	apiServerComponent         = "kube-apiserver"
	controllerManagerComponent = "kube-controller-manager"
	kwokComponent              = "kwok"
	schedulerComponent         = "kube-scheduler"
)

// What a child process is told through its environment.
const (
	componentEnv = "CONTROLPLANE_COMPONENT"  // the component to run
	removeDirEnv = "CONTROLPLANE_REMOVE_DIR" // the folder to remove when the parent dies, if any
)

// etcdSocket and etcdPeerSocket are the URLs of Unix sockets in the folder that is every component's working directory.
const (
	etcdSocket     = "unix://etcd.sock"
	etcdPeerSocket = "unix://etcd-peer.sock"
)

// mainCalled guards against a host that does not call Main: it would start itself over and over.
var mainCalled bool

// Main runs a component, and exits when that ends, if this process was started by [Start] or
// [ControlPlane.StartScheduler] for that; otherwise it returns at once. The host must call it first thing in main or
// TestMain, before it parses flags. newScheduler makes the command that a scheduler process runs.
func Main(newScheduler func() *cobra.Command) {
	mainCalled = true
	component := os.Getenv(componentEnv)
	if component == "" {
		return
	}
	go exitWithParent()
	os.Exit(runComponent(component, newScheduler))
}

// exitWithParent ends this process when its parent dies: then the kernel closes the pipe that is our standard input.
func exitWithParent() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	if dir := os.Getenv(removeDirEnv); dir != "" {
		_ = os.RemoveAll(dir)
	}
	os.Exit(1)
}

func runComponent(component string, newScheduler func() *cobra.Command) int {
	var err error
	switch component {
	case etcdComponent:
		err = runEtcd(os.Args[1])
	case apiServerComponent:
		return cli.Run(apiserver.NewAPIServerCommand())
	case controllerManagerComponent:
		return cli.Run(controllermanager.NewControllerManagerCommand())
	case kwokComponent:
		err = runKwok()
	case schedulerComponent:
		return cli.Run(newScheduler())
	default:
		err = fmt.Errorf("unknown component %q", component)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// runEtcd runs an etcd that does not care for its data to outlive the machine.
func runEtcd(dataDir string) error {
	cfg := embed.NewConfig()
	cfg.Dir = dataDir
	cfg.UnsafeNoFsync = true
	cfg.LogLevel = "warn"
	clientURL, err := url.Parse(etcdSocket)
	if err != nil {
		return err
	}
	peerURL, err := url.Parse(etcdPeerSocket)
	if err != nil {
		return err
	}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{*clientURL}, []url.URL{*clientURL}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{*peerURL}, []url.URL{*peerURL}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)

	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return fmt.Errorf("starting etcd: %w", err)
	}
	defer etcd.Close()
	return <-etcd.Err()
}

// runKwok does what kwok's own main function does, but for the version flag.
func runKwok() error {
	flags := pflag.NewFlagSet("global", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	ctx, _ := kwoklog.InitFlags(signals.SetupSignalContext(), flags)
	ctx, err := kwokconfig.InitFlags(ctx, flags)
	if err != nil {
		return fmt.Errorf("reading kwok's configuration: %w", err)
	}
	command := kwok.NewCommand(ctx)
	command.Version = "" // else its --version flag collides with the one of the Kubernetes components
	command.PersistentFlags().AddFlagSet(flags)
	return command.ExecuteContext(ctx)
}
