package servosim

import (
	"time"

	"edgert/rt"
)

// servo is one motor as seen from the bus. What its shaft does is the plant's
// business.
//
// Guarded by Bus.mu.
type servo struct {
	cfg   *Config
	model *model
	t     *table
	rail  *rail
	joint int

	mem   [memSize]byte // what the bus sees
	flash [memSize]byte // what survives a power cycle; the first t.eeprom bytes count
	store [memSize]byte // what a recovery or a restore brings back
	pin   [memSize]pin  // bytes that a stuck sensor holds, whatever is measured

	staged     [memSize]byte // a registered write that waits for its action
	stagedAddr int
	stagedSize int

	forced uint8  // error bits that a test has set; they change nothing but the status
	alarm  uint8  // error bits that the servo itself sees; X: latched
	faults script // what a test has in store
	wear   uint32 // writes to flash
	deaf   rt.Instant
	dead   bool // the supply is too low to run
	stored bool
	feed   rt.Instant // X: the last instruction on the bus
	origin int        // X: counts of the turns that were forgotten
	health health

	boots   uint32
	booting bool
	event   Event // lent to Config.Watch
	told    Life  // by its newest event

	// The last measurement, for the present velocity.
	measuredAt rt.Instant
	measured   int
	velocity   int        // counts per second
	ordered    rt.Instant // when it was last told to move
}

type pin struct {
	stuck bool
	value byte
}

const (
	velocityWindow = time.Millisecond      // measurements closer than this keep the old velocity
	seldom         = 50 * time.Millisecond // and those farther apart say nothing of now
	speedMax       = 3400                  // counts per second, of an STS
	delayUnit      = 2 * time.Microsecond
	baudTolerance  = 40 // one part in it: 2.5 %
	watchdogUnit   = 20 * time.Millisecond
	setOff         = 50 * time.Millisecond // after an order, until a shaft that stands counts as not moving
	watchdogFired  = 0xFF
)

// powerUp makes s what the factory ships, with this id and the bus's baud rate.
func (s *servo) powerUp(cfg *Config, rail *rail, joint int, now rt.Instant) {
	m := cfg.models[joint]
	*s = servo{cfg: cfg, rail: rail, model: m, t: m.table, joint: joint}
	s.health.celsius, s.health.at = ambient, now
	s.health.volts = m.motor.volts
	s.factory(cfg.Servos[joint].ID, cfg.codes[joint])
	s.store = s.flash
	s.restart(now)
}

// factory fills flash.
//
//rt:noalloc
func (s *servo) factory(id, baud uint8) {
	mem := s.mem
	for i := range s.t.rows {
		r := &s.t.rows[i]
		s.put(int(r.addr), r.factory)
	}
	for _, f := range s.model.factory {
		s.put(f.addr, f.value)
	}
	s.put(s.t.at.model, int64(s.model.number))
	switch s.t.series {
	case seriesX:
		s.put(xFirmware, int64(s.model.firmware[0]))
	case seriesAX:
		s.put(2, int64(s.model.firmware[0]))
	default:
		s.put(0, int64(s.model.firmware[0]))
		s.put(1, int64(s.model.firmware[1]))
	}
	s.put(s.t.at.id, int64(id))
	s.put(s.t.at.baud, int64(baud))
	s.flash, s.mem = s.mem, mem
}

// restart is a power cycle: settings come back from flash, torque is off, the
// turns are forgotten, and the goal is where the shaft is.
//
//rt:noalloc
func (s *servo) restart(now rt.Instant) {
	s.boots++
	s.booting = true
	s.mem = s.flash
	s.stagedSize, s.alarm, s.dead = 0, 0, false
	s.health.capped, s.health.overSince, s.health.surgeSince = false, 0, 0
	s.feed = now
	s.cfg.Plant.Torque(now, s.joint, false)
	s.measured, s.measuredAt, s.velocity = s.cfg.Plant.Present(now, s.joint), now, 0
	switch s.t.series {
	case seriesSTS:
		s.put(stsTorqueLimit, s.get(stsMaxTorque))
		s.put(stsGoalVelocity, speedMax)
	case seriesAX:
		s.put(axTorqueLimit, s.get(axMaxTorque))
	case seriesX:
		s.origin = turnsOf(s.measured)
		s.resetGoals()
	}
	s.refresh(now)
	s.copy(s.t.at.goal, s.t.at.present)
	s.refresh(now)
	s.tune(now)
	s.booting = false
	s.look(now)
}

