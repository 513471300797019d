package safety

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/edge-rt/edge-rt/bench"
)

// tickPriority is the priority of edge-rt's tick.
const tickPriority = 80

// errNotHere means that this machine cannot play a fault.
var errNotHere = errors.New("not on this machine")

// traceTick interrupts only the edge's tick thread, as a debugger would. The function trace then controls the thread
// until the fault ends and over is closed.
func traceTick(r *run, trace func(tid int, over <-chan struct{})) error {
	tid, ok := bench.TickThread(bench.ThreadsOf(r.edge.PID()), tickPriority)
	if !ok {
		return fmt.Errorf("%w: edge-rt has no thread at SCHED_FIFO %d to be traced", errNotHere, tickPriority)
	}
	stopped := make(chan error, 1)
	over := make(chan struct{})
	done := make(chan struct{})
	go func() { // ptrace(2) requires all calls to come from one thread
		defer close(done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := unix.PtraceSeize(tid)
		if err == nil {
			err = unix.PtraceInterrupt(tid)
		}
		stopped <- err
		if err == nil {
			trace(tid, over)
		}
	}()
	if err := <-stopped; err != nil {
		return fmt.Errorf("%w: ptrace: %w", errNotHere, err)
	}
	r.onRevert(func() { close(over); <-done })
	return nil
}

func hangTick(r *run) error { return traceTick(r, keepStopped) }

// keepStopped keeps a thread stopped until over is closed. It also waits for the end of a thread
// that was killed, as a tracer must.
func keepStopped(tid int, over <-chan struct{}) {
	var status unix.WaitStatus
	for {
		switch n, err := unix.Wait4(tid, &status, unix.WALL|unix.WNOHANG, nil); {
		case err != nil, n == tid && (status.Exited() || status.Signaled()):
			return
		}
		select {
		case <-over:
			if unix.PtraceDetach(tid) == nil {
				return
			}
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// clockStep is longer than any time-out of the programs.
const clockStep = 10 * time.Second

// stepClock changes the machine's clock by clockStep, if permitted, and restores it after the fault.
func stepClock(r *run) error {
	if !r.cfg.StepClock {
		return fmt.Errorf("%w: only with --step-clock, since the clock is the whole machine's", errNotHere)
	}
	step := func(d time.Duration) error {
		t := unix.NsecToTimespec(time.Now().Add(d).UnixNano())
		if err := unix.ClockSettime(unix.CLOCK_REALTIME, &t); err != nil {
			return fmt.Errorf("%w: set the clock: %w", errNotHere, err)
		}
		return nil
	}
	if err := step(clockStep); err != nil {
		return err
	}
	r.onRevert(func() { _ = step(-clockStep) })
	return nil
}

// smallDisk mounts a disk of 64 KiB at the folder named full, in the run's folder.
func smallDisk(r *run) error {
	at := filepath.Join(r.dir, "full")
	if err := os.MkdirAll(at, 0o700); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", at, "tmpfs", 0, "size=64k"); err != nil {
		return fmt.Errorf("%w: mount: %w", errNotHere, err)
	}
	r.onClose(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	return nil
}
