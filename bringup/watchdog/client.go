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

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/rt"
)

// Watchdog is the handle of a watchdog process, in the process that drives the arm; nil: no watchdog runs.
type Watchdog struct {
	cmd      *exec.Cmd
	pipe     io.WriteCloser
	stopping atomic.Bool
	ended    chan struct{}
	suspend  chan os.Signal // Ctrl-Z
}

// Start runs a watchdog process for the arm at a port. It returns nil for a simulated arm, and after a warning if the
// process cannot start. The process has its own session, so a terminal's signals do not reach it. Ctrl-Z would stop the
// process that drives the arm, so Start makes Ctrl-Z only print a warning that ends with a text, the parameter instead.
// If this text is empty, Ctrl-Z prints nothing.
func Start(bus, robotName, instead string, warn func(string)) *Watchdog {
	if bus == "" || bus == device.Sim {
		return nil
	}
	// /proc/self/exe is the running program, even if its file was replaced.
	cmd := exec.Command("/proc/self/exe", "torque", "off", "--orphan", "--bus="+bus, "--robot="+robotName)
	cmd.Args[0] = "edge-rt"
	// the run's settings are not for this command
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "EDGE_RT_") })
	cmd.Stderr, cmd.SysProcAttr = os.Stderr, &syscall.SysProcAttr{Setsid: true}
	heartbeat, err := rt.ProcessHeartbeat()
	if err != nil {
		warn(fmt.Sprintf("the process that guards the arm detects the end of this process, but not a hang: %v", err))
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
	w := &Watchdog{
		cmd:     cmd,
		pipe:    pipe,
		ended:   make(chan struct{}),
		suspend: make(chan os.Signal, 1),
	}
	signal.Notify(w.suspend, syscall.SIGTSTP)
	go func() {
		for range w.suspend {
			if instead != "" {
				warn("Ctrl-Z is ignored, since it would stop the process that drives the arm: " + instead)
			}
		}
	}()
	go func() {
		defer close(w.ended)
		if err := cmd.Wait(); !w.stopping.Load() {
			warn(fmt.Sprintf("the process that guards the arm has ended (%v): it stays under torque if this one is "+
				"killed too", err))
		}
	}()
	return w
}

// Stop ends the watchdog process. The caller has switched torque off before, or holds the arm on purpose.
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
