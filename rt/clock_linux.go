package rt

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// kernelClock reads CLOCK_MONOTONIC through the vDSO: package time's monotonic reading
// plus an offset measured once (40 ns; the system call of x/sys takes ten times as long).
type kernelClock struct {
	base   time.Time
	offset Instant // CLOCK_MONOTONIC at base
}

var kernel = calibrate()

// KernelClock returns the Clock of CLOCK_MONOTONIC. It sleeps by clock_nanosleep on the calling thread and not by a Go
// timer, so a sleep is as exact as the thread's scheduling class allows.
func KernelClock() Clock { return kernel }

// calibrate computes the offset from the narrowest of a few pairs of readings around a reading of the kernel's clock.
// An error of the offset makes Now too late, never too early: after a sleep, Now is not before the deadline.
func calibrate() *kernelClock {
	const attempts = 8
	c := &kernelClock{base: time.Now()}
	narrowest := time.Duration(math.MaxInt64)
	for range attempts {
		before := time.Since(c.base)
		now := monotonic()
		if width := time.Since(c.base) - before; width < narrowest {
			narrowest, c.offset = width, now.Add(-before)
		}
	}
	return c
}

func monotonic() Instant { return clockTime(unix.CLOCK_MONOTONIC) }

//rt:noalloc
func clockTime(id int32) Instant {
	var ts unix.Timespec
	unix.ClockGettime(id, &ts) // no error is possible: id is a constant of this package
	return Instant(ts.Nano())
}

// Now returns CLOCK_MONOTONIC.
//
//rt:noalloc
func (c *kernelClock) Now() Instant { return c.offset.Add(time.Since(c.base)) }

// SleepUntil repeats clock_nanosleep when a signal ends it. It uses an ordinary Syscall: during a RawSyscall, a garbage
// collection would stop the whole process until the sleep ends.
//
//rt:noalloc
func (c *kernelClock) SleepUntil(deadline Instant) {
	if deadline <= c.Now() {
		return
	}
	ts := unix.NsecToTimespec(int64(deadline))
	for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &ts, nil) == unix.EINTR {
	}
}

// Suspended returns CLOCK_BOOTTIME less CLOCK_MONOTONIC. If the thread is preempted between the readings of the two
// clocks, the result is too small, never too large.
//
//rt:noalloc
func (c *kernelClock) Suspended() time.Duration {
	boot := clockTime(unix.CLOCK_BOOTTIME)
	return boot.Sub(c.Now())
}
