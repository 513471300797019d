package safety

import (
	"encoding/binary"
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// asleep is how long the machine appears to have slept.
const asleep = time.Hour

// syscallStop is the signal of a stop at a system call under PTRACE_O_TRACESYSGOOD.
const syscallStop = syscall.SIGTRAP | 0x80

// suspend stops the edge for a second. It then changes the results of clock_gettime in the tick
// thread, so that CLOCK_BOOTTIME appears to have advanced by an hour, and CLOCK_MONOTONIC not.
func suspend(r *run) error {
	if err := r.edge.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	r.sleep(time.Second)
	err := traceTick(r, shiftClock)
	return errors.Join(err, r.edge.Signal(syscall.SIGCONT))
}

// shiftClock adds asleep to each reading of CLOCK_BOOTTIME by a thread, until over is closed.
func shiftClock(tid int, over <-chan struct{}) {
	var status unix.WaitStatus
	set := false
	for {
		if n, err := unix.Wait4(tid, &status, unix.WALL, nil); err == unix.EINTR {
			continue
		} else if err != nil || n == tid && !status.Stopped() {
			return // the thread has ended
		}
		if !set {
			set = unix.PtraceSetOptions(tid, unix.PTRACE_O_TRACESYSGOOD) == nil
		}
		select {
		case <-over:
			_ = unix.PtraceDetach(tid)
			return
		default:
		}
		pass := 0
		switch s := status.StopSignal(); {
		case s == syscallStop:
			shiftResult(tid)
		case s != syscall.SIGTRAP && s != syscall.SIGSTOP && s != syscall.SIGCONT:
			pass = int(s)
		}
		if unix.PtraceSyscall(tid, pass) != nil {
			return
		}
	}
}

// shiftResult adds asleep to the result of clock_gettime, at whose end the thread has stopped.
func shiftResult(tid int) {
	var regs unix.PtraceRegs
	if unix.PtraceGetRegs(tid, &regs) != nil || regs.Orig_rax != unix.SYS_CLOCK_GETTIME ||
		regs.Rdi != unix.CLOCK_BOOTTIME || regs.Rax != 0 {
		return // rax is -ENOSYS at the beginning of a system call
	}
	var word [8]byte
	if n, err := unix.PtracePeekData(tid, uintptr(regs.Rsi), word[:]); n != len(word) || err != nil {
		return
	}
	binary.NativeEndian.PutUint64(word[:], binary.NativeEndian.Uint64(word[:])+uint64(asleep/time.Second))
	_, _ = unix.PtracePokeData(tid, uintptr(regs.Rsi), word[:])
}
