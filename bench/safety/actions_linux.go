package safety

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"edgert/bench"
)

// tickPriority is of edge-rt's tick.
const tickPriority = 80

// errNotHere means that this machine cannot play a fault.
var errNotHere = errors.New("not on this machine")

// waitDeath returns when a process of ours has died, waited for or not.
func waitDeath(pid int, waited <-chan struct{}) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		<-waited
		return
	}
	defer unix.Close(fd)
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		if n, err := unix.Poll(fds, -1); n > 0 || err != nil && err != unix.EINTR {
			return
		}
	}
}

// seize interrupts a thread as a debugger would and, if it could, runs trace on it;
// done is closed behind that.
func seize(tid int, trace func()) (began <-chan error, done <-chan struct{}) {
	stopped, ended := make(chan error, 1), make(chan struct{})
	go func() { // ptrace(2): all of it from one thread
		defer close(ended)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := unix.PtraceSeize(tid)
		if err == nil {
			err = unix.PtraceInterrupt(tid)
		}
		stopped <- err
		if err == nil {
			trace()
		}
	}()
	return stopped, ended
}

// hangTick stops the edge's tick thread, and no other, as a debugger would.
func hangTick(r *run) error {
	tid, ok := bench.TickThread(bench.ThreadsOf(r.edge.PID()), tickPriority)
	if !ok {
		return fmt.Errorf("%w: edge-rt has no thread at SCHED_FIFO %d to be stopped", errNotHere, tickPriority)
	}
	release := make(chan struct{})
	stopped, done := seize(tid, func() { keepStopped(tid, release) })
	if err := <-stopped; err != nil {
		return fmt.Errorf("%w: ptrace: %w", errNotHere, err)
	}
	r.onRevert(func() { close(release); <-done })
	return nil
}

// keepStopped holds a thread that is being stopped until release is closed. One that is
// killed meanwhile is waited for: nobody else can, and its process would never end.
func keepStopped(tid int, release <-chan struct{}) {
	var status unix.WaitStatus
	for {
		switch n, err := unix.Wait4(tid, &status, unix.WALL|unix.WNOHANG, nil); {
		case err != nil, n == tid && (status.Exited() || status.Signaled()):
			return
		}
		select {
		case <-release:
			if unix.PtraceDetach(tid) == nil {
				return
			}
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// clockStep is more than any time-out of the programs.
const clockStep = 10 * time.Second

// stepClock sets the machine's clock, if it may, and back.
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

// smallDisk mounts one of 64 KiB at the run's folder full.
func smallDisk(r *run) error {
	at := filepath.Join(r.dir, "full")
	if err := os.MkdirAll(at, 0o700); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", at, "tmpfs", 0, "size=64k"); err != nil {
		return fmt.Errorf("%w: mount: %w", errNotHere, err)
	}
	r.cleanup = append(r.cleanup, func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	return nil
}
