package servosim

import "github.com/edge-rt/edge-rt/rt"

// write stores data at addr, applies it, and returns the code for the status packet. A Feetech servo refuses nothing:
// it skips read-only bytes and limits the others to their range. In these cases a Dynamixel refuses the whole write. A
// write below table.eeprom survives a power cycle; on a Feetech servo it does so only if the lock was open.
//
//rt:noalloc
func (s *servo) write(addr int, data []byte, now rt.Instant) uint8 {
	if s.cfg.Watch != nil {
		s.event.Before = s.snapshot(now)
	}
	if !s.feetech() {
		if code := s.check(addr, data); code != 0 {
			return code
		}
	}
	open := !s.feetech() || s.mem[s.at.lock] == 0 // when false, EEPROM writes are lost in a power cycle
	old := s.effects()
	from, to := s.size, 0 // range of the written registers
	for i, v := range data {
		a := s.indirect(addr + i)
		r := s.row(a)
		if r == nil || r.fixed() {
			continue
		}
		s.mem[a] = v
		from, to = min(from, int(r.addr)), max(to, int(r.addr)+int(r.size))
	}
	s.clampRanges(from, to)
	s.applyWrite(old, from, to, now)
	if open && from < s.eeprom && to > from {
		copy(s.flash[from:min(to, s.eeprom)], s.mem[from:min(to, s.eeprom)])
	}
	s.tune(now)
	s.emitWrite(addr, data, now)
	return 0
}

// before holds the values on which the effects of a write depend.
type before struct{ torque, id, baud, mode uint8 }

//rt:noalloc
func (s *servo) effects() before {
	at := &s.at
	b := before{torque: s.mem[at.torque], id: s.mem[at.id], baud: s.mem[at.baud]}
	if at.mode != none {
		b.mode = s.mem[at.mode]
	}
	return b
}

// clampRanges limits the written values of a Feetech servo to their registers' ranges.
//
//rt:noalloc
func (s *servo) clampRanges(from, to int) {
	for a := from; s.feetech() && a < to; a++ {
		r := s.row(a)
		if r == nil || int(r.addr) != a || r.lo >= r.hi || a == s.at.id || a == s.at.baud {
			continue
		}
		if v := s.load(&s.mem, r); v < r.lo || v > r.hi {
			s.put(a, min(max(v, r.lo), r.hi))
		}
	}
}

//rt:noalloc
func (s *servo) applyWrite(old before, from, to int, now rt.Instant) {
	at := &s.at
	covers := func(reg int) bool { return reg != none && from <= reg && reg < to }
	if s.mem[at.id] > idMax {
		s.mem[at.id] = old.id
	}
	if s.rate(s.mem[at.baud]) == 0 {
		s.mem[at.baud] = old.baud
	}
	if covers(at.mode) && s.mem[at.mode] != old.mode {
		s.changeMode(now)
	}
	if s.series == seriesX && covers(xWatchdog) {
		s.lastRequest = now
	}
	if covers(at.torque) {
		s.torque(old.torque, now)
	}
	switch limits := s.feetech() && (covers(at.minLimit) || covers(at.maxLimit)); {
	case covers(at.goal):
		s.follow(now)
	case limits && s.driven && s.positions():
		_, raw := s.goal()
		s.driveTo(now, raw) // the control loop limits its goal to the new range
	}
	if s.spins() && covers(stsGoalVelocity) {
		s.goalWakes(now)
	}
	if s.series == seriesAX && covers(axTorqueLimit) && s.get(axTorqueLimit) > 0 {
		s.alarm &^= axOverload
	}
}

//rt:noalloc
func (s *servo) torque(before uint8, now rt.Instant) {
	on := s.mem[s.at.torque]
	if on == torqueCentre && s.feetech() {
		s.mem[s.at.torque] = before
		s.readAs(centre, now)
		return
	}
	if on != torqueOn {
		s.setDriven(now, false)
		if s.feetech() {
			s.endOverload(now)
		}
		return
	}
	if before != torqueOn {
		if s.series == seriesX && s.mem[xMode] == xModePosition {
			s.turnOrigin = turnsOf(s.encoderCount(now))
		}
		_, raw := s.goal()
		s.goalAt = now
		s.driveTo(now, raw) // with a stale goal register the arm jumps
		s.setDriven(now, true)
	}
}

// readAs sets an STS's offset so that the shaft's place reads as a position.
//
//rt:noalloc
func (s *servo) readAs(position int, now rt.Instant) {
	off := (s.encoderCount(now)-position+centre)&4095 - centre
	s.put(stsOffset, signed(min(max(off, -(signOffset-1)), signOffset-1), signOffset))
	if s.mem[s.at.lock] == 0 {
		copy(s.flash[stsOffset:stsOffset+2], s.mem[stsOffset:stsOffset+2])
	}
}

