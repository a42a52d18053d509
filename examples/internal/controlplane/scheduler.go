package controlplane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"

	"sigs.k8s.io/yaml"
)

// stopTimeout is how long a scheduler may take to stop after SIGTERM.
const stopTimeout = 10 * time.Second

// SchedulerOptions are the options of [ControlPlane.StartScheduler].
type SchedulerOptions struct {
	// Name is the name of the process and of its log file. Schedulers of the same name, one after the other, share a
	// log. Default: kube-scheduler.
	Name string

	// Config is a KubeSchedulerConfiguration in YAML. Its clientConnection.kubeconfig is set to Kubeconfig. Required.
	Config []byte

	// Kubeconfig is the path of the kubeconfig file that says who the scheduler is, for example one made by
	// [ControlPlane.ServiceAccountKubeconfig]. Required.
	Kubeconfig string

	// ExtraArgs are added to the command line.
	ExtraArgs []string
}

// Scheduler is a scheduler process. Its methods may be called by several goroutines at the same time.
type Scheduler struct {
	process *process
	url     string
	token   string // of the admin
	client  *http.Client
}

// StartScheduler starts the scheduler that the host gave to [Main], and returns when it is ready: its informers have
// synced, though with leader election it need not lead yet. If it ends before that, or is not ready when ctx ends or
// after two minutes, say because it lacks a permission, then no process is left and the error quotes the end of its
// log. Several schedulers may run at the same time; give them different names.
func (cp *ControlPlane) StartScheduler(ctx context.Context, options SchedulerOptions) (*Scheduler, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if options.Name == "" {
		options.Name = schedulerComponent
	}
	configPath := cp.file(options.Name + "-config.yaml")
	if err := writeSchedulerConfig(configPath, options); err != nil {
		return nil, fmt.Errorf("starting %s: %w", options.Name, err)
	}
	port, release, err := reservePort()
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", options.Name, err)
	}
	defer release()

	p, err := cp.launch(schedulerComponent, options.Name, append([]string{
		"--config=" + configPath,
		"--authentication-kubeconfig=" + options.Kubeconfig,
		"--authorization-kubeconfig=" + options.Kubeconfig,
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(port),
		"--permit-port-sharing",
	}, options.ExtraArgs...)...)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the scheduler makes up a certificate at each start
	}
	s := &Scheduler{
		process: p,
		url:     fmt.Sprintf("https://127.0.0.1:%d", port),
		token:   cp.config.BearerToken,
		client:  &http.Client{Transport: transport},
	}
	err = cp.await(ctx, options.Name+" to be ready", func(ctx context.Context) error {
		_, err := s.get(ctx, "/readyz", "") // anonymous, so that the scheduler's user need not review our token
		return err
	}, p)
	if err != nil {
		if !p.exited() { // otherwise the error quotes the log already
			err = fmt.Errorf("%w%s", err, p.logTail())
		}
		s.Kill()
		return nil, fmt.Errorf("starting %s: %w", options.Name, err)
	}
	cp.progress(options.Name + " is ready")
	return s, nil
}

// writeSchedulerConfig writes the scheduler's configuration, with the kubeconfig in it.
func writeSchedulerConfig(path string, options SchedulerOptions) error {
	if options.Kubeconfig == "" {
		return errors.New("no kubeconfig given")
	}
	var config map[string]any
	if err := yaml.Unmarshal(options.Config, &config); err != nil {
		return fmt.Errorf("parsing its configuration: %w", err)
	}
	if config == nil {
		return errors.New("no configuration given")
	}
	connection, _ := config["clientConnection"].(map[string]any)
	if connection == nil {
		connection = map[string]any{}
	}
	connection["kubeconfig"] = options.Kubeconfig
	config["clientConnection"] = connection
	data, err := yaml.Marshal(config)
	if err != nil {
		return fmt.Errorf("writing its configuration: %w", err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("writing its configuration: %w", err)
	}
	return nil
}

// Stop asks the scheduler to end (SIGTERM) and waits until it has. If that takes more than 10 seconds, Stop kills it
// and returns an error. Stop does nothing if the scheduler has ended.
func (s *Scheduler) Stop() error {
	s.process.signal(syscall.SIGTERM)
	timeout := time.NewTimer(stopTimeout)
	defer timeout.Stop()
	select {
	case <-s.process.done:
		return nil
	case <-timeout.C:
		s.process.kill()
		return fmt.Errorf("stopping %s: it had to be killed after %s", s.process.name, stopTimeout)
	}
}

// Kill kills the scheduler (SIGKILL) and waits until it is gone. It does nothing if the scheduler has ended.
func (s *Scheduler) Kill() { s.process.kill() }

// Signal sends the scheduler a signal that is not meant to end it. It does nothing if the scheduler has ended.
func (s *Scheduler) Signal(signal syscall.Signal) {
	_ = s.process.cmd.Process.Signal(signal) // the only possible error is that it has ended
}

// Done returns a channel that is closed when the scheduler has ended, for whatever reason.
func (s *Scheduler) Done() <-chan struct{} { return s.process.done }

// Err returns an error, with the end of the log, if the scheduler has ended by itself. It returns nil while the
// scheduler runs, and if it was told to end.
func (s *Scheduler) Err() error { return s.process.failure() }

// LogFile returns the path of the scheduler's log.
func (s *Scheduler) LogFile() string { return s.process.logPath }

// Get returns the body of an HTTP GET of the scheduler's own server, such as /metrics or /configz, as the admin. A
// status other than 200 is an error that holds the body. The scheduler must be permitted to create token reviews, with
// which it looks up who asks; [ControlPlane.WriteRequests] counts them.
func (s *Scheduler) Get(ctx context.Context, path string) ([]byte, error) {
	body, err := s.get(ctx, path, s.token)
	if err != nil {
		return nil, fmt.Errorf("getting %s of %s: %w", path, s.process.name, err)
	}
	return body, nil
}

func (s *Scheduler) get(ctx context.Context, path, token string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		return nil, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, body)
	}
	return body, err
}
