package controlplane

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// logTailLines is how many lines of its log an error about a process quotes.
const logTailLines = 20

// process is a component that runs as a child process.
type process struct {
	component string
	name      string
	logPath   string
	cmd       *exec.Cmd

	stopping atomic.Bool   // set before this package signals the process: its end is then no failure
	done     chan struct{} // closed when the process has ended and was waited for
}

// startProcess executes this binary again as the given component, in the folder dir. If removeDir is set, the child
// removes dir when this process dies. Its output is appended to a log file in dir that is called after name.
func startProcess(dir string, removeDir bool, component, name string, args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program's own binary: %w", err)
	}
	p := &process{
		component: component,
		name:      name,
		logPath:   filepath.Join(dir, name+".log"),
		done:      make(chan struct{}),
	}
	log, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", name, err)
	}
	defer log.Close()

	p.cmd = exec.Command(self, args...)
	p.cmd.Args[0] = name
	p.cmd.Dir = dir
	p.cmd.Env = append(os.Environ(),
		componentEnv+"="+component,
		"KWOK_WORKDIR="+dir, // else kwok reads a configuration file in the home folder
	)
	if removeDir {
		p.cmd.Env = append(p.cmd.Env, removeDirEnv+"="+dir)
	}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// Nothing is ever written to the pipe. The child reads its end when this process is gone.
	if _, err := p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // failure reports how it ended
		close(p.done)
	}()
	return p, nil
}

// signal sends a signal that is meant to end the process. It does nothing if the process has ended.
func (p *process) signal(s os.Signal) {
	if p.exited() {
		return // by itself, perhaps: do not hide that
	}
	p.stopping.Store(true)
	_ = p.cmd.Process.Signal(s) // the only possible error is that it has ended meanwhile
}

// kill ends the process at once and waits for that.
func (p *process) kill() {
	p.signal(os.Kill)
	<-p.done
}

func (p *process) exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// failure returns an error that says how the process ended, with the end of its log; or nil if it runs or was told to
// end.
func (p *process) failure() error {
	if !p.exited() || p.stopping.Load() {
		return nil
	}
	return fmt.Errorf("%s ended unexpectedly (%s)%s", p.name, p.cmd.ProcessState, p.logTail())
}

// logTail returns the end of the process's log as the end of an error message.
func (p *process) logTail() string {
	data, err := os.ReadFile(p.logPath)
	if err != nil {
		return fmt.Sprintf("; reading its log: %v", err)
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	lines = lines[max(0, len(lines)-logTailLines):]
	return fmt.Sprintf("; its log ends:\n%s", bytes.Join(lines, []byte("\n")))
}

// reservePort returns a free TCP port of 127.0.0.1 that stays reserved until release is called. Only a server that
// permits port sharing (SO_REUSEPORT) can listen on it meanwhile: so no other program can take it between our choice
// and the server's start. The reserving socket does not listen, so it takes no connections from the server.
func reservePort() (port int, release func(), err error) {
	syscall.ForkLock.RLock() // no child may inherit the socket
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return 0, nil, fmt.Errorf("reserving a port: %w", err)
	}

	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	var address unix.Sockaddr
	if err == nil {
		address, err = unix.Getsockname(fd)
	}
	if err != nil {
		_ = unix.Close(fd)
		return 0, nil, fmt.Errorf("reserving a port: %w", err)
	}
	return address.(*unix.SockaddrInet4).Port, func() { _ = unix.Close(fd) }, nil
}
