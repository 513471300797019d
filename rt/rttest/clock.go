// Package rttest helps tests of real-time code: a clock that moves only when a goroutine sleeps on it, the mark of
// tests that measure real time, and the only way to wait for other threads.
package rttest

import (
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

// Clock is an rt.Clock that moves only when a goroutine sleeps on it or a test advances it. All its users have the same
// time: a sleep moves the time for all of them, and the longest sleep sets it.
type Clock struct {
	mu   sync.Mutex
	now  rt.Instant                   // Guarded by mu.
	cpu  time.Duration                // Guarded by mu.
	late map[rt.Instant]time.Duration // Guarded by mu.

	suspended time.Duration // Guarded by mu.
}

// NewClock returns a clock that begins at the given instant.
func NewClock(start rt.Instant) *Clock {
	return &Clock{now: start, late: map[rt.Instant]time.Duration{}}
}

// Now returns the simulated time.
func (c *Clock) Now() rt.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// SleepUntil moves time to the deadline, or past it by the time that LateAt has set. If the deadline is in the past, it
// does nothing.
func (c *Clock) SleepUntil(deadline rt.Instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = max(c.now, deadline)
	if late, ok := c.late[deadline]; ok {
		c.now = max(c.now, deadline.Add(late))
		delete(c.late, deadline)
	}
}

// LateAt makes the next sleep to the deadline end later than the deadline, by d.
func (c *Clock) LateAt(deadline rt.Instant, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.late[deadline] = d
}

// Advance moves time by d without CPU time, like a wait or a host that runs another program.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Suspend lets the machine sleep for d, during which this clock does not move.
func (c *Clock) Suspend(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.suspended += d
}

// Suspended returns how long the machine slept in all.
func (c *Clock) Suspended() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.suspended
}

// Work moves time by d and books it as CPU time.
func (c *Clock) Work(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	c.cpu += d
}

// ThreadCPU returns all CPU time that was worked.
func (c *Clock) ThreadCPU() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cpu
}
