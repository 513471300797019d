package watchdog

import (
	"context"
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

	"edgert/edge/device"
	"edgert/rt"
)

// Watchdog is the driving process's side of a watchdog process; nil is none.
type Watchdog struct {
	cmd      *exec.Cmd
	pipe     io.WriteCloser
	stopping atomic.Bool
	ended    chan struct{}
	suspend  chan os.Signal // Ctrl-Z
}

// Start runs a watchdog process for the arm at a port; nil for a simulated arm, and after
// a warning when there can be none. It has a session of its own, so a terminal's signals
// do not reach it. Ctrl-Z would leave the arm driven by nobody: it is answered with a
// warning that ends in instead, or with none when that is empty.
func Start(bus, robotName, instead string, warn func(string)) *Watchdog {
	if bus == "" || bus == device.Sim {
		return nil
	}
	// The program that runs, also when its file was replaced.
	cmd := exec.Command("/proc/self/exe", "torque", "off", "--orphan", "--bus="+bus, "--robot="+robotName)
	cmd.Args[0] = "edge-rt"
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
	w := &Watchdog{cmd: cmd, pipe: pipe, ended: make(chan struct{}), suspend: make(chan os.Signal, 1)}
	signal.Notify(w.suspend, syscall.SIGTSTP)
	go func() {
		for range w.suspend {
			if instead != "" {
				warn("Ctrl-Z would leave the arm with nobody to drive it, so it goes on: " + instead)
			}
		}
	}()
	go func() {
		defer close(w.ended)
		if err := cmd.Wait(); !w.stopping.Load() {
			warn(fmt.Sprintf("the process that guards the arm has ended (%v): it stays under torque if this one is killed too", err))
		}
	}()
	return w
}

// Stop ends the watchdog process once the arm was let go, or is held on purpose.
func (w *Watchdog) Stop() {
	if w == nil {
		return
	}
	w.stopping.Store(true)
	signal.Stop(w.suspend)
	close(w.suspend)
	io.WriteString(w.pipe, "stop")
	w.pipe.Close()
	wait, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	select {
	case <-w.ended:
	case <-wait.Done():
		w.cmd.Process.Kill()
		<-w.ended
	}
}
