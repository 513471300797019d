package servo

import (
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Goal: the arm detects a falling supply within two seconds at any rate that leaves time for the position reads. In
// earlier versions no tick above 130 Hz had the time for a health window, and heat, supply and restarts went unnoticed.
func TestMotorsAreLookedAfterAtEveryRate(t *testing.T) {
	for _, hz := range []int{60, 120, 150, 200, 330} {
		a, l := openLine(t)
		l.keep = false
		for _, s := range l.servos {
			if s != nil {
				s.mem[62] = 74
			}
		}
		rttest.Must(a.MeasureCycles(100))(t)
		period := time.Second / time.Duration(hz)
		at := l.Now()
		run := func() (volts float64) {
			for range 2 * hz {
				at = at.Add(period)
				l.SleepUntil(at)
				if stale := a.Read(l.dst, at.Add(period-min(3*time.Millisecond, period*4/10))); stale != 0 {
					t.Fatalf("%d Hz: stale %06b on a clean line", hz, stale)
				}
			}
			_, volts = a.Extremes()
			return volts
		}
		before := run()
		l.servos[4].mem[62] = 60
		if after := run(); before != 7.4 || after != 6 {
			t.Errorf("%d Hz: %v volts, then %v, want 7.4, and 6 when motor 4 has less", hz, before, after)
		}
	}
}

// Goal: when servos or the adapter are so slow that position reads leave no time in a tick,
// although the measured cycle time is accepted, the health windows are still read, and a motor that
// was silent for a moment is not held for ever.
func TestNoTickHasRoom(t *testing.T) {
	for _, tt := range []struct {
		hz int
		x  time.Duration
	}{{120, 450 * time.Microsecond}, {200, 150 * time.Microsecond}, {200, 240 * time.Microsecond}} {
		a, l := openLine(t)
		l.keep = false
		l.gap = replyGap + tt.x
		for _, s := range l.servos {
			if s != nil {
				s.mem[62] = 74
			}
		}
		period := time.Second / time.Duration(tt.hz)
		if p99, err := a.MeasureCycles(100); err != nil || float64(p99) > 0.6*float64(period) {
			t.Fatalf("%v Hz: p99 %v, %v: not what this test is about", tt.hz, p99, err)
		}
		at, over := l.Now(), 0
		run := func(d time.Duration) {
			for range int(d / period) {
				at = at.Add(period)
				l.SleepUntil(at)
				a.Read(l.dst, at.Add(period-min(3*time.Millisecond, period*4/10)))
				if l.Now() > at.Add(period) {
					over++
					at = l.Now()
				}
			}
		}
		run(5 * time.Second)
		if _, volts := a.Extremes(); volts != 7.4 {
			t.Errorf("%d Hz: %v volts after 5s, want 7.4", tt.hz, volts)
		}
		l.servos[3].mute = true
		run(100 * time.Millisecond)
		rttest.Want(t, a.Unchecked(), 0b100, "%d Hz: doubted", tt.hz)
		l.servos[3].mute = false
		run(500 * time.Millisecond)
		rttest.Want(t, a.Unchecked(), 0, "%d Hz: still doubted after half a second", tt.hz)
		if over > 20 {
			t.Errorf("%d Hz: %d ticks ran over, want few", tt.hz, over)
		}
		t.Logf("%d Hz: %d ticks ran over", tt.hz, over)
	}
}
