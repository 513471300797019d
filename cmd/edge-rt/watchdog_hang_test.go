package main

import (
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim/servosim"
	"golang.org/x/sys/unix"
)

// torqueOffWithin is the longest time from the last tick of a hung run until its arm is limp: two seconds without a
// tick, and 0.6 s for a poll, the kill and the release.
const torqueOffWithin = 2600 * time.Millisecond

// checkHungEnd calls hang, which makes the run hang, and checks that the arm becomes limp in time and that the run
// ends.
func checkHungEnd(r *process, b *servosim.Bus, hang func(), reap ...func()) {
	r.t.Helper()
	began := time.Now()
	hang()
	awaitTorque(r.t, b, 0)
	if took := time.Since(began); took < time.Second || took > torqueOffWithin {
		r.t.Errorf("the arm was limp after %v, want %v to %v", took, time.Second, torqueOffWithin)
	}
	for _, f := range reap {
		f()
	}
	r.Cmd.Wait()
	awaitNoWatchdog(r.t, b.Path())
}

// A stopped process drives no arm, so it counts as hung. Only SIGKILL from outside can end it,
// since a stopped process handles no other signal.
func TestAStoppedEdgeIsEnded(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	b := simBus(t)
	r, _ := startWatched(t, b)
	checkHungEnd(r, b, func() { r.Process.Signal(syscall.SIGSTOP) })
	if s := r.ProcessState.Sys().(syscall.WaitStatus); s.Signal() != syscall.SIGKILL {
		t.Errorf("it ended by %v, want SIGKILL", s)
	}
	r.CheckSays("no tick has ended for 2s|it was stopped|off on 6 motors")
}

// checkHolds checks that a run still holds its arm, and ends as usual.
func checkHolds(r *process, b *servosim.Bus) {
	r.t.Helper()
	if n := underTorque(b); n != 6 {
		r.t.Errorf("%d motors under torque: %s", n, r.Log)
	}
	r.EndsWith(0, syscall.SIGINT)
	awaitNoWatchdog(r.t, b.Path())
}

// The watchdog tolerates repeated stops of less than two seconds, for example by a host that stalls or a debugger's
// breakpoint.
func TestAShortStopIsBorne(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	b := simBus(t)
	r, _ := startWatched(t, b)
	for range 3 {
		r.Process.Signal(syscall.SIGSTOP)
		time.Sleep(time.Second) // half of the time that counts as a hang
		r.Process.Signal(syscall.SIGCONT)
		time.Sleep(200 * time.Millisecond) // some ticks
	}
	checkHolds(r, b)
}

// Ctrl-Z does not stop the run; instead the log recommends other commands.
func TestCtrlZIsAnswered(t *testing.T) {
	t.Parallel()
	b := simBus(t)
	r, _ := startWatched(t, b)
	r.SignalGroup(syscall.SIGTSTP)
	r.Await("Ctrl-Z")
	time.Sleep(2500 * time.Millisecond) // longer than a hang may last
	r.CheckSays("ctl pause")
	checkHolds(r, b)
}

// tickThread returns the id of the process's thread in the real-time class.
func tickThread(t *testing.T, pid int) int {
	t.Helper()
	tasks := rttest.Must(filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*"))(t)
	for _, task := range tasks {
		tid, _ := strconv.Atoi(filepath.Base(task))
		if attr, err := unix.SchedGetAttr(tid, 0); err == nil && attr.Policy == unix.SCHED_FIFO {
			return tid
		}
	}
	t.Skip("the tick has no class of its own here, so its thread cannot be found")
	return 0
}

// hang stops one thread alone, as a driver call that never returns does. The caller must call reap
// after the thread's process has been killed.
func hang(t *testing.T, tid int) (reap func()) {
	t.Helper()
	if err := unix.PtraceSeize(tid); err != nil {
		t.Skipf("a thread cannot be stopped here: %v", err)
	}
	rttest.Do(t, unix.PtraceInterrupt(tid))
	return func() { unix.Wait4(tid, nil, unix.WALL, nil) }
}

// Goal: the tick hangs while everything else in the run continues; the watchdog ends the run.
func TestAHungTickIsEnded(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	runtime.LockOSThread() // ptrace belongs to a thread
	defer runtime.UnlockOSThread()
	b := simBus(t)
	r, _ := startWatched(t, b)
	tid, reap := tickThread(t, r.Process.Pid), func() {}
	checkHungEnd(r, b, func() { reap = hang(t, tid) }, func() { reap() }, func() { reap() }) // the stop, then the end
	r.CheckSays("no tick has ended for 2s (it hangs)|off on 6 motors")
}

// When a debugger stops the whole process on purpose, the watchdog does not end the process.
func TestADebuggerMayStopTheEdge(t *testing.T) {
	t.Parallel()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b := simBus(t)
	r, _ := startWatched(t, b)
	if err := unix.PtraceSeize(r.Process.Pid); err != nil {
		t.Skipf("a process cannot be traced here: %v", err)
	}
	r.Process.Signal(syscall.SIGSTOP)
	time.Sleep(3 * time.Second) // longer than a hang may last
	if n := underTorque(b); n != 6 {
		t.Fatalf("%d motors under torque: %s", n, r.Log)
	}
	r.Process.Kill()
	unix.Wait4(r.Process.Pid, nil, unix.WALL, nil)
	awaitTorque(t, b, 0)
	awaitNoWatchdog(t, b.Path())
}

// The watchdog also ends a stopped process of another command that holds an arm.
func TestStoppedCommandsAreEnded(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	for _, args := range otherCommands(t) {
		b := simBus(t)
		r := startOther(t, b, args)
		checkHungEnd(r, b, func() { r.Process.Signal(syscall.SIGSTOP) })
	}
}
