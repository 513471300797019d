package rt

import "time"

// suspendMin is the shortest sleep of the machine that counts. A real one takes
// hundreds of milliseconds; the two clocks are compared to less than a microsecond.
const suspendMin = 10 * time.Millisecond

// suspendTries is how many readings a Suspension begins with. A thread that is
// preempted between the two clocks reads too little; if all readings were so, the
// difference would later count as a sleep.
const suspendTries = 8

// suspendMeter is a Clock that also counts for how long the machine was suspended,
// from an arbitrary beginning, as KernelClock on Linux and rttest.Clock do.
type suspendMeter interface{ Suspended() time.Duration }

// Suspension finds out that the machine was suspended. The monotonic clock stops
// meanwhile, so that ages counted with it do not grow: data from before the sleep
// would still pass as fresh hours later.
//
// It does not see the sleep of a machine without a real-time clock, nor that of a
// guest whose host stops its clocks.
//
// Owner: one thread.
type Suspension struct {
	meter suspendMeter // nil: none
	known time.Duration
}

// NewSuspension returns one for suspensions from now on.
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
		// An interrupted reading is too small, never too large, so the largest is the
		// most exact.
		s.known += max(0, passed)
		return 0
	}
	s.known += passed
	return passed
}
