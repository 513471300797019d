package stage

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/edge-rt/edge-rt/internal/child"
	"github.com/edge-rt/edge-rt/internal/exit"
)

// StopLimit is how long a child may take to end after the signal of Stop.
const StopLimit = 8 * time.Second

// waitMin is the least time that Wait takes to notice that a child has ended.
const waitMin = 10 * time.Millisecond

// Child is a process that this program started.
type Child struct {
	Name string // name of the program
	Log  *Log   // standard error of the child; empty if the command has another writer for it

	cmd    *exec.Cmd
	stdout Log
	exited chan struct{}
	err    error // the result of Wait; valid after exited
}

// Start starts the command. It keeps the standard output and the standard error unless the command
// has writers for them. If the command's writer for standard error is a Log, this becomes the
// child's Log. The kernel ends the child when this program ends.
func Start(cmd *exec.Cmd) (*Child, error) {
	c := &Child{Name: filepath.Base(cmd.Args[0]), cmd: cmd, exited: make(chan struct{})}
	if log, ok := cmd.Stderr.(*Log); ok {
		c.Log = log
	} else {
		c.Log = new(Log)
	}
	if cmd.Stderr == nil {
		cmd.Stderr = c.Log
	}
	if cmd.Stdout == nil {
		cmd.Stdout = &c.stdout
	}
	if err := child.Start(cmd); err != nil {
		return nil, exit.Errorf(exit.Usage,
			"%w; run `make build` in a checkout, install the package of that program, or name "+
				"the folder of the programs with --bin", err)
	}
	go func() { c.err = cmd.Wait(); close(c.exited) }()
	return c, nil
}

// StartGroup starts the command as a process group of its own, which Pause can pause as a whole.
func StartGroup(cmd *exec.Cmd) (*Child, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return Start(cmd)
}

// StartLogged starts the command as StartGroup does, with both outputs in its Log.
func StartLogged(cmd *exec.Cmd) (*Child, error) {
	log := new(Log)
	cmd.Stdout, cmd.Stderr = log, log
	return StartGroup(cmd)
}

// PID returns the process id.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Exited is closed when the child has ended.
func (c *Child) Exited() <-chan struct{} { return c.exited }

// Running reports whether the child has not ended yet.
func (c *Child) Running() bool {
	select {
	case <-c.exited:
		return false
	default:
		return true
	}
}

// State returns the state of the ended child.
func (c *Child) State() *os.ProcessState { return c.cmd.ProcessState }

// Stdout returns the child's standard output so far; it is empty if the command has a writer for it.
func (c *Child) Stdout() []byte { return []byte(c.stdout.String()) }

// Await returns the first line of the child's log that matches, as soon as the log has it. It
// returns an error if the child ends without such a line, or if the limit is over.
func (c *Child) Await(pattern string, limit time.Duration) (Line, error) {
	re := regexp.MustCompile(pattern)
	var found []Line
	Until(limit, func() bool {
		ended := !c.Running()
		found = c.Log.Lines(re)
		return len(found) > 0 || ended
	})
	switch {
	case len(found) > 0:
		return found[0], nil
	case !c.Running():
		return Line{}, fmt.Errorf("%s ended before a line with %q: %s", c.Name, pattern, c.Log.Tail(5))
	}
	return Line{}, fmt.Errorf("%s wrote no line with %q within %v: %s", c.Name, pattern, limit, c.Log.Tail(5))
}

// Wait waits until the child has ended, and kills it after the limit. If the child failed, the
// error has the child's exit code and its LastWords.
func (c *Child) Wait(limit time.Duration) error {
	select {
	case <-c.exited:
	case <-time.After(max(limit, waitMin)):
		c.cmd.Process.Kill()
		<-c.exited
		return fmt.Errorf("%s did not end within %v", c.Name, limit)
	}
	var status *exec.ExitError
	if errors.As(c.err, &status) {
		code := exit.Code(status.ExitCode())
		if code < exit.Failure || code > exit.Fault {
			code = exit.Failure
		}
		said := c.LastWords()
		if said != "" {
			said = ": " + said
		}
		return exit.Errorf(code, "%s ended with %v%s", c.Name, status, said)
	}
	return c.err
}

// LastWords returns the first line of the last message on the ended child's standard error, without the child's name.
func (c *Child) LastWords() string {
	text := strings.TrimSpace(c.Log.String())
	prefix := c.Name + ": "
	if i := strings.LastIndex("\n"+text, "\n"+prefix); i >= 0 {
		text = text[i+len(prefix):]
	} else if i := strings.LastIndexByte(text, '\n'); i >= 0 {
		text = text[i+1:] // the program is another project's: take its last line
	}
	first, _, more := strings.Cut(text, "\n")
	if more {
		first += " (its output is longer when run alone)"
	}
	return first
}

// Interrupt asks the child to end; the caller waits for it.
func (c *Child) Interrupt() { c.cmd.Process.Signal(syscall.SIGINT) }

// Kill ends the child with SIGKILL, and returns when it has ended.
func (c *Child) Kill() {
	c.cmd.Process.Kill()
	<-c.exited
}

// Stop ends a child that is still running.
func (c *Child) Stop() error {
	asked := c.Running() && c.cmd.Process.Signal(syscall.SIGTERM) == nil
	err := c.Wait(StopLimit)
	if status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && asked && status.Signaled() &&
		status.Signal() == syscall.SIGTERM {
		return nil // the child does not catch the signal, or did not catch it yet
	}
	return err
}

// Pause stops every process of a child of StartGroup; Resume continues them.
func (c *Child) Pause() error { return syscall.Kill(-c.PID(), syscall.SIGSTOP) }

// Resume continues a paused group.
func (c *Child) Resume() error { return syscall.Kill(-c.PID(), syscall.SIGCONT) }
