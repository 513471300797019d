package servosim

import "edgert/rt"

// Event is something that happened to a servo: a write that it received, or a
// change that it made by itself. Whoever watches a bus gets each of them, in
// order, on the wire's goroutine with the bus's lock held: it must neither block
// nor call the bus, and keeps nothing of what it is lent.
type Event struct {
	At      rt.Instant
	ID      uint8
	Addr    int    // of a write
	Data    []byte // of a write, as it came; nil for a change
	Unheard bool   // a write that was meant for it and that it did not hear
	Before  Snapshot
	After   Snapshot
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
	EncoderOK bool   // it does not say that its encoder lies
}

// snapshot is what the servo is now.
//
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

// encoderFault reports whether the servo says that its encoder lies.
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

// goalRegister is the goal as it was written.
//
//rt:noalloc
func (s *servo) goalRegister() int {
	v := s.get(s.t.at.goal)
	if s.t.series == seriesSTS {
		return magnitude(v, signPosition)
	}
	return int(v)
}

// beforeWrite keeps what a servo is before a write.
//
//rt:noalloc
func (s *servo) beforeWrite(now rt.Instant) {
	if s.cfg.Watch != nil {
		s.event.Before = s.snapshot(now)
	}
}

// emitWrite reports a write that has taken effect.
//
//rt:noalloc
func (s *servo) emitWrite(addr int, data []byte, now rt.Instant) {
	if s.cfg.Watch == nil {
		return
	}
	e := &s.event
	e.At, e.ID, e.Addr, e.Data, e.After = now, s.mem[s.t.at.id], addr, data, s.snapshot(now)
	s.lastState = e.After
	s.cfg.Watch(e)
	e.Data = nil
}

// emitUnheard reports a write that the servo does not hear.
//
//rt:noalloc
func (s *servo) emitUnheard(addr int, data []byte, now rt.Instant) {
	if s.cfg.Watch == nil || len(data) == 0 {
		return
	}
	e := &s.event
	is := s.snapshot(now)
	e.At, e.ID, e.Addr, e.Data, e.Unheard, e.Before, e.After = now, s.mem[s.t.at.id], addr, data, true, is, is
	s.cfg.Watch(e)
	e.Data, e.Unheard = nil, false
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
	was.Present = is.Present
	if is == was {
		return
	}
	e := &s.event
	e.At, e.ID, e.Addr, e.Data, e.Before, e.After = now, s.mem[s.t.at.id], 0, nil, s.lastState, is
	s.lastState = is
	s.cfg.Watch(e)
}

// emitChanges does so for every servo. Guarded by mu.
//
//rt:noalloc
func (b *Bus) emitChanges(now rt.Instant) {
	if b.cfg.Watch == nil {
		return
	}
	for i := range b.servos {
		b.servos[i].emitChange(now)
	}
}
