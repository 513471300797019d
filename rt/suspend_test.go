package rt_test

import (
	"slices"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// A tick reports once how long the machine was suspended before it; its Deadline and Woke do not include that time.
func TestLoopTellsThatTheMachineWasSuspended(t *testing.T) {
	loop, clock := simulated(0)
	clock.Suspend(time.Hour) // a suspension before the run is not reported
	var slept []time.Duration
	var woke []rt.Instant
	runLoop(loop, 6, func(tick rt.Tick) rt.Wait {
		slept, woke = append(slept, tick.Suspended), append(woke, tick.Woke)
		switch tick.Index {
		case 1:
			clock.Suspend(3 * time.Hour)
		case 2, 3:
			// not reported, because it is shorter than suspendMin: two clocks read one after the other may differ
			clock.Suspend(4 * time.Millisecond)
		}
		return rt.Wait{}
	})
	rttest.Equal(t, slept, []time.Duration{0, 0, 3 * time.Hour, 0, 0, 0}, "Suspended")
	if want := []rt.Instant{10e6, 20e6, 30e6, 40e6, 50e6, 60e6}; !slices.Equal(woke, want) {
		t.Errorf("Woke = %v, want %v: the grid stays", woke, want)
	}
	if s := loop.Stats(); s.Suspended != 3*time.Hour || s.Skipped != 0 {
		t.Errorf("Stats: suspended for %v, %d skipped, want 3h, 0", s.Suspended, s.Skipped)
	}
}

// jumpy is a clock whose Suspended was interrupted between its two readings.
type jumpy struct {
	rttest.Clock
	readings []time.Duration
}

func (j *jumpy) Suspended() time.Duration {
	d := j.readings[0]
	if len(j.readings) > 1 {
		j.readings = j.readings[1:]
	}
	return d
}

// A thread preempted while it reads the clocks detects no suspension, and neither does the next
// reading.
func TestAnInterruptedReadingIsNoSuspend(t *testing.T) {
	const sec = time.Second
	begin := []time.Duration{5*sec - 80*time.Millisecond, 5 * sec, 4 * sec, 5 * sec, 5 * sec, 5 * sec, 5 * sec, 5 * sec,
		5 * sec}
	s := rt.NewSuspension(&jumpy{readings: append(begin, 5*sec, 4*sec, 5*sec, 6*sec, 5*sec, 6*sec)})
	var got []time.Duration
	for range 6 {
		got = append(got, s.Passed())
	}
	rttest.Equal(t, got, []time.Duration{0, 0, 0, sec, 0, 0}, "Passed")
}

// While this machine is not suspended, its two clocks agree under any load, and reading them allocates nothing.
func TestTheKernelsClocksAgreeWithoutASuspend(t *testing.T) {
	s := rt.NewSuspension(rt.KernelClock())
	for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); {
		if d := s.Passed(); d != 0 {
			t.Fatalf("suspended for %v, want 0", d)
		}
	}
	rttest.NoAllocs(t, "Passed allocates %v times, want 0", 100, func() { s.Passed() })
}
