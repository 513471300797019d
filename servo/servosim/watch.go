package servosim

import "edgert/rt"

// Event is something that happened to a servo: a write that it received, or a
// change that it made by itself. Config.Watch is called with each of them, in
// order, on the wire's goroutine with the bus's lock held: it must neither block
// nor call the bus, and must not keep what it is lent.
type Event struct {
	At          rt.Instant
	ID          uint8
	Addr        int    // first address of a write
	Data        []byte // bytes of a write, as they came; nil for a change
	NotReceived bool   // a write that was meant for it and that it did not hear
	Before      Snapshot
	After       Snapshot
}

// Snapshot is what a servo is at an instant, in its own registers' terms.
type Snapshot struct {
	Torque    bool
	Present   int // as a client would read it
	Goal      int // the goal register
	Aim       int // where that goal takes it: a Feetech servo holds a goal inside its EEPROM range
	Alarm     uint8
	Boots     uint32 // power-ups and reboots so far, the first one included
	Answers   bool   // it hears the client, and the client could hear it
	Unplugged bool   // the adapter is out
	EncoderOK bool   // no error bit reports its encoder
}

//rt:noalloc
func (s *servo) snapshot(now rt.Instant) Snapshot {
	aim, _ := s.goal()
	in := !s.rail.unplugged
	return Snapshot{
		Torque: s.mem[s.t.at.torque] == torqueOn, Present: s.present(s.encoderCount(now)),
		Goal: s.goalRegister(), Aim: aim, Alarm: s.alarm | s.forced, Boots: s.boots,
		Answers: !s.mute && !s.unpowered && now >= s.silentUntil && in, Unplugged: !in,
		EncoderOK: !s.encoderFault(),
	}
}

// encoderFault reports whether an error bit reports the encoder.
//
//rt:noalloc
func (s *servo) encoderFault() bool {
	switch bits := s.alarm | s.forced; {
	case s.t.series.feetech():
		return bits&faultEncoder != 0
	case s.t.series == seriesX:
		return bits&xFaultEncoder != 0
	}
	return false
}

//rt:noalloc
func (s *servo) goalRegister() int {
	v := s.get(s.t.at.goal)
	if s.t.series == seriesSTS {
		return magnitude(v, signPosition)
	}
	return int(v)
}

// emitWrite reports a write that has taken effect; s.event.Before was before it.
//
//rt:noalloc
func (s *servo) emitWrite(addr int, data []byte, now rt.Instant) {
	if s.cfg.Watch == nil {
		return
	}
	s.lastState = s.snapshot(now)
	s.emit(Event{At: now, Addr: addr, Data: data, Before: s.event.Before, After: s.lastState})
}

// emitUnheard reports a write that the servo does not hear.
//
//rt:noalloc
func (s *servo) emitUnheard(addr int, data []byte, now rt.Instant) {
	if s.cfg.Watch == nil || len(data) == 0 {
		return
	}
	is := s.snapshot(now)
	s.emit(Event{At: now, Addr: addr, Data: data, NotReceived: true, Before: is, After: is})
}

// emitChange reports a change that no write has made. What moves all the time,
// positions, is not one.
//
//rt:noalloc
func (s *servo) emitChange(now rt.Instant) {
	if s.cfg.Watch == nil || s.muteEvents {
		return
	}
	is, was := s.snapshot(now), s.lastState
	if was.Present = is.Present; is != was {
		was, s.lastState = s.lastState, is
		s.emit(Event{At: now, Before: was, After: is})
	}
}

//rt:noalloc
func (s *servo) emit(e Event) {
	s.event = e
	s.event.ID = s.mem[s.t.at.id]
	s.cfg.Watch(&s.event)
	s.event.Data = nil
}
