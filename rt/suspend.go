package rt

import "time"

// suspendMin is the shortest sleep of the machine that counts; a real suspension takes hundreds of milliseconds.
const suspendMin = 10 * time.Millisecond

// suspendTries is the number of readings after the first. A new Suspension uses the largest of all readings, because a
// reading is too small if the thread was preempted during it.
const suspendTries = 8

// suspendMeter is a Clock that also counts for how long the machine was suspended: KernelClock on Linux, and
// rttest.Clock.
type suspendMeter interface{ Suspended() time.Duration }

// Suspension detects that the machine was suspended: the monotonic clock stops during a suspension, so that older data
// would still appear fresh afterwards. It does not detect the sleep of a machine without a real-time clock, nor of a
// guest whose host stops its clocks.
//
// Owner: one thread.
type Suspension struct {
	meter suspendMeter // nil: suspensions are not detected
	known time.Duration
}

// NewSuspension returns a Suspension that begins now.
func NewSuspension(clock Clock) *Suspension {
	s := &Suspension{}
	if s.meter, _ = clock.(suspendMeter); s.meter == nil {
		return s
	}
	s.known = s.meter.Suspended()
	for range suspendTries {
		s.known = max(s.known, s.meter.Suspended())
	}
	return s
}

// Passed returns how long the machine was suspended since the last call. It takes 0.3 us.
//
//rt:noalloc
func (s *Suspension) Passed() time.Duration {
	if s.meter == nil {
		return 0
	}
	passed := s.meter.Suspended() - s.known
	if passed < suspendMin {
		// A reading with an interruption is too small, never too large, so the largest reading is the most exact.
		s.known += max(0, passed)
		return 0
	}
	s.known += passed
	return passed
}
