package rt_test

import (
	"sync/atomic"
	"testing"
	"time"

	"edgert/rt"
	"edgert/rt/rttest"
)

// stolen is a clock whose sleep to one deadline ends late, with the time booked
// as the sleeper's own: what a guest sees when its host takes the CPU away just
// as the thread wakes up.
type stolen struct {
	*rttest.Clock
	at rt.Instant
}

func (s *stolen) SleepUntil(deadline rt.Instant) {
	s.Clock.SleepUntil(deadline)
	if deadline == s.at {
		s.at = 0
		s.Clock.Work(58 * time.Millisecond)
	}
}

func TestATickStolenWhileWakingIsTheHosts(t *testing.T) {
	const period = 10 * time.Millisecond
	clock := &stolen{Clock: rttest.NewClock(0), at: rt.Instant(3 * period)}
	l := rt.NewLoop(rt.LoopConfig{Clock: clock, Period: period, Mode: rt.ModeOff, CPU: rt.UnpinnedCPU})
	var stop atomic.Bool
	ticks := 0
	l.Run(&stop, func(rt.Tick) time.Duration {
		ticks++
		stop.Store(ticks == 6)
		return time.Millisecond
	})
	if s := l.Stats(); s.OverrunsOwn != 0 || s.OverrunsHost != 1 || s.Skipped != 5 {
		t.Errorf("own %d, host %d, skipped %d; want 0, 1, 5", s.OverrunsOwn, s.OverrunsHost, s.Skipped)
	}
}
