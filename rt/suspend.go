package rt

import "time"

// suspendMin is the shortest sleep of the machine that counts. A real one takes
// hundreds of milliseconds; the two clocks are compared to less than a microsecond.
const suspendMin = 10 * time.Millisecond

// suspendTries is how many readings begin a Suspension: whoever is preempted
// between the two clocks in all of them reads too little, and would take the
// difference for a sleep later.
const suspendTries = 8

// suspendMeter is a Clock that also knows for how long the machine was suspended,
// since whenever. Both clocks are; with another one nothing is ever suspended.
type suspendMeter interface{ Suspended() time.Duration }

// Suspension tells its owner that the machine was suspended. The monotonic clock
// stands still meanwhile, so to all ages that are counted with it the sleep is no
// time: what was fresh before is called fresh afterwards, hours later.
//
// A machine that does not know how long it slept (without a real-time clock), and
// a guest whose host stops its clocks, are not noticed.
//
// Owner: one thread.
type Suspension struct {
	meter suspendMeter // nil: none
	known time.Duration
}

// NewSuspension begins now: what was slept before does not count.
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

// Passed returns how long the machine was suspended since the last call; 0 when it
// was not. It costs one system call, about 0.3 us.
//
//rt:noalloc
func (s *Suspension) Passed() time.Duration {
	if s.meter == nil {
		return 0
	}
	passed := s.meter.Suspended() - s.known
	if passed < suspendMin {
		// A reading that was interrupted is too small, never too large: the largest
		// one is the nearest.
		s.known += max(0, passed)
		return 0
	}
	s.known += passed
	return passed
}
