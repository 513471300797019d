package rttest

import (
	"sync"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

func TestClock(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		name    string
		do      func(*Clock)
		wantNow rt.Instant
		wantCPU time.Duration
	}{
		{"stands still", func(c *Clock) { c.Now() }, 100, 0},
		{"sleeping moves it", func(c *Clock) { c.SleepUntil(500) }, 500, 0},
		{"sleeping into the past does not", func(c *Clock) { c.SleepUntil(5) }, 100, 0},
		{"a late sleep", func(c *Clock) { c.LateAt(500, ms); c.SleepUntil(500) }, 500 + 1e6, 0},
		{"is late once", func(c *Clock) {
			c.LateAt(500, 7)
			c.SleepUntil(500)
			c.SleepUntil(508)
			c.SleepUntil(500)
		}, 508, 0},
		{"is late at its deadline only", func(c *Clock) { c.LateAt(500, 7); c.SleepUntil(501) }, 501, 0},
		{"a wait", func(c *Clock) { c.Advance(ms) }, 100 + 1e6, 0},
		{"work", func(c *Clock) { c.Work(ms); c.Advance(ms) }, 100 + 2e6, ms},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := NewClock(100)
			tt.do(c)
			if c.Now() != tt.wantNow || c.ThreadCPU() != tt.wantCPU {
				t.Errorf("Now, ThreadCPU = %d, %v, want %d, %v", c.Now(), c.ThreadCPU(), tt.wantNow, tt.wantCPU)
			}
		})
	}
}

// The clock does not move while the machine is suspended.
func TestSuspendStandsStill(t *testing.T) {
	c := NewClock(100)
	c.Suspend(time.Hour)
	c.Suspend(time.Minute)
	if c.Now() != 100 || c.ThreadCPU() != 0 || c.Suspended() != time.Hour+time.Minute {
		t.Errorf("Now, ThreadCPU, Suspended = %d, %v, %v, want 100, 0, 1h1m", c.Now(), c.ThreadCPU(), c.Suspended())
	}
}

func TestClockHasOneTimeForAll(t *testing.T) {
	c := NewClock(0)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				c.SleepUntil(c.Now().Add(1))
				c.Advance(1)
			}
		})
	}
	wg.Wait()
	if now := c.Now(); now < 4000 || now > 8000 {
		t.Errorf("Now = %d after 4000 steps of 1 and as many sleeps of at most 1", now)
	}
}