// hears reports whether the servo is there at an instant and listens at this
// baud rate.
//
//rt:noalloc
func (s *servo) hears(baud int, now rt.Instant) bool {
	own := s.t.rate(s.mem[s.t.at.baud])
	off := baud - own
	return !s.faults.mute && !s.dead && now >= s.deaf && off*baudTolerance <= own && -off*baudTolerance <= own
}

// named reports whether an id means this servo, and whether it answers to it: an
// X servo also obeys its secondary id, in silence.
//
//rt:noalloc
func (s *servo) named(id uint8) (obeys, answers bool) {
	if s.mem[s.t.at.id] == id {
		return true, true
	}
	return s.t.series == seriesX && id <= idMax && s.mem[xSecondID] == id, false
}

// delay is how long the servo waits before its reply.
//
//rt:noalloc
func (s *servo) delay() time.Duration {
	if s.cfg.Unpaced {
		return 0
	}
	return s.cfg.Turnaround + time.Duration(s.mem[s.t.at.returnDelay])*delayUnit
}

// error is the error byte of a status packet; code is the result of the
// instruction.
//
//rt:noalloc
func (s *servo) error(code uint8) uint8 {
	if s.t.series != seriesX {
		return s.forced | s.alarm | code
	}
	if s.forced|s.alarm != 0 {
		code |= alert
	}
	return code
}

// get returns a register's value, X's with its sign.
//
//rt:noalloc
func (s *servo) get(addr int) int64 {
	r := s.t.row(addr)
	if r == nil {
		return 0
	}
	return s.t.load(&s.mem, r)
}

//rt:noalloc
func (t *table) load(mem *[memSize]byte, r *register) (v int64) {
	for i := range int(r.size) {
		k := i
		if !t.bigEndian {
			k = int(r.size) - 1 - i
		}
		v = v<<8 | int64(mem[int(r.addr)+k])
	}
	if t.series == seriesX && r.signed() {
		shift := 64 - 8*uint(r.size)
		v = v << shift >> shift
	}
	return v
}

// signed reports whether a register of two's complement may be negative.
//
//rt:noalloc
func (r *register) signed() bool {
	return r.lo < 0 || r.access == ro && r.size == 4 || r.addr == xPresentPWM || r.addr == xPresentLoad
}

//rt:noalloc
func (s *servo) put(addr int, v int64) {
	r := s.t.row(addr)
	if r == nil {
		return
	}
	for i := range int(r.size) {
		k := i
		if s.t.bigEndian {
			k = int(r.size) - 1 - i
		}
		s.mem[int(r.addr)+k] = byte(v >> (8 * i))
	}
}

// copy sets one register to what another holds.
//
//rt:noalloc
func (s *servo) copy(to, from int) {
	n := int(s.t.row(to).size)
	copy(s.mem[to:to+n], s.mem[from:from+n])
}

// signed encodes v by sign and magnitude.
//
//rt:noalloc
func signed(v int, sign uint16) int64 {
	if v < 0 {
		return int64(sign | uint16(-v)&(sign-1))
	}
	return int64(uint16(v) & (sign - 1))
}

// magnitude decodes what signed encodes.
//
//rt:noalloc
func magnitude(w int64, sign uint16) int {
	if uint16(w)&sign != 0 {
		return -int(uint16(w) & (sign - 1))
	}
	return int(uint16(w) & (sign - 1))
}
