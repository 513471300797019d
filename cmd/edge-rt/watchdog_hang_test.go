package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim/servosim"

	"golang.org/x/sys/unix"
)

// torqueOffWithin is the longest time after its last tick for which a hung run's arm may be stiff:
// two seconds without a tick, and 0.6 s, a poll included, for the rest.
const torqueOffWithin = 2600 * time.Millisecond

// awaitTorqueOff fails the test unless the arm becomes limp between from and to after began.
func awaitTorqueOff(t *testing.T, b *servosim.Bus, began time.Time, from, to time.Duration) {
	t.Helper()
	rttest.Eventually(t, "torque off", func() bool { return underTorque(b) == 0 })
	took := time.Since(began)
	if took < from || took > to {
		t.Errorf("the arm was limp after %v, want %v to %v", took, from, to)
	}
	t.Logf("limp after %v", took)
}

// A stopped process drives no arm, so it counts as hung. Only SIGKILL from outside can end it,
// since a stopped process handles no other signal.
func TestAStoppedEdgeIsEnded(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	b := simBus(t)
	cmd, log := startWatched(t, b, nil)
	began := time.Now()
	cmd.Process.Signal(syscall.SIGSTOP)
	awaitTorqueOff(t, b, began, time.Second, torqueOffWithin)
	cmd.Wait()
	if s := cmd.ProcessState.Sys().(syscall.WaitStatus); s.Signal() != syscall.SIGKILL {
		t.Errorf("it ended by %v, want SIGKILL", s)
	}
	awaitNoWatchdog(t, b.Path())
	for _, words := range []string{"no tick has ended for 2s", "it was stopped", "off on 6 motors"} {
		if !strings.Contains(log.String(), words) {
			t.Errorf("it says %q, which lacks %q", log, words)
		}
	}
}

// Stops of less than two seconds are tolerated, again and again: a host that stalls, a debugger's
// breakpoint.
func TestAShortStopIsBorne(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	b := simBus(t)
	cmd, log := startWatched(t, b, nil)
	for range 4 {
		cmd.Process.Signal(syscall.SIGSTOP)
		time.Sleep(time.Second) // half of the time that counts as a hang
		cmd.Process.Signal(syscall.SIGCONT)
		time.Sleep(200 * time.Millisecond) // some ticks
		if n := underTorque(b); n != 6 {
			t.Fatalf("%d motors under torque after a second's stop: %s", n, log)
		}
	}
	cmd.Process.Signal(syscall.SIGINT)
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ends with %v, %s", err, log)
	}
	awaitNoWatchdog(t, b.Path())
}

// Ctrl-Z does not stop the run; the log names the alternatives.
func TestCtrlZIsAnswered(t *testing.T) {
	t.Parallel()
	b := simBus(t)
	cmd, log := startWatched(t, b, nil)
	syscall.Kill(-cmd.Process.Pid, syscall.SIGTSTP)
	awaitText(t, log, "Ctrl-Z")
	time.Sleep(2500 * time.Millisecond) // longer than a hang may last
	if n := underTorque(b); n != 6 || !strings.Contains(log.String(), "ctl pause") {
		t.Errorf("%d motors under torque, and it says %q", n, log)
	}
	cmd.Process.Signal(syscall.SIGINT)
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ends with %v", err)
	}
	awaitNoWatchdog(t, b.Path())
}

// tickThread returns the id of the process's thread in the real-time class.
func tickThread(t *testing.T, pid int) int {
	t.Helper()
	tasks, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		tid, _ := strconv.Atoi(filepath.Base(task))
		if attr, err := unix.SchedGetAttr(tid, 0); err == nil && attr.Policy == unix.SCHED_FIFO {
			return tid
		}
	}
	t.Skip("the tick has no class of its own here, so its thread cannot be found")
	return 0
}

// hang stops one thread alone, like a driver call that never returns, and returns a function to
// call after its process has been killed.
func hang(t *testing.T, tid int) (reap func()) {
	t.Helper()
	if err := unix.PtraceSeize(tid); err != nil {
		t.Skipf("a thread cannot be stopped here: %v", err)
	}
	if err := unix.PtraceInterrupt(tid); err != nil {
		t.Fatal(err)
	}
	return func() { unix.Wait4(tid, nil, unix.WALL, nil) }
}

// Goal: the tick hangs while everything else in the run continues; the watchdog ends the run.
func TestAHungTickIsEnded(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	runtime.LockOSThread() // ptrace belongs to a thread
	defer runtime.UnlockOSThread()
	b := simBus(t)
	cmd, log := startWatched(t, b, nil)
	tid := tickThread(t, cmd.Process.Pid)
	began := time.Now()
	reap := hang(t, tid)
	awaitTorqueOff(t, b, began, time.Second, torqueOffWithin)
	reap() // the stop
	reap() // the end
	cmd.Wait()
	awaitNoWatchdog(t, b.Path())
	for _, words := range []string{"no tick has ended for 2s (it hangs)", "off on 6 motors"} {
		if !strings.Contains(log.String(), words) {
			t.Errorf("it says %q, which lacks %q", log, words)
		}
	}
}

// A debugger stops the whole process on purpose: the watchdog process does not end it.
func TestADebuggerMayStopTheEdge(t *testing.T) {
	t.Parallel()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b := simBus(t)
	cmd, log := startWatched(t, b, nil)
	if err := unix.PtraceSeize(cmd.Process.Pid); err != nil {
		t.Skipf("a process cannot be traced here: %v", err)
	}
	cmd.Process.Signal(syscall.SIGSTOP)
	time.Sleep(3 * time.Second) // longer than a hang may last
	if n := underTorque(b); n != 6 {
		t.Fatalf("%d motors under torque: %s", n, log)
	}
	cmd.Process.Kill()
	unix.Wait4(cmd.Process.Pid, nil, unix.WALL, nil)
	awaitTorque(t, b, 0, "the arm was not released")
	awaitNoWatchdog(t, b.Path())
}

// The other commands that hold an arm have a tick and a watchdog, too.
func TestStoppedCommandsAreEnded(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	demo := filepath.Join("..", "..", "testdata", "demo", "so101.json")
	for _, args := range [][]string{
		{"teleop", "--leader", simBus(t).Path(), "--leader-calibration", demo, "--fps", "10"},
		{"move", "elbow_flex", "60", "--speed", "0.01"},
	} {
		b := simBus(t)
		cmd := exec.Command(binary, append(args, "--bus", b.Path(), "--calibration", demo)...)
		cmd.Env = append(os.Environ(), "STATE_DIRECTORY="+t.TempDir())
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill() })
		awaitTorque(t, b, 6, args[0]+" never held the arm")
		began := time.Now()
		cmd.Process.Signal(syscall.SIGSTOP)
		awaitTorqueOff(t, b, began, time.Second, torqueOffWithin)
		cmd.Wait()
		awaitNoWatchdog(t, b.Path())
	}
}
