package rt

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// kernelClock reads CLOCK_MONOTONIC through the vDSO: package time's monotonic
// reading is that clock counted from the start of the process, so one offset,
// measured once, turns it into the kernel's own numbers (40 ns a reading; the
// system call of x/sys takes ten times as long).
type kernelClock struct {
	base   time.Time
	offset Instant // CLOCK_MONOTONIC at base
}

var kernel = calibrate()

// KernelClock returns the machine's CLOCK_MONOTONIC. Its sleep is
// clock_nanosleep with an absolute deadline on the calling thread: no Go timer,
// so it is as exact as the thread's scheduling class allows.
func KernelClock() Clock { return kernel }

// calibrate takes the narrowest of a few readings that bracket the kernel's
// clock. The offset errs towards a Now that is late by the width of the bracket
// (below a microsecond), so that a sleeper never wakes before its deadline.
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

// monotonic is CLOCK_MONOTONIC by system call.
func monotonic() Instant { return clockTime(unix.CLOCK_MONOTONIC) }

// clockTime reads a clock that cannot fail: its id is a constant of this package.
//
//rt:noalloc
func clockTime(id int32) Instant {
	var ts unix.Timespec
	unix.ClockGettime(id, &ts)
	return Instant(ts.Nano())
}

// Now returns CLOCK_MONOTONIC.
//
//rt:noalloc
func (c *kernelClock) Now() Instant { return c.offset.Add(time.Since(c.base)) }

// SleepUntil sleeps in the kernel. A signal ends clock_nanosleep early and it is
// never restarted, so the call is repeated with the same absolute deadline.
// The call is an ordinary Syscall: with RawSyscall the garbage collector would
// stop the whole process for as long as the sleep.
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

// Suspended is CLOCK_BOOTTIME, which counts while the machine is suspended, less
// CLOCK_MONOTONIC, which does not. Whoever is preempted between the two readings
// gets less, never more.
//
//rt:noalloc
func (c *kernelClock) Suspended() time.Duration {
	boot := clockTime(unix.CLOCK_BOOTTIME)
	return boot.Sub(c.Now())
}
