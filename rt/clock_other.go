//go:build !linux

package rt

import "time"

// kernelClock counts package time's monotonic reading from the start of the
// process. Good enough to develop on; real time is Linux's.
type kernelClock struct{ base time.Time }

var kernel = &kernelClock{base: time.Now()}

// KernelClock returns the machine's monotonic clock.
func KernelClock() Clock { return kernel }

// Now returns the time since the process started.
func (c *kernelClock) Now() Instant { return Instant(time.Since(c.base)) }

// SleepUntil sleeps on a Go timer.
func (c *kernelClock) SleepUntil(deadline Instant) { time.Sleep(deadline.Sub(c.Now())) }

// ThreadCPU is not known here.
func (c *kernelClock) ThreadCPU() time.Duration { return 0 }
