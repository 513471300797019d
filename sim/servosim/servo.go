package servosim

import (
	"slices"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/sim/motor"
)

// servo is one servo, as the bus sees it. The plant moves its shaft.
//
// Guarded by Bus.mu.
type servo struct {
	*table
	cfg    *Config
	model  *model
	rail   *rail
	joint  int
	motors *motor.Fitted // fitted motors, among them the servo's own; nil: the plant moves the shaft

	mem   [memSize]byte // memory that the bus sees
	flash [memSize]byte // memory that survives a power cycle; only the first table.eeprom bytes are used
	pin   [memSize]pin  // bytes whose value a stuck sensor fixes

	staged     [memSize]byte // a registered write that waits for its action
	stagedAddr int
	stagedSize int

	forced      uint8 // error bits that a test has set
	alarm       uint8 // error bits of the servo itself; an X servo keeps them until a reboot
	mute        bool  // the servo neither receives nor sends, as if it were unplugged
	silentUntil rt.Instant
	unpowered   bool       // the supply is too low to run
	booting     bool       // the servo boots until silentUntil
	bootTorque  bool       // torque will be on after the boot
	driven      bool       // the shaft is driven
	wasDriven   bool       // the shaft was driven before
	lastRequest rt.Instant // X: time of the last instruction on the bus
	turnOrigin  int        // X: counts of the turns that a reset has cleared
	bootedAt    rt.Instant // time of the last power-up or reboot
	stepGoal    int        // STS, step mode: end of the steps, in counts of the encoder
	health      health
	loop        motor.Loop // control loop as the registers describe it
	target      int        // target of the control loop, in counts of the encoder
	encoder     motor.Encoder
	obstacle    motor.Obstacle
	misread     misread
	dropped     uint64 // number of dropped objects

	boots      uint32
	muteEvents bool     // true during a restart: its intermediate states cause no events
	event      Event    // lent to Config.Watch
	lastState  Snapshot // state in its newest event

	// The last measurement of the shaft, for the present velocity.
	measuredAt rt.Instant
	measured   int
	velocity   int        // counts per second
	goalAt     rt.Instant // time of the last command to move
}

type pin struct {
	stuck bool
	value byte
}

const (
	velocityWindow = time.Millisecond // after a shorter time since the last measurement the last velocity is kept
	// longest time between two measurements from which a velocity is computed
	velocityStale = 50 * time.Millisecond
	speedMax      = 3400 // counts per second, of an STS
	delayUnit     = 2 * time.Microsecond
	baudTolerance = 40 // accepted deviation of a baud rate: one part in 40, 2.5 %
	watchdogUnit  = 20 * time.Millisecond
	goalGrace     = 50 * time.Millisecond // time after a new goal in which a resting shaft counts as moving
	watchdogFired = 0xFF
)

// powerUp initialises s with the factory values, its id and the bus's baud rate.
func (s *servo) powerUp(cfg *Config, rail *rail, joint int, now rt.Instant) {
	m := cfg.models[joint]
	*s = servo{
		cfg:   cfg,
		rail:  rail,
		model: m,
		table: m.table,
		joint: joint,
	}
	if joint >= cfg.fitted {
		s.motors = cfg.motors
	}
	s.health.heat = motor.NewHeat(now)
	s.health.volts = m.motor.Volts
	s.bootTorque = slices.Contains(cfg.BootTorque, cfg.Servos[joint].ID)
	s.factory(cfg.Servos[joint].ID, cfg.codes[joint])
	s.restart(now)
}

//rt:noalloc
func (s *servo) factory(id, baud uint8) {
	mem := s.mem
	for i := range s.rows {
		r := &s.rows[i]
		s.put(int(r.addr), r.factory)
	}
	for _, f := range s.model.factory {
		s.put(f.addr, f.value)
	}
	s.put(s.at.model, int64(s.model.number))
	s.put(s.at.id, int64(id))
	s.put(s.at.baud, int64(baud))
	s.flash, s.mem = s.mem, mem
}

// receives reports whether the servo receives bytes of this baud rate at the instant now: it is
// connected and powered, has booted, and has the same rate.
//
//rt:noalloc
func (s *servo) receives(baud int, now rt.Instant) bool {
	own := s.rate(s.mem[s.at.baud])
	off := baud - own
	return !s.mute && !s.unpowered && now >= s.silentUntil && off*baudTolerance <= own && -off*baudTolerance <= own
}

// addressed reports whether the servo obeys requests to an id, and whether it answers them. An X
// servo also obeys its secondary id, but does not answer.
//
//rt:noalloc
func (s *servo) addressed(id uint8) (obeys, answers bool) {
	if s.mem[s.at.id] == id {
		return true, true
	}
	return s.series == seriesX && id <= idMax && s.mem[xSecondID] == id, false
}

//rt:noalloc
func (s *servo) delay() time.Duration {
	if s.cfg.Unpaced {
		return 0
	}
	return s.cfg.turnaround + time.Duration(s.mem[s.at.returnDelay])*delayUnit
}

