package jitter

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/stage"
)

const ms = time.Millisecond

// rhythm returns the counter of sleeps of a thread that ticks once a period. After each tick it
// goes to sleep at the times naps, counted from the tick.
func rhythm(clock rt.Clock, first rt.Instant, period time.Duration, naps ...time.Duration) func() (uint64, error) {
	return func() (uint64, error) {
		var n uint64
		for _, nap := range naps {
			if since := clock.Now().Sub(first.Add(nap)); since >= 0 {
				n += uint64(since/period) + 1
			}
		}
		return n, nil
	}
}

func TestIdleInstant(t *testing.T) {
	const period = 16 * ms
	for _, tt := range []struct {
		name string
		naps []time.Duration
		want time.Duration // time after a tick
	}{
		{"the bare loop: wakes 4 ms before the tick and at it", []time.Duration{12 * ms, 0}, 6 * ms},
		{"the edge: waits for the bus, too", []time.Duration{12 * ms, 100 * time.Microsecond, 1300 * time.Microsecond},
			6650 * time.Microsecond},
		{"cyclictest: one wake-up a period", []time.Duration{0}, 8 * ms},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clock := rttest.NewClock(12345678)
			first := clock.Now().Add(3 * ms)
			got := rttest.Must(idleInstant(clock, period, rhythm(clock, first, period, tt.naps...)))(t)
			// The fake thread runs for no time, so its sleep appears to last the whole period.
			const look = period / watchesInPeriod
			if off := modulo(got.Sub(first)-tt.want+period/2, period) - period/2; off < -look || off > look {
				t.Errorf("quiet %v after a tick, want %v", modulo(got.Sub(first), period), tt.want)
			}
		})
	}
}

func TestIdleInstantOfAnAlwaysBusyThread(t *testing.T) {
	clock := rttest.NewClock(0)
	_, err := idleInstant(clock, 16*ms, rhythm(clock, 0, 4*ms, 0))
	rttest.FailsAs(t, err, errNoPhase)
	gone := errors.New("no such process")
	// idleInstant for a thread that has ended
	rttest.FailsAs(t, rttest.Err(idleInstant(clock, 16*ms, func() (uint64, error) { return 0, gone })), gone)
}

func TestTypicalIgnoresOutliers(t *testing.T) {
	const period = 10 * ms
	at := func(v ...time.Duration) (all []rt.Instant) {
		for _, d := range v {
			all = append(all, rt.Instant(0).Add(d))
		}
		return all
	}
	for _, tt := range []struct {
		name string
		in   []rt.Instant
		want time.Duration // the instant modulo the period
	}{
		{"one", at(3 * ms), 3 * ms},
		{"a disturbed one in the middle", at(3*ms, 17*ms, 23*ms, 33*ms), 3 * ms},
		{"a disturbed one first", at(7*ms, 13*ms, 23*ms, 33*ms), 3 * ms},
		{"around the period's end", at(9900*time.Microsecond, 20*ms, 30100*time.Microsecond), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rttest.Want(t, modulo(time.Duration(typical(tt.in, period)), period), tt.want, "typical(%v)", tt.in)
		})
	}
}

func TestAlignment(t *testing.T) {
	const period, interval = 16 * ms, 19 * ms // different, so that the effect of each is visible
	second := rt.Instant(0).Add(2 * time.Second)
	for _, quiet := range []time.Duration{0, 5 * ms, 1999 * ms, 2003 * ms} {
		offset := alignment(rt.Instant(0).Add(quiet), second, period, interval)
		wake := second.Add(offset + interval)
		if offset < 0 || offset >= period || modulo(wake.Sub(rt.Instant(0).Add(quiet)), period) != 0 {
			t.Errorf("alignment to %v = %v: wakes at %v", quiet, offset, wake)
		}
	}
}

func TestNextSecond(t *testing.T) {
	for _, tt := range []struct {
		name      string
		now       time.Duration
		want, and time.Duration // want: the second; and: the time at which nextSecond returns it
	}{
		{"early in a second", 5100 * ms, 6 * time.Second, 5100 * ms},
		{"at the last moment", 5700 * ms, 6 * time.Second, 5700 * ms},
		{"too late for this one", 5701 * ms, 7 * time.Second, 6 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clock := rttest.NewClock(rt.Instant(0).Add(tt.now))
			if got := nextSecond(clock); got != rt.Instant(0).Add(tt.want) || clock.Now() != rt.Instant(0).Add(tt.and) {
				t.Errorf("nextSecond at %v = %d at %d, want %v at %v", tt.now, got, clock.Now(), tt.want, tt.and)
			}
		})
	}
}

// The real cyclictest with a phase wakes in the middle of another thread's sleep.
func TestCyclictestKeepsTheDistance(t *testing.T) {
	rttest.RealTime(t)
	ctx := context.Background()
	reference := FindCyclictest(ctx)
	if reference.Missing != "" {
		t.Skip(reference.Missing)
	}
	const period = 20 * ms // a second is a whole number of periods, as for every whole rate
	clock := rt.KernelClock()
	start := func(offset time.Duration) (*cyclictestRun, rt.Instant) {
		t.Helper()
		c := rttest.Must(reference.start(period, offset, -1, true))(t)
		t.Cleanup(func() { c.child.Stop() })
		tid := rttest.Must(c.child.waitTick(ctx, tickLimit))(t)
		if offset >= 0 {
			stage.Sleep(ctx, 1100*ms) // cyclictest begins at the next second
		}
		at := rttest.Must(idleInstant(clock, period, func() (uint64, error) { return bench.SleepsOf(tid) }))(t)
		return c, at
	}
	_, first := start(-1)
	second := nextSecond(clock)
	c, other := start(alignment(first, second, period, period))
	if apart := modulo(other.Sub(first), period); apart < period/4 || apart > 3*period/4 {
		t.Errorf("cyclictests wake %v apart, want about %v", apart, period/2)
	}
	if run, err := c.finish(); err != nil || run.Ticks == 0 || run.Threads == "" {
		t.Errorf("finish = %+v, %v; want ticks and threads", run, err)
	}
}
