package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	nodefast "sigs.k8s.io/kwok/kustomize/stage/node/fast"
	podfast "sigs.k8s.io/kwok/kustomize/stage/pod/fast"
)

const (
	// startTimeout bounds the start of the control plane, of a component or of nodes, if the caller's context does not.
	// On an idle machine they take some seconds.
	startTimeout = 2 * time.Minute

	pollInterval = 50 * time.Millisecond
)

var errStopped = errors.New("the control plane has been stopped")

// controllers are those that the controller manager runs: what it takes for workloads to create, replace and remove
// pods.
var controllers = []string{
	"deployment-controller",
	"disruption-controller",
	"garbage-collector-controller",
	"job-controller",
	"namespace-controller",
	"node-lifecycle-controller",
	"pod-garbage-collector-controller",
	"replicaset-controller",
	"replicationcontroller-controller",
	"serviceaccount-controller",
	"statefulset-controller",
	"taint-eviction-controller",
}

// Options are the options of [Start]. The zero value is useful.
type Options struct {
	// Progress is told in one line each when a component has started. Nil for silence.
	Progress io.Writer

	// APIServerArgs are added to the command line of kube-apiserver.
	APIServerArgs []string

	// KeepDir leaves the temporary folder, with the logs and the audit log in it, in place when the control plane
	// stops.
	KeepDir bool
}

// ControlPlane is a running control plane. Its methods may be called by several goroutines at the same time.
type ControlPlane struct {
	options Options
	begun   time.Time
	dir     string

	port        int // of the API server
	releasePort func()
	caData      []byte

	config  *rest.Config
	client  kubernetes.Interface
	dynamic dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper

	stop func() error // stopOnce, once

	// mu guards the fields below and writing to options.Progress. No process is started without it, so that Stop misses
	// none.
	mu        sync.Mutex
	stopped   bool
	processes []*process // all that run, and of those that have ended the last one of each name
}

// Start starts a control plane and returns when it is ready for workloads: the API server serves, and the controllers
// have made the default service account. There are no nodes and no scheduler yet. The caller must call Stop in the end.
//
// ctx and a time limit of two minutes bound the start only. If it fails, nothing is left behind. If that is because a
// component ended, the error says which one and how, with the last 20 lines of its log.
func Start(ctx context.Context, options Options) (_ *ControlPlane, err error) {
	if !mainCalled {
		return nil, errors.New(
			"starting a control plane: the program must call controlplane.Main first thing in main or TestMain",
		)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()

	if options.Progress == nil {
		options.Progress = io.Discard
	}
	cp := &ControlPlane{options: options, begun: time.Now()}
	cp.stop = sync.OnceValue(cp.stopOnce)
	if cp.port, cp.releasePort, err = reservePort(); err != nil {
		return nil, fmt.Errorf("starting a control plane: %w", err)
	}
	if cp.dir, err = os.MkdirTemp("", "controlplane-"); err != nil {
		cp.releasePort()
		return nil, fmt.Errorf("starting a control plane: %w", err)
	}
	if err := cp.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("starting a control plane: %w", err), cp.Stop())
	}
	return cp, nil
}

func (cp *ControlPlane) start(ctx context.Context) error {
	if err := cp.createCredentials(); err != nil {
		return err
	}
	if err := cp.createClients(); err != nil {
		return err
	}
	if err := os.WriteFile(cp.file(auditPolicyFile), []byte(auditPolicy), 0o600); err != nil {
		return fmt.Errorf("writing the audit policy: %w", err)
	}
	stages := strings.Join([]string{
		nodefast.DefaultNodeInit,
		podfast.DefaultPodReady,
		podfast.DefaultPodComplete,
		podfast.DefaultPodDelete,
	}, "\n---\n")
	if err := os.WriteFile(cp.file("kwok.yaml"), []byte(stages), 0o600); err != nil {
		return fmt.Errorf("writing kwok's configuration: %w", err)
	}

	if _, err := cp.launch(etcdComponent, etcdComponent, cp.file("etcd")); err != nil {
		return err
	}
	if err := cp.startAPIServer(ctx); err != nil {
		return err
	}
	_, err := cp.launch(controllerManagerComponent, controllerManagerComponent,
		"--kubeconfig="+cp.kubeconfigPath(controllerManagerComponent),
		"--controllers="+strings.Join(controllers, ","),
		"--use-service-account-credentials",
		"--leader-elect=false",
		"--secure-port=0",
		"--kube-api-qps=1000",
		"--kube-api-burst=1000",
		// Nobody renews the nodes' leases, which saves writes: so they must not be missed.
		"--node-monitor-grace-period=1000h",
	)
	if err != nil {
		return err
	}
	_, err = cp.launch(kwokComponent, kwokComponent,
		"--kubeconfig="+cp.kubeconfigPath(kwokComponent),
		"--config="+cp.file("kwok.yaml"),
		"--manage-all-nodes",
		"--node-lease-duration-seconds=0",
	)
	if err != nil {
		return err
	}
	// Until it is there the API server refuses all pods.
	err = cp.await(ctx, "the default service account", func(ctx context.Context) error {
		_, err := cp.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	}, nil)
	if err != nil {
		return err
	}
	cp.progress("controllers are running")
	return nil
}

