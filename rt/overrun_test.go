package rt_test

import (
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// stolen is a clock whose sleep to one deadline ends late, with the delay booked as the thread's CPU time. A guest sees
// this when its host takes the CPU away just as the thread wakes up.
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
	l := loopOn(&stolen{Clock: rttest.NewClock(0), at: rt.Instant(3 * period)})
	runLoop(l, 6, func(rt.Tick) rt.Wait { return rt.Wait{Meant: time.Millisecond} })
	if s := l.Stats(); s.OverrunsOwn != 0 || s.OverrunsHost != 1 || s.Skipped != 5 {
		t.Errorf("own %d, host %d, skipped %d; want 0, 1, 5", s.OverrunsOwn, s.OverrunsHost, s.Skipped)
	}
}

// hosted is a clock whose machine is a guest: in one step the host pauses the guest, and the guest books the pause as
// the thread's CPU time and as steal time.
type hosted struct {
	*rttest.Clock
	taken time.Duration
	reads int
}

func (h *hosted) StealTime() time.Duration { h.reads++; return h.taken }

// steps runs a loop for n ticks. Each call of step gets the number of its tick.
func (h *hosted) steps(n int, step func(i int, tick rt.Tick)) rt.LoopStats {
	l, i := loopOn(h), 0
	runLoop(l, n, func(tick rt.Tick) rt.Wait {
		i++
		step(i, tick)
		return rt.Wait{}
	})
	return l.Stats()
}

func TestAPauseByTheHostInAStepIsTheHosts(t *testing.T) {
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
		clock := &hosted{Clock: rttest.NewClock(0), taken: time.Hour}
		s := clock.steps(90, func(i int, _ rt.Tick) {
			if i == 50 {
				clock.Work(tt.works)
			} else if i == 53 {
				clock.taken += tt.taken // the kernel counts the stolen time a little later
			} else if i < 30 {
				clock.taken += 30 * time.Millisecond // time stolen long before the overrun
			}
		})
		if s.OverrunsOwn != tt.own || s.OverrunsHost != tt.byTheHost {
			t.Errorf("%s: own %d, host %d; want %d, %d", tt.name, s.OverrunsOwn, s.OverrunsHost, tt.own, tt.byTheHost)
		}
	}
}

// Stolen time excuses overruns of the same length, once.
func TestOnePauseExcusesOneOverrun(t *testing.T) {
	clock := &hosted{Clock: rttest.NewClock(0)}
	var told []rt.Overrun
	s := clock.steps(90, func(i int, tick rt.Tick) {
		switch i {
		case 50:
			clock.Work(40 * time.Millisecond)
			clock.taken += 30 * time.Millisecond
		case 52:
			clock.Work(35 * time.Millisecond)
		}
		if tick.Overrun.Own {
			told = append(told, tick.Overrun)
		}
	})
	if s.OverrunsOwn != 1 || s.OverrunsHost != 1 || s.Excused != 30*time.Millisecond {
		t.Errorf("own %d, host %d, excused %v; want 1, 1, 30 ms", s.OverrunsOwn, s.OverrunsHost, s.Excused)
	}
	if len(told) != 1 || told[0].CPU != 35*time.Millisecond {
		t.Errorf("told %v, want the one of 35 ms", told)
	}
}

// The loop reads the steal time rarely while the host has never stolen time, and ten times a second afterwards.
func TestAMachineWithoutAHostIsHardlyAsked(t *testing.T) {
	for _, tt := range []struct {
		taken    time.Duration
		from, to int // least and largest number of readings in 10 s
	}{{0, 9, 13}, {time.Hour, 90, 110}} {
		clock := &hosted{Clock: rttest.NewClock(0), taken: tt.taken}
		clock.steps(1000, func(int, rt.Tick) {})
		if clock.reads < tt.from || clock.reads > tt.to {
			t.Errorf("taken %v: the steal is read %d times in 10 s, want %d to %d", tt.taken, clock.reads, tt.from,
				tt.to)
		}
	}
}

// The loop counts every overrun, however many come in a row.
func TestEveryOverrunIsBooked(t *testing.T) {
	clock := &hosted{Clock: rttest.NewClock(0)}
	s := clock.steps(200, func(int, rt.Tick) { clock.Work(15 * time.Millisecond) })
	if s.OverrunsOwn != 200 || s.OverrunsHost != 0 {
		t.Errorf("own %d, host %d; want 200, 0", s.OverrunsOwn, s.OverrunsHost)
	}
}
