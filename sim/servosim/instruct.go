package servosim

import (
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

// obey executes one request and appends the data of its reply to dst. code is the result code in
// the status packet. answers is true when the return level lets the servo reply.
//
//rt:noalloc
func (s *servo) obey(r *request, dst []byte, now rt.Instant) (data []byte, code uint8, answers bool) {
	s.monitor(now)
	answers = s.answers(r) // the return level from before the request decides, because the request may change the level
	switch r.inst {
	case instPing:
		if s.series == seriesX {
			dst = append(dst, s.mem[0], s.mem[1], s.mem[xFirmware])
		}
	case instRead:
		dst, code = s.answer(dst, r.addr, r.size, now)
		s.spoilPosition(r, dst)
	case instWrite:
		code = s.write(r.addr, r.data, now)
	case instRegWrite:
		code = s.stage(r.addr, r.data)
	case instAction:
		switch {
		case s.stagedSize > 0:
			code = s.write(s.stagedAddr, s.staged[:s.stagedSize], now)
		case s.series == seriesAX:
			code = axInstruction
		}
		s.stagedSize = 0
		s.put(s.at.registered, 0)
	default:
		code = s.special(r, now)
	}
	return dst, code, answers
}

// answers reports whether the return level lets the servo reply.
//
//rt:noalloc
func (s *servo) answers(r *request) bool {
	reads := r.inst == instPing || r.inst == instRead
	if r.inst == instReboot && s.feetech() {
		return false
	}
	level := s.mem[s.at.returnLevel]
	if s.feetech() {
		return reads || level != 0
	}
	return r.inst == instPing || reads && level >= 1 || level >= 2
}

// answer appends the data of a read to dst and returns the result code. A Dynamixel refuses a read
// of memory that it does not have.
//
//rt:noalloc
func (s *servo) answer(dst []byte, addr, size int, now rt.Instant) ([]byte, uint8) {
	if s.feetech() {
		return s.read(dst, addr, min(size, dataMax), now), 0
	}
	if size == 0 || addr+size > s.size {
		return dst, s.code(resultAccess, axRange)
	}
	known := false
	for a := addr; a < addr+size; a++ {
		known = known || s.row(a) != nil && s.has(a)
	}
	if !known {
		return dst, s.code(resultAccess, axRange)
	}
	return s.read(dst, addr, size, now), 0
}

// stage keeps a write until the next ACTION instruction. A second write replaces the first.
//
//rt:noalloc
func (s *servo) stage(addr int, data []byte) uint8 {
	if !s.feetech() {
		if code := s.check(addr, data); code != 0 {
			return code
		}
	}
	s.stagedAddr, s.stagedSize = addr, copy(s.staged[:], data)
	s.put(s.at.registered, 1)
	return 0
}

// special executes a reboot, a factory reset, or an instruction that only the servos of one maker have.
//
//rt:noalloc
func (s *servo) special(r *request, now rt.Instant) uint8 {
	switch {
	case r.inst == instReboot:
		s.reboot(now)
	case r.inst == instFactoryReset:
		return s.factoryReset(r, now)
	case r.inst == instPlace && s.feetech() && len(r.data) == 2:
		s.readAs(number(r.data, 2), now)
	case r.inst != instClear || s.series != seriesX:
		return axInstruction // bulk instructions are executed elsewhere
	case string(r.data) != magicClear || s.mem[s.at.moving] != 0:
		return resultFail
	default:
		raw := s.encoderCount(now)
		s.turnOrigin = turnsOf(raw)
		s.put(xGoal, int64(s.present(raw)))
		s.follow(now)
	}
	return 0
}

// factoryReset sets the factory values. An AX servo also resets its id. For an X servo the
// request's parameter selects the registers that it keeps.
//
//rt:noalloc
func (s *servo) factoryReset(r *request, now rt.Instant) uint8 {
	const all, keepID, keepIDAndBaud = 0xFF, 1, 2
	id, baud := uint8(1), uint8(1) // code 1 is 1 Mbit/s for an AX and 57,600 bit/s for an X
	if s.series == seriesX {
		if len(r.data) != 1 {
			return resultLength
		}
		switch r.data[0] {
		case all:
			if r.id == broadcast {
				return resultFail
			}
		case keepID:
			id = s.mem[s.at.id]
		case keepIDAndBaud:
			id, baud = s.mem[s.at.id], s.mem[s.at.baud]
		default:
			return resultRange
		}
	}
	s.factory(id, baud)
	s.restart(now)
	return 0
}

// magicClear is the parameter that a request to clear turns must have, so that a damaged packet
// does not clear them.
const magicClear = "\x01\x44\x58\x4C\x22" // 01, DXL, 22

//rt:noalloc
func (s *servo) changeMode(now rt.Instant) {
	raw := s.encoderCount(now)
	if s.series != seriesX {
		s.stepGoal = raw
		return
	}
	if m := s.mem[xMode]; m != xModeExtended && m != xModeCurrentPos {
		s.turnOrigin = turnsOf(raw)
	}
	s.resetGoals()
	for i := range s.model.factory {
		if a := s.model.factory[i].addr; a >= xVelocityI && a <= xPositionP {
			s.put(a, s.model.factory[i].value)
		}
	}
	s.put(xGoal, int64(s.present(raw)))
}

// resetGoals sets an X servo's goals, except the goal position, and its profile to their initial values.
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

// expire does the servo's work that is due: it ends a boot, and lets an X servo's bus watchdog act
// when the bus was silent for the watchdog's timeout. The watchdog stops the shaft under torque,
// and goals are refused until the watchdog is cleared.
//
//rt:noalloc
func (s *servo) expire(now rt.Instant) {
	if s.booting && now >= s.silentUntil {
		s.bootDone(now)
	}
	if at, armed := s.watchdog(); armed && now >= at {
		s.mem[xWatchdog] = watchdogFired
		s.driveTo(now, s.encoderCount(now))
		s.tune(now)
	}
}

//rt:noalloc
func (s *servo) watchdog() (at rt.Instant, armed bool) {
	if s.series != seriesX {
		return 0, false
	}
	n := s.mem[xWatchdog]
	return s.lastRequest.Add(time.Duration(n) * watchdogUnit), n > 0 && n != watchdogFired && s.mem[xTorque] == torqueOn
}

// misread is a wrong position in a damaged reply whose checksum still fits. This happens in one of
// 256 damaged replies. It has no effect on the shaft or the servo's own control loop.
type misread struct {
	left   int // number of replies still to damage; -1: no limit
	offset int // counts
}

// spoilPosition applies the misread to the reply if the request reads only the position.
//
//rt:noalloc
func (s *servo) spoilPosition(r *request, reply []byte) {
	at, size := s.at.present, 0
	if row := s.row(at); row != nil {
		size = int(row.size)
	}
	if s.misread.left == 0 || r.addr != at || r.size != size || len(reply) < size {
		return
	}
	if s.misread.left > 0 {
		s.misread.left--
	}
	is := s.get(at)
	s.put(at, is+int64(s.misread.offset))
	copy(reply, s.mem[at:at+size])
	s.put(at, is)
}