func (cp *ControlPlane) createClients() error {
	var err error
	if cp.config, err = clientcmd.BuildConfigFromFlags("", cp.Kubeconfig()); err != nil {
		return fmt.Errorf("reading the admin's kubeconfig: %w", err)
	}
	cp.config.QPS = -1 // no limit
	client, err := kubernetes.NewForConfig(cp.config)
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	cp.client = client
	if cp.dynamic, err = dynamic.NewForConfig(cp.config); err != nil {
		return fmt.Errorf("creating a dynamic client: %w", err)
	}
	cp.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))
	return nil
}

// startAPIServer starts the API server and waits until it is ready.
func (cp *ControlPlane) startAPIServer(ctx context.Context) error {
	_, err := cp.launch(apiServerComponent, apiServerComponent, append([]string{
		"--etcd-servers=" + etcdSocket,
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(cp.port),
		"--permit-port-sharing",
		"--tls-cert-file=" + cp.file(servingCertFile),
		"--tls-private-key-file=" + cp.file(servingKeyFile),
		"--cert-dir=" + cp.dir,
		"--authorization-mode=RBAC",
		"--token-auth-file=" + cp.file(tokenFile),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + cp.file(serviceAccountKeyFile),
		"--service-account-signing-key-file=" + cp.file(serviceAccountKeyFile),
		"--service-cluster-ip-range=10.0.0.0/24",
		"--endpoint-reconciler-type=none", // an Endpoints object may not hold a loopback address
		"--audit-policy-file=" + cp.file(auditPolicyFile),
		"--audit-log-path=" + cp.file(auditLogFile),
		"--audit-log-maxsize=1000000", // megabytes: no rotation
	}, cp.options.APIServerArgs...)...)
	if err != nil {
		return err
	}
	err = cp.await(ctx, "the API server to be ready", func(ctx context.Context) error {
		return cp.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}, nil)
	if err != nil {
		return err
	}
	cp.progress("kube-apiserver is ready")
	return nil
}

// RestartAPIServer kills the API server (SIGKILL), starts another on the same address, and returns when that is ready.
// The cluster's state is kept. Meanwhile requests fail.
func (cp *ControlPlane) RestartAPIServer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	cp.mu.Lock()
	i := slices.IndexFunc(cp.processes, func(p *process) bool { return p.component == apiServerComponent })
	apiServer := cp.processes[i]
	cp.mu.Unlock()
	apiServer.kill()
	if err := cp.startAPIServer(ctx); err != nil {
		return fmt.Errorf("restarting the API server: %w", err)
	}
	return nil
}

// Stop kills all processes, schedulers too, and removes the temporary folder. Calls after the first one do nothing and
// return the same error.
func (cp *ControlPlane) Stop() error {
	return cp.stop()
}

func (cp *ControlPlane) stopOnce() error {
	cp.mu.Lock()
	cp.stopped = true
	processes := cp.processes
	cp.mu.Unlock()

	// The data is thrown away, so nobody needs time to tidy up.
	for _, p := range processes {
		p.signal(os.Kill)
	}
	for _, p := range processes {
		<-p.done
	}
	cp.releasePort()
	if cp.options.KeepDir {
		return nil
	}
	if err := os.RemoveAll(cp.dir); err != nil {
		return fmt.Errorf("removing the control plane's folder: %w", err)
	}
	return nil
}

// Dir returns the path of the folder that holds all data, among it a log of each process, NAME.log, and audit.log.
func (cp *ControlPlane) Dir() string { return cp.dir }

// Kubeconfig returns the path of the kubeconfig file of the admin, who may do everything.
func (cp *ControlPlane) Kubeconfig() string { return cp.kubeconfigPath("admin") }

// RESTConfig returns a client configuration for the admin, without a rate limit. The caller may change it.
func (cp *ControlPlane) RESTConfig() *rest.Config { return rest.CopyConfig(cp.config) }

// Client returns a client that acts as the admin.
func (cp *ControlPlane) Client() kubernetes.Interface { return cp.client }

// Dynamic returns a dynamic client that acts as the admin.
func (cp *ControlPlane) Dynamic() dynamic.Interface { return cp.dynamic }

func (cp *ControlPlane) file(name string) string { return filepath.Join(cp.dir, name) }

func (cp *ControlPlane) progress(message string) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	fmt.Fprintf(cp.options.Progress, "%5.1fs %s\n", time.Since(cp.begun).Seconds(), message)
}

// launch starts a process of the control plane.
func (cp *ControlPlane) launch(component, name string, args ...string) (*process, error) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if cp.stopped {
		return nil, fmt.Errorf("starting %s: %w", name, errStopped)
	}
	p, err := startProcess(cp.dir, !cp.options.KeepDir, component, name, args...)
	if err != nil {
		return nil, err
	}
	cp.processes = slices.DeleteFunc(cp.processes, func(old *process) bool { return old.name == name && old.exited() })
	cp.processes = append(cp.processes, p)
	return p, nil
}

// await calls check again and again until it returns nil. It gives up when ctx ends, when the control plane is stopped,
// or when a component that the cluster needs has ended though nobody told it to, or so has the scheduler given as also.
func (cp *ControlPlane) await(
	ctx context.Context,
	what string,
	check func(context.Context) error,
	also *process,
) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if err := cp.failure(also); err != nil {
			return fmt.Errorf("waiting for %s: %w", what, err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w (%w)", what, context.Cause(ctx), err)
		}
	}
}

// failure says why waiting is in vain, as await describes; nil if it is not.
func (cp *ControlPlane) failure(also *process) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if cp.stopped {
		return errStopped
	}
	for _, p := range cp.processes {
		if p.component == schedulerComponent && p != also {
			continue
		}
		if err := p.failure(); err != nil {
			return err
		}
	}
	return nil
}
