package rt_test

import (
	"testing"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Goal: an Overlap does not allocate, a panic in a read becomes a panic of Run, and outside Run a bus waits itself.
func TestOverlapRuns(t *testing.T) {
	clock, now := rttest.NewClock(0), []rt.Instant{}
	o := rt.NewOverlap(clock)
	pauses, broken := [3]rt.Pause{}, false
	for i := range pauses {
		o.Add(func() {
			if broken {
				panic("broken")
			}
			for k := range 3 {
				pauses[i](rt.Instant(10*k+i), nil)
			}
			if i == 2 && len(now) < cap(now) {
				now = append(now, clock.Now())
			}
		}, func(p rt.Pause) { pauses[i] = p })
	}
	if pauses[0](5, nil) || clock.Now() != 0 {
		t.Error("a bus outside Run does not wait by itself")
	}
	o.Run()
	if w := o.Waited(); clock.Now() != 22 || w.Meant != 22 {
		t.Errorf("three reads until 22 took until %v, and the longest waited %v", clock.Now(), w.Meant)
	}
	rttest.NoAllocs(t, "Run allocates %v times, want 0", 100, o.Run)
	defer func() {
		rttest.Want(t, recover(), "broken", "a read's panic")
	}()
	broken = true
	o.Run()
}
