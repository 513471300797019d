package rt_test

import (
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestLaps(t *testing.T) {
	clock := rttest.NewClock(0)
	l := rt.NewLaps(clock, 2)
	for range 3 {
		l.Begin(clock.Now())
		clock.Work(2 * time.Millisecond)
		l.Mark(0)
		clock.Work(5 * time.Millisecond)
		l.Mark(1)
		clock.Work(time.Second) // time between two steps
		l.End()
	}
	for i, want := range []time.Duration{2 * time.Millisecond, 5 * time.Millisecond} {
		if h := l.Part(i); h.Count() != 3 || h.Max() != want {
			t.Errorf("part %d: %d times at most %v, want 3 and %v", i, h.Count(), h.Max(), want)
		}
	}
	if h := l.Whole(); h.Count() != 3 || h.Max() != 7*time.Millisecond {
		t.Errorf("whole: %d times at most %v, want 3 and 7ms", h.Count(), h.Max())
	}
	rttest.NoAllocs(t, "a step allocates %v times, want 0", 100, func() {
		l.Begin(clock.Now())
		l.Mark(0)
		l.Mark(1)
		l.End()
	})
}
