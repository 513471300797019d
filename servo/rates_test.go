package servo

import (
	"testing"
	"time"
)

// A supply that falls is known within two seconds at any rate that leaves the reads
// their time: above 130 Hz no tick had the room that a window was given, and heat,
// supply and restarts went unnoticed.
func TestMotorsAreLookedAfterAtEveryRate(t *testing.T) {
	for _, hz := range []int{60, 120, 150, 200, 330} {
		a, l := openLine(t)
		l.keep = false
		for _, s := range l.servos {
			if s != nil {
				s.mem[62] = 74
			}
		}
		if _, err := a.MeasureCycles(100); err != nil {
			t.Fatal(err)
		}
		period, dst, at := time.Second/time.Duration(hz), make([]float32, 6), l.clock.Now()
		run := func() (volts float64) {
			for range 2 * hz {
				at = at.Add(period)
				l.clock.SleepUntil(at)
				if stale := a.Read(dst, at.Add(period-min(3*time.Millisecond, period*4/10))); stale != 0 {
					t.Fatalf("%d Hz: stale %06b on a clean line", hz, stale)
				}
			}
			_, volts = a.Climate()
			return volts
		}
		before := run()
		l.servos[4].mem[62] = 60
		if after := run(); before != 7.4 || after != 6 {
			t.Errorf("%d Hz: %v volts, then %v, want 7.4, and 6 when motor 4 has less", hz, before, after)
		}
	}
}
