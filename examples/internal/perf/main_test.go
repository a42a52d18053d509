// Package perf measures what the plugin costs a scheduler, with the scheduler's own benchmark
// (k8s.io/kubernetes/test/integration/scheduler_perf): real etcd, API server and scheduler, the same workload for each
// variant of the scheduler. One command runs all variants in turn, and ends with a table of how they compare:
//
//	go test ./examples/internal/perf -run '^$' -bench Scheduling -benchtime 1x -timeout 3h \
//		-perf.nodes 5000 -perf.pods 5000 -perf.repetitions 5
//
// Without the flags it runs each variant once at a size that says nothing about speed, and only makes sure that the
// pods were placed as the policies say. BENCHMARKS.md has the results and explains them.
package perf

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/etcdmain"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"
)

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "etcd" {
		etcd()
	}
	if err := perf.InitTests(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(runIn(m))
}

// runIn runs the benchmarks with all their files in a folder that it removes, and makes sure that they left nothing
// behind.
func runIn(m *testing.M) (code int) {
	dir, err := setUp()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 2
		}
	}()
	code = m.Run()
	if err := errors.Join(noChildren(), isEmpty(os.TempDir())); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 2
	}
	return code
}

// setUp returns a folder that has bin with an etcd, which scheduler_perf looks for in the PATH; tmp for temporary
// files; and log, where scheduler_perf keeps the logs of a run while it lasts, instead of printing them.
func setUp() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding this program's own binary: %w", err)
	}
	dir, err := os.MkdirTemp("", "perf-")
	if err != nil {
		return "", err
	}
	bin, tmp, log := filepath.Join(dir, "bin"), filepath.Join(dir, "tmp"), filepath.Join(dir, "log")
	for _, folder := range []string{bin, tmp, log} {
		if err := os.Mkdir(folder, 0o700); err != nil {
			return "", err
		}
	}
	if err := os.Symlink(self, filepath.Join(bin, "etcd")); err != nil {
		return "", err
	}
	for name, value := range map[string]string{
		"PATH":      bin + string(filepath.ListSeparator) + os.Getenv("PATH"),
		"TMPDIR":    tmp,
		"ARTIFACTS": log,
	} {
		if err := os.Setenv(name, value); err != nil {
			return "", err
		}
	}
	if items := flag.Lookup("data-items-dir"); items.Value.String() == "" {
		return dir, items.Value.Set(log)
	}
	return dir, nil
}

// etcd is the main function of the child processes. If the benchmark is killed, its etcd ends too, and tidies up.
func etcd() {
	parent := os.Getppid()
	go func() {
		for os.Getppid() == parent {
			time.Sleep(time.Second)
		}
		_ = os.RemoveAll(filepath.Dir(filepath.Dir(os.Args[0])))
		os.Exit(1)
	}()
	etcdmain.Main(append(os.Args, "--unsafe-no-fsync"))
	os.Exit(0)
}

func noChildren() error {
	if _, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); !errors.Is(err, syscall.ECHILD) {
		return errors.New("a child process was left behind")
	}
	return nil
}

func isEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) > 0 {
		err = fmt.Errorf("files were left behind: %v", entries)
	}
	return err
}
