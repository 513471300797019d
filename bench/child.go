package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"edgert/internal/exit"
)

// stopLimit is how long a child may take to end when asked.
const stopLimit = 5 * time.Second

// waitMin lets a child that has ended be seen to have.
const waitMin = 10 * time.Millisecond

// maxChildOutput bounds what is kept of a child's outputs, each.
const maxChildOutput = 16 << 20

// child is a process of ours, ended by its id.
type child struct {
	name           string
	cmd            *exec.Cmd
	stdout, stderr capped
	exited         chan struct{}
	err            error  // of Wait; after exited
	threads        string // its scheduling classes while it measured, as classesOf says
}

// capped keeps the beginning of what is written to it.
type capped struct{ bytes.Buffer }

func (c *capped) Write(p []byte) (int, error) {
	c.Buffer.Write(p[:min(len(p), max(maxChildOutput-c.Len(), 0))])
	return len(p), nil
}

// startChild starts the command and keeps its outputs. Should this program die,
// the kernel ends the child.
func startChild(cmd *exec.Cmd) (*child, error) {
	endWithParent(cmd)
	return launch(cmd)
}

// startGroup starts the command as a process group of its own, to be paused as
// a whole.
func startGroup(cmd *exec.Cmd) (*child, error) {
	endWithParent(cmd)
	ownGroup(cmd)
	return launch(cmd)
}

func launch(cmd *exec.Cmd) (*child, error) {
	c := &child{name: cmd.Args[0], cmd: cmd, exited: make(chan struct{})}
	if i := strings.LastIndexByte(c.name, os.PathSeparator); i >= 0 {
		c.name = c.name[i+1:]
	}
	cmd.Stdout, cmd.Stderr = &c.stdout, &c.stderr
	if err := cmd.Start(); err != nil {
		return nil, exit.Errorf(exit.Usage, "%w; run `make build`, or name the folder of the programs with --bin", err)
	}
	go func() { c.err = cmd.Wait(); close(c.exited) }()
	return c, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// running reports whether the child has not ended yet.
func (c *child) running() bool {
	select {
	case <-c.exited:
		return false
	default:
		return true
	}
}

// wait returns when the child has ended, by itself or, after the limit, by us.
// What it said about a failure becomes the error, and its exit code ours.
func (c *child) wait(limit time.Duration) error {
	select {
	case <-c.exited:
	case <-time.After(max(limit, waitMin)):
		c.cmd.Process.Kill()
		<-c.exited
		return fmt.Errorf("%s did not end within %v", c.name, limit)
	}
	var status *exec.ExitError
	if errors.As(c.err, &status) {
		code := exit.Code(status.ExitCode())
		if code < exit.Failure || code > exit.Fault {
			code = exit.Failure
		}
		return exit.Errorf(code, "%s ended with %v: %s", c.name, status, c.lastWords())
	}
	return c.err
}

// lastWords is the error that the child ended with: what it last wrote to its
// standard error behind its name, the first line of it.
func (c *child) lastWords() string {
	text := strings.TrimSpace(c.stderr.String())
	prefix := c.name + ": "
	if i := strings.LastIndex("\n"+text, "\n"+prefix); i >= 0 {
		text = text[i+len(prefix):]
	} else if i := strings.LastIndexByte(text, '\n'); i >= 0 {
		text = text[i+1:] // not one of ours: its last line
	}
	first, _, more := strings.Cut(text, "\n")
	if more {
		first += " (it says more when run alone)"
	}
	return first
}

func (c *child) interrupt() { c.cmd.Process.Signal(syscall.SIGINT) }

// stop ends a child that is still running.
func (c *child) stop() error {
	asked := c.running() && c.cmd.Process.Signal(syscall.SIGTERM) == nil
	err := c.wait(stopLimit)
	if status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && asked && status.Signaled() && status.Signal() == syscall.SIGTERM {
		return nil // it had not come to catching the signal, or does not
	}
	return err
}

// scrubbed is the environment without the variables that change how the
// programs run, so that a measurement does not depend on the shell it is
// started from.
func scrubbed(environ []string) []string {
	var kept []string
	for _, v := range environ {
		name, _, _ := strings.Cut(v, "=")
		ours := strings.HasPrefix(name, "EDGE_RT_") || strings.HasPrefix(name, "LEAN_SERVER_") || strings.HasPrefix(name, "BENCH_")
		tuning := name == "GOGC" || name == "GOMAXPROCS" || name == "GOMEMLIMIT" || name == "GODEBUG"
		if (!ours || name == "LEAN_SERVER_ORT") && !tuning {
			kept = append(kept, v)
		}
	}
	return kept
}
