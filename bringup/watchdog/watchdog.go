// Package watchdog switches an arm's torque off when the process that drives the arm was killed, has crashed, hangs or
// was stopped. For a service, systemd switches the torque off (ExecStopPost= and WatchdogSec=); for a run from a shell,
// a second process does.
//
// The driving process calls Start, which runs its own program again as edge-rt torque off --orphan with a pipe and a
// heartbeat (client.go). The second process calls Run, which waits for the end of the pipe or of the heartbeat, kills
// the driving process if it hangs, and switches the torque off.
package watchdog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/edge-rt/edge-rt/bringup"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
)

const (
	heartbeatFD   = 3                     // the first of exec.Cmd's ExtraFiles
	pollInterval  = 50 * time.Millisecond // time between two polls of the heartbeat
	killTimeout   = 5 * time.Second       // longest wait for the end of a killed process
	torqueTimeout = 10 * time.Second      // longest time spent on an arm that is silent or unplugged
)

// Run is the watchdog process. It returns when the process at the other end of stdin stops it, or, after switching the
// torque off, when that process has ended or hung. text reports the events. Run ignores a terminal's signals.
func Run(stdin io.Reader, bus string, r robot.Robot) (text string, err error) {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTSTP)
	orphaned := make(chan bool, 1)
	go func() {
		word, err := io.ReadAll(io.LimitReader(stdin, 1))
		orphaned <- len(word) == 0 && err == nil
	}()
	why, orphan := "the run ended without letting the arm go", false
	killed := killHung()
	select {
	case orphan = <-orphaned:
		select {
		case why = <-killed:
		default:
		}
	case why = <-killed:
		wait, cancel := context.WithTimeout(context.Background(), killTimeout)
		defer cancel()
		select {
		case orphan = <-orphaned:
		case <-wait.Done(): // the process hangs in a driver, but its port may be closed
			orphan = true
		}
	}
	if !orphan {
		return "", nil
	}
	var said strings.Builder
	fmt.Fprintln(&said, why)
	err = bringup.ReleaseFor(torqueTimeout, bus, r, &said)
	if errors.Is(err, servo.ErrPortBusy) {
		fmt.Fprintf(&said, "another program has the arm at %s now\n", bus)
		err = nil
	}
	return said.String(), err
}

// killHung starts a goroutine that kills the parent process when it makes no ticks, unless a debugger has stopped it.
// The returned channel gets the reason.
func killHung() <-chan string {
	why := make(chan string, 1)
	heartbeat, err := rt.OpenHeartbeat(os.NewFile(heartbeatFD, "heartbeat"))
	if err != nil {
		return why // no heartbeat was passed
	}
	clock := rt.KernelClock()
	hang, parent := rt.NewHangDetector(heartbeat, pollInterval), heartbeat.PID()
	go func() {
		for os.Getppid() == parent { // when the parent ends, this process gets another parent
			clock.SleepUntil(clock.Now().Add(pollInterval))
			if !hang.Poll() {
				continue
			}
			status, traced := processStatus(parent)
			if traced {
				hang.Reset()
				continue
			}
			if os.Getppid() == parent {
				why <- fmt.Sprintf("no tick has ended for %v (%s), so the run was killed", heartbeat.Timeout(), status)
				syscall.Kill(parent, syscall.SIGKILL)
			}
			return
		}
	}()
	return why
}

// processStatus returns, as text, why a process makes no ticks, and whether a debugger traces it. Source:
// proc_pid_status(5).
func processStatus(pid int) (status string, traced bool) {
	status = "it hangs"
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		switch key, value, _ := strings.Cut(line, ":"); {
		case key == "State" && strings.HasPrefix(strings.TrimSpace(value), "T"):
			status = "it was stopped, by SIGSTOP or job control"
		case key == "TracerPid":
			traced = strings.TrimSpace(value) != "0"
		}
	}
	return status, traced
}
