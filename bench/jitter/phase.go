package jitter

import (
	"errors"
	"slices"
	"time"

	"edgert/rt"
)

// How a thread is watched for its phase.
const (
	watchedSleeps   = 7
	watchPeriods    = 64 // at most; where this thread is late few sleeps are seen
	watchesInPeriod = 64
	minWatchStep    = 50 * time.Microsecond // reading /proc takes 20
)

var errNoPhase = errors.New("the tick thread never slept for half a period, so cyclictest cannot run half a period out of phase")

// idleInstant returns an instant in the middle of the longest sleep of a thread
// that runs once a period: there another disturbs it least, also whole periods
// later. sleeps counts how often the thread went to sleep.
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

// typical is the first instant moved to the median phase of all, so that a sleep
// cut short by a disturbance, or a reading that came late, does not count.
func typical(instants []rt.Instant, period time.Duration) rt.Instant {
	first := instants[0]
	var shifts []time.Duration
	for _, i := range instants {
		shifts = append(shifts, modulo(i.Sub(first)+period/2, period)-period/2)
	}
	slices.Sort(shifts)
	return first.Add(shifts[len(shifts)/2])
}

// modulo is d in 0 to period.
func modulo(d, period time.Duration) time.Duration {
	return (d%period + period) % period
}

// latestStart is how far into a second cyclictest may start and still begin at
// the next one. Where it is too late, a whole number of ticks per second keeps
// the phase.
const latestStart = 700 * time.Millisecond

// nextSecond waits until cyclictest may start, and returns when it will begin.
func nextSecond(clock rt.Clock) rt.Instant {
	now := clock.Now()
	if rest := modulo(time.Duration(now), time.Second); rest > latestStart {
		clock.SleepUntil(now.Add(time.Second - rest))
		now = clock.Now()
	}
	return now.Add(time.Second - modulo(time.Duration(now), time.Second))
}

// alignment is the --secaligned with which cyclictest wakes at idle instants.
//
// Source: rt-tests 2.x, cyclictest.c, timerthread: the first wake-up is one
// interval after the second and the offset.
func alignment(idle, second rt.Instant, period, interval time.Duration) time.Duration {
	return modulo(idle.Sub(second)-interval, period)
}
