package servosim

import (
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/sim/motor"
)

// Event is a write that a servo received, or a change that it made by itself. Config.Watch is
// called with each event, in order, on the wire's goroutine with the bus's lock held: the function
// must neither block nor call the bus, and must not keep the event.
type Event struct {
	At          rt.Instant
	ID          uint8
	Addr        int    // first address of a write
	Data        []byte // bytes of a write, as received; nil for a change
	NotReceived bool   // the write was for this servo, but the servo did not receive it
	Before      Snapshot
	After       Snapshot
}

// Snapshot is the state of a servo at an instant, in the units of its own registers.
type Snapshot struct {
	Torque    bool
	Present   int // position that a client would read
	Goal      int // the goal register
	Aim       int // position to which the servo moves: the goal, which a Feetech limits to its EEPROM range
	Spin      int // goal velocity in counts per second of a Feetech in velocity mode; 0 in other modes
	Alarm     uint8
	Boots     uint32 // power-ups and reboots so far, including the first one
	Answers   bool   // the servo receives the client's bytes, and its replies reach the client
	Unplugged bool   // the adapter is out
	EncoderOK bool   // no error bit reports a fault of its encoder
}

//rt:noalloc
func (s *servo) snapshot(now rt.Instant) Snapshot {
	aim, _ := s.goal()
	in := !s.rail.unplugged
	spin := 0
	if s.spins() {
		spin = motor.Round(s.loop.SpeedGoal)
	}
	return Snapshot{
		Torque:    s.mem[s.at.torque] == torqueOn,
		Present:   s.present(s.encoderCount(now)),
		Goal:      s.goalRegister(),
		Aim:       aim,
		Spin:      spin,
		Alarm:     s.alarm | s.forced,
		Boots:     s.boots,
		Answers:   !s.mute && !s.unpowered && now >= s.silentUntil && in,
		Unplugged: !in,
		EncoderOK: !s.encoderFault(),
	}
}

// encoderFault reports whether an error bit reports a fault of the encoder.
//
//rt:noalloc
func (s *servo) encoderFault() bool {
	switch bits := s.alarm | s.forced; {
	case s.feetech():
		return bits&faultEncoder != 0
	case s.series == seriesX:
		return bits&xFaultEncoder != 0
	}
	return false
}

//rt:noalloc
func (s *servo) goalRegister() int {
	v := s.get(s.at.goal)
	if s.feetech() {
		return magnitude(v, signPosition)
	}
	return int(v)
}

// emitWrite reports a write that has taken effect; s.event.Before is the state before it.
//
//rt:noalloc
func (s *servo) emitWrite(addr int, data []byte, now rt.Instant) {
	if s.cfg.Watch == nil {
		return
	}
	s.lastState = s.snapshot(now)
	s.emit(Event{
		At:     now,
		Addr:   addr,
		Data:   data,
		Before: s.event.Before,
		After:  s.lastState,
	})
}

// emitUnheard reports a write to a servo that did not receive it.
//
//rt:noalloc
func (s *servo) emitUnheard(addr int, data []byte, now rt.Instant) {
	if s.cfg.Watch == nil || len(data) == 0 {
		return
	}
	is := s.snapshot(now)
	s.emit(Event{
		At:          now,
		Addr:        addr,
		Data:        data,
		NotReceived: true,
		Before:      is,
		After:       is,
	})
}

// emitChange reports a change that was not made by a write. It does not report a change of the
// position alone.
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
	s.event.ID = s.mem[s.at.id]
	s.cfg.Watch(&s.event)
	s.event.Data = nil
}
