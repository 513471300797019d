package servosim

import (
	"time"

	"edgert/rt"
)

// servo is one STS3215 in position mode, as seen from the bus. What its shaft
// does is the plant's business.
//
// Guarded by Bus.mu.
type servo struct {
	cfg   *Config
	joint int

	mem   [memSize]byte // what the bus sees
	flash [memSize]byte // what survives a power cycle; the first eepromEnd bytes count

	staged     [lengthMax]byte // a registered write that waits for its action
	stagedAddr uint8
	stagedSize int

	fault  uint8 // the error bits of every status packet
	faults script

	// The last measurement, for the present velocity.
	measuredAt rt.Instant
	measured   int
	velocity   int // counts per second
}

const (
	velocityWindow = time.Millisecond // measurements closer than this keep the old velocity
	velocityMax    = 3400             // counts per second
	delayUnit      = 2 * time.Microsecond
	baudTolerance  = 40 // one part in it: 2.5 %
)

// powerUp makes s what the factory ships, with this id and the bus's baud rate.
func (s *servo) powerUp(cfg *Config, joint int, id uint8, now rt.Instant) {
	*s = servo{cfg: cfg, joint: joint}
	for _, r := range table {
		s.flash[r.addr] = byte(r.factory)
		if r.size == 2 {
			s.flash[r.addr+1] = byte(r.factory >> 8)
		}
	}
	s.flash[regID] = id
	s.flash[regModel], s.flash[regModel+1] = byte(cfg.Model), byte(cfg.Model>>8)
	for code, baud := range bauds {
		if baud == cfg.Baud {
			s.flash[regBaud] = byte(code)
		}
	}
	s.restart(now)
}

// restart is a power cycle: settings come back from flash, torque is off, and
// the goal is where the shaft is.
func (s *servo) restart(now rt.Instant) {
	s.mem = s.flash
	s.stagedSize = 0
	s.setWord(regTorqueLimit, s.word(regMaxTorque))
	s.setWord(regGoalVelocity, velocityMax)
	s.cfg.Plant.Torque(now, s.joint, false)
	s.measured, s.measuredAt, s.velocity = s.cfg.Plant.Present(now, s.joint), now, 0
	s.refresh(now)
	s.setWord(regGoal, s.word(regPresent))
	s.refresh(now)
}

// hears reports whether the servo is there and listens at this baud rate.
//
//rt:noalloc
func (s *servo) hears(baud int) bool {
	own := bauds[s.mem[regBaud]]
	off := baud - own
	return !s.faults.mute && off*baudTolerance <= own && -off*baudTolerance <= own
}

// delay is how long the servo waits before its reply.
//
//rt:noalloc
func (s *servo) delay() time.Duration {
	if s.cfg.Unpaced {
		return 0
	}
	return s.cfg.Turnaround + time.Duration(s.mem[regReturnDelay])*delayUnit
}

// obey executes one request and appends the data of its reply. answers follows
// the return level: at 0 only pings and reads are answered.
//
//rt:noalloc
func (s *servo) obey(r request, dst []byte, now rt.Instant) (data []byte, answers bool) {
	answers = s.mem[regReturnLevel] != 0
	switch r.inst {
	case instPing:
		return dst, true
	case instRead:
		return s.read(dst, r.params[0], r.params[1], now), true
	case instWrite:
		s.write(r.params[0], r.params[1:], now)
	case instRegWrite:
		s.stagedAddr = r.params[0]
		s.stagedSize = copy(s.staged[:], r.params[1:])
		s.mem[regAsync] = 1
	case instAction:
		if s.stagedSize > 0 {
			s.write(s.stagedAddr, s.staged[:s.stagedSize], now)
		}
		s.stagedSize, s.mem[regAsync] = 0, 0
	case instReset:
		// It clears the count of turns, of which this servo has none.
	}
	return dst, answers
}

// read appends size bytes of memory from addr on; beyond its end there are zeros.
//
//rt:noalloc
func (s *servo) read(dst []byte, addr, size uint8, now rt.Instant) []byte {
	from, to := int(addr), int(addr)+min(int(size), dataMax)
	if from < liveEnd && to > regPresent {
		s.refresh(now)
	}
	for a := from; a < to; a++ {
		var v byte
		if a < memSize {
			v = s.mem[a]
		}
		dst = append(dst, v)
	}
	return dst
}

// refresh measures: position, velocity, movement, status.
//
//rt:noalloc
func (s *servo) refresh(now rt.Instant) {
	raw := s.cfg.Plant.Present(now, s.joint)
	if since := now.Sub(s.measuredAt); since >= velocityWindow {
		s.velocity = int(int64(raw-s.measured) * int64(time.Second) / int64(since))
		s.measured, s.measuredAt = raw, now
	}
	present := raw - s.offset()
	if s.mem[regPhase]&phaseTurns == 0 {
		present &= countMax
	}
	s.setWord(regPresent, signed(present, signPosition))
	s.setWord(regVelocity, signed(s.velocity, signPosition))
	s.mem[regStatus] = s.fault
	goal, goalRaw := s.goal()
	s.setWord(regGoalReadback, signed(goal, signPosition))
	s.mem[regMoving] = 0
	if off := goalRaw - raw; s.mem[regTorque] == torqueOn && (off > 1 || off < -1) {
		s.mem[regMoving] = 1
	}
}

// goal returns the goal position held inside the limits, in the client's counts
// and in the encoder's.
//
//rt:noalloc
func (s *servo) goal() (goal, raw int) {
	goal = magnitude(s.word(regGoal), signPosition)
	lo, hi := int(s.word(regMinLimit)), int(s.word(regMaxLimit))
	if lo != 0 || hi != 0 {
		goal = min(max(goal, lo), hi)
	}
	raw = goal + s.offset()
	if s.mem[regPhase]&phaseTurns == 0 {
		raw &= countMax
	}
	return goal, min(max(raw, 0), countMax)
}

// offset is what the servo subtracts from its encoder.
//
//rt:noalloc
func (s *servo) offset() int { return magnitude(s.word(regOffset)&(2*signOffset-1), signOffset) }

//rt:noalloc
func (s *servo) word(addr int) uint16 { return uint16(s.mem[addr]) | uint16(s.mem[addr+1])<<8 }

//rt:noalloc
func (s *servo) setWord(addr int, v uint16) { s.mem[addr], s.mem[addr+1] = byte(v), byte(v>>8) }

// signed encodes v by sign and magnitude.
//
//rt:noalloc
func signed(v int, sign uint16) uint16 {
	if v < 0 {
		return sign | uint16(-v)&(sign-1)
	}
	return uint16(v) & (sign - 1)
}

// magnitude decodes what signed encodes.
//
//rt:noalloc
func magnitude(w, sign uint16) int {
	if w&sign != 0 {
		return -int(w &^ sign)
	}
	return int(w)
}
