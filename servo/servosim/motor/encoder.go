package motor

import "edgert/rt"

// EncoderFault is how an encoder reads wrong. The servo's own loop believes it: it
// drives the shaft to where the wrong reading is the goal. The zero value is an
// encoder without a fault.
type EncoderFault struct {
	Offset int     // counts on top of the true position
	Drift  float64 // counts per second on top
	Stuck  bool    // it reads what it read when the fault began
	Silent bool    // no error bit reports it
}

// Encoder reads a shaft's position.
type Encoder struct {
	fault EncoderFault
	since rt.Instant
	stuck int // what it read at since
}

// Fail begins a fault, or with the zero value ends one; the shaft is at place.
//
//rt:noalloc
func (e *Encoder) Fail(f EncoderFault, place int, now rt.Instant) {
	*e = Encoder{fault: f, since: now, stuck: place}
}

// Faulty reports whether a fault is under way.
//
//rt:noalloc
func (e *Encoder) Faulty() bool { return e.fault.Offset != 0 || e.fault.Drift != 0 || e.fault.Stuck }

// Reported reports whether a fault is under way that the servo has detected.
//
//rt:noalloc
func (e *Encoder) Reported() bool { return e.Faulty() && !e.fault.Silent }

// Read is what the encoder reads of a shaft at place.
//
//rt:noalloc
func (e *Encoder) Read(place int, now rt.Instant) int {
	if !e.Faulty() {
		return place
	}
	if e.fault.Stuck {
		place = e.stuck
	}
	return place + e.fault.Offset + Round(e.fault.Drift*now.Sub(e.since).Seconds())
}

// Target is where a loop that believes the encoder drives a shaft, which is at place,
// so that it reads goal; a stuck one never does, so it runs to the end of its counts.
//
//rt:noalloc
func (e *Encoder) Target(goal, place, counts int, now rt.Instant) int {
	if !e.Faulty() {
		return goal
	}
	off := goal - e.Read(place, now)
	switch {
	case e.fault.Stuck && off > 0:
		return counts - 1
	case e.fault.Stuck && off < 0:
		return 0
	}
	return place + off
}
