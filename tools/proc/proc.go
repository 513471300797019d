// Package proc runs the two programs for the demo and the soak test and ends
// what it started by its process id. They end with the program that started them,
// also when that is killed.
package proc

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"edgert/internal/child"
)

// Child is one running program.
type Child struct {
	Name string
	cmd  *exec.Cmd
	done chan struct{}
	err  error // valid after done
}

// Start runs the program name of the folder bin with its output on ours.
func Start(bin, name string, env []string, args ...string) (*Child, error) {
	return StartOn(os.Stderr, bin, name, env, args...)
}

// StartOn is Start with another place for the program's stderr.
func StartOn(stderr *os.File, bin, name string, env []string, args ...string) (*Child, error) {
	return start(exec.Command(filepath.Join(bin, name), args...), name, stderr, env)
}

// StartIn is Start in a network namespace.
func StartIn(namespace, bin, name string, env []string, args ...string) (*Child, error) {
	// ip replaces itself by the program, so the process id is the program's.
	args = append([]string{"netns", "exec", namespace, filepath.Join(bin, name)}, args...)
	return start(exec.Command("ip", args...), name, os.Stderr, env)
}

func start(cmd *exec.Cmd, name string, stderr *os.File, env []string) (*Child, error) {
	cmd.Stdout, cmd.Stderr = os.Stdout, stderr
	cmd.Env = append(os.Environ(), env...)
	if err := child.Start(cmd); err != nil {
		return nil, fmt.Errorf("%w (run `make build` first)", err)
	}
	c := &Child{Name: name, cmd: cmd, done: make(chan struct{})}
	go func() {
		c.err = cmd.Wait()
		close(c.done)
	}()
	return c, nil
}

// Done is closed when the program has ended; Err then says how.
func (c *Child) Done() <-chan struct{} { return c.done }

// Err returns how the program ended: nil for exit code 0.
func (c *Child) Err() error {
	<-c.done
	var exit *exec.ExitError
	if errors.As(c.err, &exit) {
		return fmt.Errorf("%s: %w", c.Name, c.err)
	}
	return c.err
}

// Stop asks the program to end and kills it after limit.
func (c *Child) Stop(limit time.Duration) error {
	c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.done:
		return c.Err()
	case <-time.After(limit):
		c.Kill()
		return fmt.Errorf("%s did not stop within %v of SIGTERM", c.Name, limit)
	}
}

// Wait returns how the program ended by itself, and kills it after limit.
func (c *Child) Wait(limit time.Duration) error {
	select {
	case <-c.done:
		return c.Err()
	case <-time.After(limit):
		c.Kill()
		return fmt.Errorf("%s did not end by itself within %v", c.Name, limit)
	}
}

// Kill ends the program at once, as a crash would, and waits for it.
func (c *Child) Kill() {
	c.cmd.Process.Kill()
	<-c.done
}

// FreeEndpoint asks the kernel for a port of this machine that nobody uses.
func FreeEndpoint() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return "tcp/" + l.Addr().String(), nil
}

// Listens reports whether somebody accepts connections at the endpoint.
func Listens(endpoint string) bool {
	c, err := net.DialTimeout("tcp", strings.TrimPrefix(endpoint, "tcp/"), time.Second)
	if err == nil {
		c.Close()
	}
	return err == nil
}
