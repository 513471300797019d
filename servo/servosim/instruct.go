package servosim

import (
	"time"

	"edgert/rt"
)

// obey executes one request and appends the data of its reply. code is the
// result for the status packet; answers follows the return level.
//
//rt:noalloc
func (s *servo) obey(r *request, dst []byte, now rt.Instant) (data []byte, code uint8, answers bool) {
	s.monitor(now)
	answers = s.answers(r) // at the level so far
	switch r.inst {
	case instPing:
		if s.t.series == seriesX {
			dst = append(dst, s.mem[0], s.mem[1], s.mem[xFirmware])
		}
	case instRead:
		dst, code = s.answer(dst, r.addr, r.size, now)
	case instWrite:
		code = s.write(r.addr, r.data, now)
	case instRegWrite:
		code = s.stage(r.addr, r.data)
	case instAction:
		switch {
		case s.stagedSize > 0:
			code = s.write(s.stagedAddr, s.staged[:s.stagedSize], now)
		case s.t.series == seriesAX:
			code = axInstruction
		}
		s.stagedSize = 0
		s.put(s.t.at.registered, 0)
	default:
		code = s.special(r, now)
	}
	return dst, code, answers
}

// answers says whether the return level lets the servo reply.
//
//rt:noalloc
func (s *servo) answers(r *request) bool {
	reads := r.inst == instPing || r.inst == instRead
	if r.inst == instReboot && s.t.series.feetech() {
		return false
	}
	level := s.mem[s.t.at.returnLevel]
	if s.t.series.feetech() {
		return reads || level != 0
	}
	return r.inst == instPing || reads && level >= 1 || level >= 2
}

// answer appends what a read asks for. A Dynamixel has nothing to say about
// memory that it does not have.
//
//rt:noalloc
func (s *servo) answer(dst []byte, addr, size int, now rt.Instant) ([]byte, uint8) {
	if s.t.series.feetech() {
		return s.read(dst, addr, min(size, dataMax), now), 0
	}
	if size == 0 || addr+size > s.t.size {
		return dst, s.code(resultAccess, axRange)
	}
	known := false
	for a := addr; a < addr+size; a++ {
		known = known || s.t.row(a) != nil && s.has(a)
	}
	if !known {
		return dst, s.code(resultAccess, axRange)
	}
	return s.read(dst, addr, size, now), 0
}

// stage keeps a write for the next action; a second one takes the first one's
// place.
//
//rt:noalloc
func (s *servo) stage(addr int, data []byte) uint8 {
	if !s.t.series.feetech() {
		if code := s.check(addr, data); code != 0 {
			return code
		}
	}
	s.stagedAddr, s.stagedSize = addr, copy(s.staged[:], data)
	s.put(s.t.at.registered, 1)
	return 0
}

// special executes what only one maker's servos know.
//
//rt:noalloc
func (s *servo) special(r *request, now rt.Instant) uint8 {
	switch {
	case s.t.series == seriesX:
		return s.specialX(r, now)
	case s.t.series == seriesAX && r.inst != instRecovery:
		return axInstruction // all that follows is Feetech's
	}
	switch r.inst {
	case instRecovery:
		id := s.mem[s.t.at.id]
		switch {
		case s.t.series == seriesAX:
			s.factory(1, 1) // it forgets its id too
		case s.locked():
			return 0
		default:
			s.flash = s.store
			s.flash[s.t.at.id] = id
		}
		s.wear++
		s.restart(now)
	case instReboot:
		s.reboot(now)
	case instStore:
		s.store = s.flash
		s.wear++
	case instReset:
		// The count of turns is the plant's.
	case instCalibrate:
		place := centre
		if len(r.data) == 2 {
			place = number(r.data, 2) & 4095
		}
		s.centre(place, now)
	}
	return 0
}

// The magic words of protocol 2.0, which keep a corrupt packet from doing harm.
const (
	magicClear  = "\x01\x44\x58\x4C\x22" // 01 DXL 22
	magicBackup = "\x43\x54\x52\x4C"     // CTRL
)

