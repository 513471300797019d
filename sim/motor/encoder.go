package motor

import "github.com/edge-rt/edge-rt/rt"

// EncoderFault is an error of an encoder's readings. The servo's control loop uses the wrong
// readings: it drives the shaft until the reading equals the goal. The zero value is no fault.
type EncoderFault struct {
	Offset int     // counts, added to the true position
	Drift  float64 // counts per second, added to the reading as time passes
	Stuck  bool    // the reading stays as it was when the fault began
	Silent bool    // no error bit reports the fault
}

// Encoder reads a shaft's position.
type Encoder struct {
	fault EncoderFault
	since rt.Instant
	stuck int // the constant reading of a stuck encoder
}

// Fail begins a fault, or ends it when f is the zero value. The parameter place is the shaft's present position.
//
//rt:noalloc
func (e *Encoder) Fail(f EncoderFault, place int, now rt.Instant) {
	*e = Encoder{fault: f, since: now, stuck: place}
}

// Faulty reports whether a fault is active.
//
//rt:noalloc
func (e *Encoder) Faulty() bool { return e.fault.Offset != 0 || e.fault.Drift != 0 || e.fault.Stuck }

// Reported reports whether a fault is active that the servo reports by an error bit.
//
//rt:noalloc
func (e *Encoder) Reported() bool { return e.Faulty() && !e.fault.Silent }

// Read returns the encoder's reading for a shaft at the position place.
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

// Target returns the position to which the control loop drives a shaft, whose present position is place, until the
// encoder reads the count goal. With a stuck encoder the reading never becomes the goal, so the shaft runs to the end
// of its counts.
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
