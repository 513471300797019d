package rt

import (
	"context"
	"time"
)

// Instant is a point on the machine's monotonic clock, in nanoseconds. Instants of different machines cannot be
// compared.
type Instant int64

// Add returns the instant d later.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns the time from earlier to i.
func (i Instant) Sub(earlier Instant) time.Duration { return time.Duration(i - earlier) }

// Clock is the only source of time on layers 1 to 4, so that the same code runs
// in real time (KernelClock) and in a test's time (rttest.Clock).
type Clock interface {
	Now() Instant
	// SleepUntil returns at or after the deadline, at once if it has passed.
	SleepUntil(deadline Instant)
}

// restPoll is the interval at which Rest checks its context.
const restPoll = 20 * time.Millisecond

// Rest sleeps for d, or until ctx ends, and returns the error of ctx.
func Rest(ctx context.Context, clock Clock, d time.Duration) error {
	for end := clock.Now().Add(d); clock.Now() < end && ctx.Err() == nil; {
		clock.SleepUntil(min(end, clock.Now().Add(restPoll)))
	}
	return ctx.Err()
}