//rt:noalloc
func (s *servo) specialX(r *request, now rt.Instant) uint8 {
	switch r.inst {
	case instReboot:
		s.reboot(now)
	case instRecovery:
		return s.factoryReset(r, now)
	case instClear:
		if !same(r.data, magicClear) || s.mem[s.t.at.moving] != 0 {
			return resultFail
		}
		raw := s.seen(now)
		s.origin = turnsOf(raw)
		s.put(xGoal, int64(s.present(raw)))
		s.follow(now)
	case instBackup:
		switch {
		case s.mem[xTorque] != 0 || len(r.data) != 5 || !same(r.data[1:], magicBackup):
			return resultFail
		case r.data[0] == 1:
			s.store, s.stored = s.mem, true
			s.wear++
		case r.data[0] == 2 && s.stored:
			id, baud := s.mem[s.t.at.id], s.mem[s.t.at.baud]
			s.mem = s.store
			s.mem[s.t.at.id], s.mem[s.t.at.baud] = id, baud
			s.save(0, s.t.eeprom)
		default:
			return resultFail
		}
	}
	return 0
}

//rt:noalloc
func same(b []byte, word string) bool {
	if len(b) != len(word) {
		return false
	}
	for i := range b {
		if b[i] != word[i] {
			return false
		}
	}
	return true
}

// factoryReset of an X servo keeps as much as its one parameter says.
//
//rt:noalloc
func (s *servo) factoryReset(r *request, now rt.Instant) uint8 {
	const all, butID, butIDAndBaud = 0xFF, 1, 2
	if len(r.data) != 1 {
		return resultLength
	}
	id, baud := uint8(1), uint8(1) // 57,600
	switch r.data[0] {
	case all:
		if r.id == broadcast {
			return resultFail
		}
	case butID:
		id = s.mem[s.t.at.id]
	case butIDAndBaud:
		id, baud = s.mem[s.t.at.id], s.mem[s.t.at.baud]
	default:
		return resultRange
	}
	s.factory(id, baud)
	s.wear++
	s.restart(now)
	return 0
}

// changeMode does what a new operating mode brings with it.
//
//rt:noalloc
func (s *servo) changeMode(now rt.Instant) {
	raw := s.seen(now)
	if s.t.series != seriesX {
		s.health.stepTo = raw
		return
	}
	if m := s.mem[xMode]; m != xModeExtended && m != xModeCurrentPos {
		s.origin = turnsOf(raw)
	}
	s.resetGoals()
	for i := range s.model.factory {
		if a := s.model.factory[i].addr; a >= xVelocityI && a <= xPositionP {
			s.put(a, s.model.factory[i].value)
		}
	}
	s.put(xGoal, int64(s.present(raw)))
}

// resetGoals sets an X servo's goals and gains to what its mode begins with.
//
//rt:noalloc
func (s *servo) resetGoals() {
	s.put(xGoalPWM, s.get(xLimitPWM))
	if s.model.amp > 0 {
		s.put(xGoalCurrent, s.get(xLimitCurrent))
	}
	s.put(xGoalVelocity, s.get(xLimitVelocity))
	s.put(xAcceleration, 0)
	s.put(xProfile, 0)
}

// expire does what is due: it ends a boot, and fires an X servo's bus watchdog if
// nothing was heard for its time: the shaft stops, still under torque, and goals
// are refused until it is cleared.
//
//rt:noalloc
func (s *servo) expire(now rt.Instant) {
	if s.booting && now >= s.deaf {
		s.wake(now)
	}
	if at, armed := s.watchdog(); armed && now >= at {
		s.mem[xWatchdog] = watchdogFired
		s.aim(now, s.seen(now))
		s.tune(now)
	}
}

// watchdog returns when the bus watchdog will fire.
//
//rt:noalloc
func (s *servo) watchdog() (at rt.Instant, armed bool) {
	if s.t.series != seriesX {
		return 0, false
	}
	n := s.mem[xWatchdog]
	return s.feed.Add(time.Duration(n) * watchdogUnit), n > 0 && n != watchdogFired && s.mem[xTorque] == torqueOn
}
