package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"edgert/edge"
	"edgert/internal/exit"
	"edgert/servo"
)

const (
	guardEnd  = time.Second // for the guard to hear that it is not needed
	guardTell = time.Second // for somebody to read what it did
)

// guard is a process that outlives this one: when this one ends without a word,
// killed, out of memory or by an error of Go's runtime that nothing recovers from,
// it makes the arm limp, as the unit's ExecStopPost= does for a service. nil is
// none.
type guard struct {
	cmd     *exec.Cmd
	pipe    io.WriteCloser
	leaving atomic.Bool
	ended   chan struct{}
}

// startGuard starts it for the arm at a port; a simulated arm inside the run ends
// with it and has none. warn is told when there is none, or none any more.
//
// It is in a session of its own: what a terminal, a shell's job control or timeout
// does to a whole group is not meant for it.
func startGuard(bus, robot string, warn func(string)) *guard {
	if bus == "" || bus == edge.SimName {
		return nil
	}
	// The program that runs, also when its file was replaced.
	cmd := exec.Command("/proc/self/exe", "torque", "off", "--orphan", "--bus="+bus, "--robot="+robot)
	cmd.Args[0] = name
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "EDGE_RT_") }) // they are the run's
	cmd.Stderr, cmd.SysProcAttr = os.Stderr, &syscall.SysProcAttr{Setsid: true}
	pipe, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		warn(fmt.Sprintf("no process guards the arm, which stays under torque if this one is killed: %v", err))
		return nil
	}
	g := &guard{cmd: cmd, pipe: pipe, ended: make(chan struct{})}
	go func() {
		defer close(g.ended)
		if err := cmd.Wait(); !g.leaving.Load() {
			warn(fmt.Sprintf("the process that guards the arm has ended (%v): it stays under torque if this one is killed too", err))
		}
	}()
	return g
}

// leave tells it that the arm was let go, or is held on purpose, and waits for its
// end.
func (g *guard) leave() {
	if g == nil {
		return
	}
	g.leaving.Store(true)
	io.WriteString(g.pipe, "left")
	g.pipe.Close()
	overdue := time.AfterFunc(guardEnd, func() { g.cmd.Process.Kill() })
	defer overdue.Stop()
	<-g.ended
}

// stand is what the guard does: it waits for the end of the process behind its
// standard input, and lets the arm go when that came without a word. Whoever
// reads what it says may be what was killed, so it says it afterwards.
func (c *cli) stand(stdin io.Reader, stderr io.Writer) exit.Code {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTSTP)
	r, err := edge.NamedRobot(c.Robot) // a description may change until then
	if err != nil {
		return complain(stderr, err)
	}
	if word, err := io.ReadAll(io.LimitReader(stdin, 1)); len(word) > 0 || err != nil {
		return exit.Clean
	}
	var said bytes.Buffer
	fmt.Fprintf(&said, "%s: the run ended without letting the arm go\n", name)
	err = edge.Release(c.Bus, r, &said)
	code := exit.Clean
	if errors.Is(err, servo.ErrPortBusy) {
		fmt.Fprintf(&said, "another program has the arm at %s now\n", c.Bus)
	} else {
		code = complain(&said, err)
	}
	told := make(chan struct{})
	go func() { stderr.Write(said.Bytes()); close(told) }()
	select {
	case <-told:
	case <-time.After(guardTell):
	}
	return code
}
