package rt_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// stolen is a clock whose sleep to one deadline ends late, with the time booked as the sleeper's
// own: a guest sees this when its host takes the CPU away just as the thread wakes up.
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
	l.Run(&stop, func(rt.Tick) rt.Wait {
		ticks++
		stop.Store(ticks == 6)
		return rt.Wait{Meant: time.Millisecond}
	})
	if s := l.Stats(); s.OverrunsOwn != 0 || s.OverrunsHost != 1 || s.Skipped != 5 {
		t.Errorf("own %d, host %d, skipped %d; want 0, 1, 5", s.OverrunsOwn, s.OverrunsHost, s.Skipped)
	}
}

// hosted is a clock whose machine is a guest: in one step the host pauses it,
// which the guest books as the thread's CPU time, and as steal.
type hosted struct {
	*rttest.Clock
	taken time.Duration
	reads int
}

func (h *hosted) StealTime() time.Duration { h.reads++; return h.taken }

func TestAPauseByTheHostInAStepIsTheHosts(t *testing.T) {
	const period = 10 * time.Millisecond
	for _, tt := range []struct {
		name           string
		works, taken   time.Duration
		own, byTheHost uint64
	}{
		{"a pause", 60 * time.Millisecond, 55 * time.Millisecond, 0, 1},
		{"a pause that the kernel rounded down", 60 * time.Millisecond, 40 * time.Millisecond, 0, 1},
		{"a slow step", 60 * time.Millisecond, 0, 1, 0},
		{"a slow step, and a short pause", 60 * time.Millisecond, 20 * time.Millisecond, 1, 0},
		{"just too short a pause", 60 * time.Millisecond, 40*time.Millisecond - 1, 1, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clock := &hosted{Clock: rttest.NewClock(0), taken: time.Hour}
			l := rt.NewLoop(rt.LoopConfig{Clock: clock, Period: period, Mode: rt.ModeOff, CPU: rt.UnpinnedCPU})
			var stop atomic.Bool
			ticks := 0
			l.Run(&stop, func(rt.Tick) rt.Wait {
				if ticks++; ticks == 50 {
					clock.Work(tt.works)
				} else if ticks == 53 {
					clock.taken += tt.taken // the kernel counts it a little later
				} else if ticks < 30 {
					clock.taken += 30 * time.Millisecond // stolen long before, not then
				}
				stop.Store(ticks == 90)
				return rt.Wait{}
			})
			if s := l.Stats(); s.OverrunsOwn != tt.own || s.OverrunsHost != tt.byTheHost {
				t.Errorf("own %d, host %d; want %d, %d", s.OverrunsOwn, s.OverrunsHost, tt.own, tt.byTheHost)
			}
		})
	}
}

// Stolen time excuses overruns of the same length, once.
func TestOnePauseExcusesOneOverrun(t *testing.T) {
	const period = 10 * time.Millisecond
	clock := &hosted{Clock: rttest.NewClock(0)}
	l := rt.NewLoop(rt.LoopConfig{Clock: clock, Period: period, Mode: rt.ModeOff, CPU: rt.UnpinnedCPU})
	var stop atomic.Bool
	var told []rt.Overrun
	ticks := 0
	l.Run(&stop, func(tick rt.Tick) rt.Wait {
		switch ticks++; ticks {
		case 50:
			clock.Work(40 * time.Millisecond)
			clock.taken += 30 * time.Millisecond
		case 52:
			clock.Work(35 * time.Millisecond)
		}
		if tick.Overrun.Own {
			told = append(told, tick.Overrun)
		}
		stop.Store(ticks == 90)
		return rt.Wait{}
	})
	if s := l.Stats(); s.OverrunsOwn != 1 || s.OverrunsHost != 1 || s.Excused != 30*time.Millisecond {
		t.Errorf("own %d, host %d, excused %v; want 1, 1, 30 ms", s.OverrunsOwn, s.OverrunsHost, s.Excused)
	}
	if len(told) != 1 || told[0].CPU != 35*time.Millisecond {
		t.Errorf("told %v, want the one of 35 ms", told)
	}
}

// The steal time of a host that has never taken any is read rarely; with stolen time it is read ten
// times a second.
func TestAMachineWithoutAHostIsHardlyAsked(t *testing.T) {
	const period, ticks = 10 * time.Millisecond, 1000
	for _, tt := range []struct {
		taken    time.Duration
		from, to int // reads in 10 s
	}{{0, 9, 13}, {time.Hour, 90, 110}} {
		clock := &hosted{Clock: rttest.NewClock(0), taken: tt.taken}
		l := rt.NewLoop(rt.LoopConfig{Clock: clock, Period: period, Mode: rt.ModeOff, CPU: rt.UnpinnedCPU})
		var stop atomic.Bool
		n := 0
		l.Run(&stop, func(rt.Tick) rt.Wait {
			n++
			stop.Store(n == ticks)
			return rt.Wait{}
		})
		if clock.reads < tt.from || clock.reads > tt.to {
			t.Errorf("taken %v: the steal is read %d times in %v, want %d to %d", tt.taken, clock.reads, ticks*period,
				tt.from, tt.to)
		}
	}
}

// Each of any number of overruns in a row is booked.
func TestEveryOverrunIsBooked(t *testing.T) {
	const period = time.Millisecond
	clock := &hosted{Clock: rttest.NewClock(0)}
	l := rt.NewLoop(rt.LoopConfig{Clock: clock, Period: period, Mode: rt.ModeOff, CPU: rt.UnpinnedCPU})
	var stop atomic.Bool
	ticks := uint64(0)
	l.Run(&stop, func(rt.Tick) rt.Wait {
		ticks++
		clock.Work(1500 * time.Microsecond)
		stop.Store(ticks == 200)
		return rt.Wait{}
	})
	if s := l.Stats(); s.OverrunsOwn != 200 || s.OverrunsHost != 0 {
		t.Errorf("own %d, host %d; want 200, 0", s.OverrunsOwn, s.OverrunsHost)
	}
}
