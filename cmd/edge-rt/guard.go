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

	"edgert/edge/bringup"
	"edgert/edge/device"
	"edgert/internal/exit"
	"edgert/rt"
	"edgert/servo"
)

const (
	guardEnd   = time.Second           // for the guard to hear that it is not needed
	guardTell  = time.Second           // for somebody to read what it did
	guardLook  = 50 * time.Millisecond // between looks at the heartbeat
	guardKill  = 5 * time.Second       // for a killed process to end
	guardTries = 10 * time.Second      // to let go an arm that is silent or unplugged
)

// heartbeatFD is where the guard finds the heartbeat: the first of its ExtraFiles.
const heartbeatFD = 3

// guard is a process that outlives this one: when this one ends without a word,
// killed, out of memory or by an error of Go's runtime that nothing recovers from,
// it makes the arm limp, as the unit's ExecStopPost= does for a service. When no
// tick ends any more, hung or stopped, it kills this one first, as the unit's
// watchdog does. nil is none.
type guard struct {
	cmd     *exec.Cmd
	pipe    io.WriteCloser
	leaving atomic.Bool
	ended   chan struct{}
	stops   chan os.Signal // Ctrl-Z
}

// startGuard starts it for the arm at a port; a simulated arm inside the run ends
// with it and has none. warn is told when there is none, or none any more.
//
// It is in a session of its own: what a terminal, a shell's job control or timeout
// does to a whole group is not meant for it. Ctrl-Z would leave the arm at its last
// goal with nobody to drive it, so it stops nothing and says what to do instead;
// an empty instead says nothing, for the second arm of a command.
func startGuard(bus, robot, instead string, warn func(string)) *guard {
	if bus == "" || bus == device.Sim {
		return nil
	}
	// The program that runs, also when its file was replaced.
	cmd := exec.Command("/proc/self/exe", "torque", "off", "--orphan", "--bus="+bus, "--robot="+robot)
	cmd.Args[0] = name
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "EDGE_RT_") }) // they are the run's
	cmd.Stderr, cmd.SysProcAttr = os.Stderr, &syscall.SysProcAttr{Setsid: true}
	heartbeat, err := rt.ProcessHeartbeat()
	if err != nil {
		warn(fmt.Sprintf("the process that guards the arm sees whether this one has ended, not whether it hangs: %v", err))
	} else {
		cmd.ExtraFiles = []*os.File{heartbeat}
	}
	pipe, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		warn(fmt.Sprintf("no process guards the arm, which stays under torque if this one is killed: %v", err))
		return nil
	}
	g := &guard{cmd: cmd, pipe: pipe, ended: make(chan struct{}), stops: make(chan os.Signal, 1)}
	signal.Notify(g.stops, syscall.SIGTSTP)
	go func() {
		for range g.stops {
			if instead != "" {
				warn("Ctrl-Z would leave the arm with nobody to drive it, so it goes on: " + instead)
			}
		}
	}()
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
	signal.Stop(g.stops)
	close(g.stops)
	io.WriteString(g.pipe, "left")
	g.pipe.Close()
	overdue := time.AfterFunc(guardEnd, func() { g.cmd.Process.Kill() })
	defer overdue.Stop()
	<-g.ended
}

// stand is what the guard does: it waits for the end of the process behind its
// standard input, or for its ticks to stop, and lets the arm go when that came
// without a word. Whoever reads what it says may be what was killed, so it says it
// afterwards.
func (c *cli) stand(stdin io.Reader, stderr io.Writer) exit.Code {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTSTP)
	r, err := device.Robot(c.Robot) // a description may change until then
	if err != nil {
		return complain(stderr, err)
	}
	orphaned := make(chan bool, 1)
	go func() {
		word, err := io.ReadAll(io.LimitReader(stdin, 1))
		orphaned <- len(word) == 0 && err == nil
	}()
	why, orphan := "the run ended without letting the arm go", false
	killed := hung()
	select {
	case orphan = <-orphaned:
		select {
		case why = <-killed:
		default:
		}
	case why = <-killed:
		select {
		case orphan = <-orphaned:
		case <-time.After(guardKill): // stuck in a driver, which may have let go of the port all the same
			orphan = true
		}
	}
	if !orphan {
		return exit.Clean
	}
	var said bytes.Buffer
	fmt.Fprintf(&said, "%s: %s\n", name, why)
	err = bringup.ReleaseFor(guardTries, c.Bus, r, &said)
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

// hung kills the parent when its ticks have stopped, and then says why. A debugger
// stops a process too, and knows what it does.
func hung() <-chan string {
	why := make(chan string, 1)
	heartbeat, err := rt.OpenHeartbeat(os.NewFile(heartbeatFD, "heartbeat"))
	if err != nil {
		return why // it was not given one
	}
	hang, parent := rt.NewHangDetector(heartbeat, guardLook), heartbeat.PID()
	go func() {
		for os.Getppid() == parent { // else it has ended, and the parent of now is somebody else
			time.Sleep(guardLook)
			if !hang.Poll() {
				continue
			}
			state := processState(parent)
			if state.traced {
				hang.Reset()
				continue
			}
			if os.Getppid() == parent {
				why <- fmt.Sprintf("no tick has ended for %v (%s), so the run was killed", heartbeat.Timeout(), state.words)
				syscall.Kill(parent, syscall.SIGKILL)
			}
			return
		}
	}()
	return why
}

// state is what the kernel says of a process.
type state struct {
	words  string
	traced bool // by a debugger
}

// processState reads it; of one that has ended it knows nothing.
//
// Source: proc_pid_status(5).
func processState(pid int) (s state) {
	s.words = "it hangs"
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		switch key, value, _ := strings.Cut(line, ":"); {
		case key == "State" && strings.HasPrefix(strings.TrimSpace(value), "T"):
			s.words = "it was stopped, by SIGSTOP or job control"
		case key == "TracerPid":
			s.traced = strings.TrimSpace(value) != "0"
		}
	}
	return s
}
