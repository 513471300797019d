package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"edgert/edge"
	"edgert/internal/notify"
)

// guardEnd bounds how long the guard may take to hear that it is not needed.
const guardEnd = time.Second

// guard is a process that outlives this one: when this one ends without a word,
// killed, out of memory or by an error of Go's runtime that nothing recovers from,
// it makes the arm limp, as the unit's ExecStopPost= does for a service. nil is
// none.
type guard struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

// startGuard starts it for the arm at a port. A simulated arm inside the run ends
// with it, and a service's manager has a command of its own: there is none then.
func startGuard(bus, robot string) (*guard, error) {
	if bus == "" || bus == edge.SimName || notify.Managed() {
		return nil, nil
	}
	// The program that runs, also when its file was replaced.
	cmd := exec.Command("/proc/self/exe", "torque", "off", "--orphan", "--bus", bus, "--robot", robot)
	cmd.Args[0] = name
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "EDGE_RT_") }) // they are the run's
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("no process guards the arm, which will stay under torque if this one is killed: %w", err)
	}
	return &guard{cmd, pipe}, nil
}

// leave tells it that the arm was let go, or is held on purpose, and waits for its
// end.
func (g *guard) leave() {
	if g == nil {
		return
	}
	io.WriteString(g.pipe, "left")
	g.pipe.Close()
	overdue := time.AfterFunc(guardEnd, func() { g.cmd.Process.Kill() })
	defer overdue.Stop()
	g.cmd.Wait()
}

// orphaned is what the guard does: it waits for the end of the process behind its
// standard input, and reports whether that came without a word. What a terminal
// sends to all of its programs is not meant for it.
func orphaned(stdin io.Reader) bool {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTSTP)
	word, err := io.ReadAll(io.LimitReader(stdin, 1))
	return len(word) == 0 && err == nil
}
