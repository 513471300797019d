package jitter

import (
	"errors"
	"slices"
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

// Parameters for finding the phase of a thread.
const (
	watchedSleeps   = 7
	watchPeriods    = 64 // largest number of watched periods; a thread that watches late misses sleeps
	watchesInPeriod = 64
	minWatchStep    = 50 * time.Microsecond // reading /proc takes 20 us
)

var errNoPhase = errors.New("the tick thread never slept for half a period, so cyclictest cannot run half a period " +
	"out of phase")

// idleInstant returns an instant in the middle of the longest sleep of a thread that runs once a
// period. A second thread that wakes at that instant, or whole periods later, disturbs the first
// one least. sleeps returns how often the first thread has gone to sleep.
func idleInstant(clock rt.Clock, period time.Duration, sleeps func() (uint64, error)) (rt.Instant, error) {
	began := clock.Now()
	last, err := sleeps()
	if err != nil {
		return 0, err
	}
	asleep, middles := rt.Instant(0), []rt.Instant(nil)
	step := max(period/watchesInPeriod, minWatchStep)
	for now := began; len(middles) < watchedSleeps && now.Sub(began) < watchPeriods*period; {
		clock.SleepUntil(now.Add(step))
		now = clock.Now()
		n, err := sleeps()
		if err != nil {
			return 0, err
		}
		if n == last {
			continue
		}
		if length := now.Sub(asleep); asleep != 0 && length > period/2 && length < 3*period/2 {
			middles = append(middles, asleep.Add(length/2))
		}
		last, asleep = n, now
	}
	if len(middles) == 0 {
		return 0, errNoPhase
	}
	return typical(middles, period), nil
}

// typical moves the first instant to the median phase of all instants, so that a disturbed sleep or
// a late reading has no effect.
func typical(instants []rt.Instant, period time.Duration) rt.Instant {
	first := instants[0]
	var shifts []time.Duration
	for _, i := range instants {
		shifts = append(shifts, modulo(i.Sub(first)+period/2, period)-period/2)
	}
	slices.Sort(shifts)
	return first.Add(shifts[len(shifts)/2])
}

// modulo returns d modulo period, at least 0 and less than period, also for a negative d.
func modulo(d, period time.Duration) time.Duration {
	return (d%period + period) % period
}

// latestStart is the latest time within a second at which cyclictest may be started, so that it
// begins at the next second. If cyclictest begins one second later, its phase is still right if a
// second has a whole number of ticks.
const latestStart = 700 * time.Millisecond

// nextSecond waits until cyclictest may be started, and returns the full second at which cyclictest begins.
func nextSecond(clock rt.Clock) rt.Instant {
	now := clock.Now()
	if rest := modulo(time.Duration(now), time.Second); rest > latestStart {
		clock.SleepUntil(now.Add(time.Second - rest))
		now = clock.Now()
	}
	return now.Add(time.Second - modulo(time.Duration(now), time.Second))
}

// alignment returns the value of --secaligned with which cyclictest wakes at the instant idle, and whole periods before
// or after this instant.
//
// Source: rt-tests 2.x, cyclictest.c, timerthread: the first wake-up is one interval after the
// second and the offset.
func alignment(idle, second rt.Instant, period, interval time.Duration) time.Duration {
	return modulo(idle.Sub(second)-interval, period)
}