// error returns the error byte of a status packet for an instruction with the given result code.
//
//rt:noalloc
func (s *servo) error(code uint8) uint8 {
	if s.series != seriesX {
		return s.forced | s.alarm | code
	}
	if s.forced|s.alarm != 0 {
		code |= alert
	}
	return code
}

// get returns a register's value; a value of an X servo has its sign.
//
//rt:noalloc
func (s *servo) get(addr int) int64 {
	r := s.row(addr)
	if r == nil {
		return 0
	}
	return s.load(&s.mem, r)
}

//rt:noalloc
func (t *table) load(mem *[memSize]byte, r *register) (v int64) {
	for i := range int(r.size) {
		v |= int64(mem[int(r.addr)+i]) << (8 * i)
	}
	if t.series == seriesX && r.signed() {
		shift := 64 - 8*uint(r.size)
		v = v << shift >> shift
	}
	return v
}

// signed reports whether a two's complement register may be negative.
//
//rt:noalloc
func (r *register) signed() bool {
	return r.lo < 0 || r.fixed() && r.size == 4 || r.addr == xPresentPWM || r.addr == xPresentLoad
}

//rt:noalloc
func (s *servo) put(addr int, v int64) {
	r := s.row(addr)
	if r == nil {
		return
	}
	for i := range int(r.size) {
		s.mem[int(r.addr)+i] = byte(v >> (8 * i))
	}
}

// signed encodes v as sign and magnitude.
//
//rt:noalloc
func signed(v int, sign uint16) int64 {
	if v < 0 {
		return int64(sign | uint16(-v)&(sign-1))
	}
	return int64(uint16(v) & (sign - 1))
}

// magnitude decodes the encoding of signed.
//
//rt:noalloc
func magnitude(w int64, sign uint16) int {
	if uint16(w)&sign != 0 {
		return -int(uint16(w) & (sign - 1))
	}
	return int(uint16(w) & (sign - 1))
}

// The duration of a boot.
const (
	feetechBoot = 800 * time.Millisecond
	xBoot       = 400 * time.Millisecond
)

// restart does a power cycle that takes no time to boot.
//
//rt:noalloc
func (s *servo) restart(now rt.Instant) {
	s.reset(now)
	s.bootDone(now)
}

// reboot does a power cycle: the servo is limp and silent while it boots.
//
//rt:noalloc
func (s *servo) reboot(now rt.Instant) {
	s.reset(now)
	s.silentUntil, s.booting = now.Add(s.bootTime()), true
	s.emitChange(now)
}

//rt:noalloc
func (s *servo) bootTime() time.Duration {
	switch {
	case s.cfg.BootTime > 0:
		return s.cfg.BootTime
	case s.feetech():
		return feetechBoot
	}
	return xBoot
}

// reset does the work of the servo's processor at power-up: it reads the settings from flash,
// clears RAM and the count of turns, and switches torque off.
//
//rt:noalloc
func (s *servo) reset(now rt.Instant) {
	s.boots++
	s.bootedAt = now
	s.muteEvents = true
	s.mem = s.flash
	s.stagedSize = 0
	s.alarm = 0
	s.unpowered = false
	s.booting = false
	s.health.protection = protection{}
	s.lastRequest = now
	s.setDriven(now, false)
	s.resetRAM(now)
	s.muteEvents = false
}

// resetRAM sets the goal to the shaft's position, and the rest of RAM to the values of a power-up.
//
//rt:noalloc
func (s *servo) resetRAM(now rt.Instant) {
	s.measured = s.encoderCount(now)
	s.measuredAt = now
	s.velocity = 0
	switch s.series {
	case seriesSTS:
		s.put(stsTorqueLimit, s.get(stsMaxTorque))
		s.put(stsGoalVelocity, speedMax)
	case seriesAX:
		s.put(axTorqueLimit, s.get(axMaxTorque))
	case seriesX:
		s.turnOrigin = turnsOf(s.measured)
		s.resetGoals()
	}
	s.refresh(now)
	s.put(s.at.goal, s.get(s.at.present))
	s.refresh(now)
	s.tune(now)
}

// bootDone ends the boot. The goal is then the shaft's present position, and a servo that boots
// with torque on holds the shaft there.
//
//rt:noalloc
func (s *servo) bootDone(now rt.Instant) {
	s.booting, s.muteEvents = false, true
	s.resetRAM(now)
	if s.bootTorque {
		s.mem[s.at.torque] = torqueOn
		s.torque(0, now)
	}
	if s.cfg.BootGoalZero && s.feetech() {
		s.put(s.at.goal, 0) // only the register is 0: a servo under torque holds its position
	}
	s.muteEvents = false
	s.emitChange(now)
}

// supply sets the voltage without load. A voltage that is too low stops the servo. When the voltage
// returns, the servo boots with a cleared RAM.
//
//rt:noalloc
func (s *servo) supply(volts float64, now rt.Instant) {
	s.health.volts = volts
	low := min(resetVolts, resetShare*s.model.motor.Volts)
	switch {
	case volts < low && !s.unpowered:
		s.unpowered, s.booting = true, false
		s.setDriven(now, false)
		s.mem[s.at.torque] = 0
	case volts >= low && s.unpowered:
		s.reboot(now)
	}
}