// follow passes the goal register to the plant.
//
//rt:noalloc
func (s *servo) follow(now rt.Instant) {
	if s.feetech() && s.mem[s.at.mode] == modeStep {
		s.stepGoal = s.encoderCount(now) + magnitude(s.get(stsGoal), signPosition)
	}
	_, raw := s.goal()
	s.goalAt = now
	if s.positions() {
		s.driveTo(now, raw)
		if h := &s.health; s.cfg.OverloadYields && h.capped && float64(raw-s.encoderCount(now))*h.duty <= 0 {
			s.endOverload(now)
		}
	}
	s.goalWakes(now)
}

// goalWakes switches the torque on if this servo does so when it gets a goal.
//
//rt:noalloc
func (s *servo) goalWakes(now rt.Instant) {
	if (s.series == seriesAX || s.feetech() && !s.cfg.GoalLeavesTorque) &&
		s.mem[s.at.torque] != torqueOn && !s.cutsTorque() {
		s.mem[s.at.torque] = torqueOn
		s.setDriven(now, true)
	}
}

// positions reports whether the servo moves to its goal position.
//
//rt:noalloc
func (s *servo) positions() bool {
	switch s.series {
	case seriesSTS:
		return s.mem[s.at.mode] == modePosition || s.mem[s.at.mode] == modeStep
	case seriesX:
		m := s.mem[xMode]
		return m == xModePosition || m == xModeExtended || m == xModeCurrentPos
	}
	return true
}

// spins reports whether the servo turns at a goal velocity: it is a Feetech in velocity mode.
//
//rt:noalloc
func (s *servo) spins() bool { return s.feetech() && s.mem[s.at.mode] == modeVelocity }

// check returns the code with which a Dynamixel refuses a write; 0 when it accepts the write.
//
//rt:noalloc
func (s *servo) check(addr int, data []byte) uint8 {
	end := addr + len(data)
	next := s.mem
	for a := addr; a < end; a++ {
		p := s.indirect(a)
		r := s.row(p)
		if r == nil || r.fixed() || p >= s.size || !s.has(p) {
			return s.code(resultAccess, axRange)
		}
		if p == a && (int(r.addr) < addr || int(r.addr)+int(r.size) > end) {
			return s.code(resultLength, axRange)
		}
		if p < s.eeprom && (s.series == seriesX && s.mem[xTorque] != 0 || s.series == seriesAX &&
			s.mem[s.at.lock] != 0) {
			return s.code(resultAccess, axInstruction)
		}
		next[p] = data[a-addr]
	}
	for a := addr; a < end; a++ {
		r := s.row(s.indirect(a))
		v := s.load(&next, r)
		switch {
		case r.lo != r.hi && (v < r.lo || v > r.hi):
			return s.code(resultRange, axRange)
		case s.series == seriesAX && (int(r.addr) == s.at.baud && s.rate(uint8(v)) == 0 ||
			int(r.addr) == s.at.lock && v == 0 && s.mem[s.at.lock] != 0):
			return axRange
		case s.series == seriesAX && int(r.addr) == axGoal && s.beyond(v):
			return axAngle
		case s.series == seriesX:
			if code := s.checkX(int(r.addr), v, &next); code != 0 {
				return code
			}
		}
	}
	return 0
}

// code returns the result code of a refused write: x for an X servo, ax for an AX servo.
//
//rt:noalloc
func (s *servo) code(x, ax uint8) uint8 {
	if s.series == seriesX {
		return x
	}
	return ax
}

// has reports whether this model has the register: some X servos have no current control.
//
//rt:noalloc
func (s *servo) has(addr int) bool {
	return s.series != seriesX || s.model.amp > 0 || addr != xLimitCurrent && addr != xLimitCurrent+1 &&
		addr != xGoalCurrent && addr != xGoalCurrent+1
}

//rt:noalloc
func (s *servo) beyond(v int64) bool {
	lo, hi := s.get(s.at.minLimit), s.get(s.at.maxLimit)
	return (lo != 0 || hi != 0) && (v < lo || v > hi)
}

// checkX returns the code with which an X servo refuses one register's value; 0 when it accepts the
// value.
//
//rt:noalloc
func (s *servo) checkX(addr int, v int64, next *[memSize]byte) uint8 {
	limit := func(reg int) int64 { return s.load(next, s.row(reg)) }
	beyond := false
	switch addr {
	case xMode:
		switch v {
		case xModeVelocity, xModePosition, xModeExtended, xModePWM:
		case xModeCurrent, xModeCurrentPos:
			if s.model.amp == 0 {
				return resultRange
			}
		default:
			return resultRange
		}
	case xTorque:
		if v == 1 && s.cutsTorque() {
			return resultFail
		}
	case xGoalPWM:
		beyond = max(v, -v) > limit(xLimitPWM)
	case xGoalCurrent:
		beyond = max(v, -v) > limit(xLimitCurrent)
	case xGoalVelocity:
		beyond = max(v, -v) > limit(xLimitVelocity)
	case xGoal:
		beyond = s.mem[xMode] == xModePosition && s.beyond(v)
	case xAcceleration, xProfile:
	default:
		return 0
	}
	switch {
	case addr != xMode && addr != xTorque && s.mem[xWatchdog] == watchdogFired:
		return resultRange
	case beyond:
		return resultLimit
	}
	return 0
}
