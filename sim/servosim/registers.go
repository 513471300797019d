package servosim

import (
	"math"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/sim/motor"
)

// read appends size bytes of memory, beginning at addr. Undefined bytes read 0.
//
//rt:noalloc
func (s *servo) read(dst []byte, addr, size int, now rt.Instant) []byte {
	s.refresh(now)
	for a := addr; a < addr+size; a++ {
		var v byte
		if p := s.indirect(a); p < s.size {
			v = s.mem[p]
			if s.pin[p].stuck {
				v = s.pin[p].value
			}
		}
		dst = append(dst, v)
	}
	return dst
}

// indirect returns the address of the byte that the servo accesses for the address a. Inside a window this is the
// address in the window's list, elsewhere the address a itself.
//
//rt:noalloc
func (s *servo) indirect(a int) int {
	for i := range s.windows {
		w := &s.windows[i]
		if n := a - w.data; n >= 0 && n < w.n {
			return int(s.get(w.list + 2*n))
		}
	}
	return a
}

// refresh updates the measured registers: position, velocity, load, motion, health.
//
//rt:noalloc
func (s *servo) refresh(now rt.Instant) {
	raw := s.encoderCount(now)
	s.monitor(now)
	goal, goalRaw := s.goal()
	moving := int64(0)
	if s.isMoving(goalRaw-raw, now) {
		moving = 1
	}
	s.put(s.at.moving, moving)
	h := &s.health
	deci := int64(h.rail*10 + 0.5)
	s.put(s.at.voltage, deci)
	s.put(s.at.temperature, int64(h.heat.Celsius+0.5))
	seen := raw + s.noise(now)
	switch s.series {
	case seriesSTS:
		s.put(stsPresent, signed(s.present(seen), signPosition))
		v := s.velocity
		if s.mem[stsPhase]&phaseSteps == 0 {
			v /= 50
		}
		s.put(s.at.velocity, signed(v, signPosition))
		s.put(s.at.load, signed(int(h.duty*1000), signLoad))
		s.put(stsCurrent, signed(int(h.amps/stsAmp), signPosition))
		s.mem[stsStatus] = s.error(0)
		s.put(stsGoalReadback, signed(goal, signPosition))
	case seriesAX:
		s.put(axPresent, int64(s.present(seen)))
		s.put(s.at.velocity, signed(int(float64(s.velocity)/axSpeedUnit), signLoad))
		s.put(s.at.load, signed(int(h.duty*1023), signLoad))
	case seriesX:
		s.put(xTick, int64(now.Sub(s.bootedAt)/time.Millisecond)&xTickMax)
		s.refreshX(seen)
	}
}

// measureVelocity measures the speed of the shaft. It uses the travel since the last reading, because an ideal shaft
// alternately moves and rests when a client streams goals. For a fitted motor, and when the last reading is older than
// velocityStale, it uses the shaft's present speed.
//
//rt:noalloc
func (s *servo) measureVelocity(now rt.Instant) {
	since := now.Sub(s.measuredAt)
	if since < velocityWindow {
		return
	}
	raw := s.encoderCount(now)
	s.velocity = int(int64(raw-s.measured) * int64(time.Second) / int64(since))
	s.measured, s.measuredAt = raw, now
	if p, ok := s.cfg.Plant.(Turner); ok && (since > velocityStale || s.motors != nil) {
		s.velocity = motor.Round(p.Speed(now, s.joint))
	}
}

// isMoving returns the moving flag. It is set while a servo under torque turns, and for a short
// time after the servo got another goal. A servo that rests short of its goal, because of a load or
// because its watchdog has stopped it, does not count as moving.
//
//rt:noalloc
func (s *servo) isMoving(off int, now rt.Instant) bool {
	if s.mem[s.at.torque] != torqueOn {
		return false
	}
	turns := !motor.AtRest(float64(s.velocity))
	if !s.positions() {
		return turns
	}
	return (off > 1 || off < -1) && (turns || now.Sub(s.goalAt) < goalGrace)
}

// noise returns the deviation of the encoder at an instant, in counts. The noise changes every
// millisecond, and is the same for the same seed, servo and instant. The firmware's own loop and
// its present velocity are free of noise.
//
//rt:noalloc
func (s *servo) noise(now rt.Instant) int {
	n := s.cfg.Noise
	if n <= 0 {
		return 0
	}
	dice := mix(mix(s.cfg.Faults.Seed) ^ uint64(s.joint)<<48 ^ uint64(now)/uint64(time.Millisecond))
	return int(dice%uint64(2*n+1)) - n
}

// The units of speeds, in counts per second, and of an STS's current.
const (
	stsAmp      = 0.0065                        // A
	xSpeedUnit  = 0.229 * 4096 / 60             // 0.229 rpm
	axSpeedUnit = 0.111 * 360 / 60 * 1023 / 300 // 0.111 rpm
	xAccelUnit  = 214.577 * 4096 / 3600         // 214.577 rev/min2, in counts/s2
)

// xTickMax is the highest value of Realtime_Tick, after which it starts again at 0.
const xTickMax = 32767

//rt:noalloc
func (s *servo) refreshX(raw int) {
	h := &s.health
	s.put(xPresent, int64(s.present(raw)))
	s.put(s.at.velocity, int64(float64(s.direction()*s.velocity)/xSpeedUnit))
	s.put(xPresentPWM, int64(h.duty*885))
	if unit := s.model.amp; unit > 0 {
		s.put(xPresentLoad, int64(h.amps/unit))
	} else {
		s.put(xPresentLoad, int64(h.duty*1000))
	}
	s.mem[xHardwareError] = s.alarm | s.forced
}

//rt:noalloc
func turnsOf(raw int) int { return raw &^ 4095 }

// direction returns -1 for an X servo whose drive mode is reversed, otherwise 1.
//
//rt:noalloc
func (s *servo) direction() int {
	if s.series == seriesX && s.mem[xDriveMode]&1 != 0 {
		return -1
	}
	return 1
}

// present converts an encoder count to the position that a client reads.
//
//rt:noalloc
func (s *servo) present(raw int) int {
	switch s.series {
	case seriesSTS:
		p := raw - s.offset()
		if s.mem[s.at.mode] == modeStep {
			return s.stepGoal - raw // the position register holds the remaining steps
		}
		if s.mem[stsPhase]&phaseTurns == 0 {
			p &= 4095
		}
		return p
	case seriesX:
		p := s.direction() * (raw - s.turnOrigin)
		if s.mem[xMode] == xModePosition {
			p &= 4095
		}
		return p + s.offset()
	}
	return min(max(raw, 0), s.counts-1)
}

// goal returns the goal position, limited to the servo's range. The result goal is in the client's counts, and the
// result raw is in the encoder's counts.
//
//rt:noalloc
func (s *servo) goal() (goal, raw int) {
	v := s.get(s.at.goal)
	switch s.series {
	case seriesSTS:
		goal = magnitude(v, signPosition)
		if s.mem[s.at.mode] == modeStep {
			return goal, s.stepGoal
		}
		goal = s.limited(goal)
		raw = goal + s.offset()
		if s.mem[stsPhase]&phaseTurns == 0 {
			raw &= 4095
		}
		return goal, raw
	case seriesX:
		goal = int(v)
		raw = s.direction() * (goal - s.offset())
		if s.mem[xMode] == xModePosition {
			raw &= 4095
		}
		return goal, raw + s.turnOrigin
	}
	goal = s.limited(min(int(v), s.counts-1))
	return goal, goal
}

// limited returns the goal inside the servo's limits that is nearest to the parameter goal. Limits of 0 and 0 are no
// limits.
//
//rt:noalloc
func (s *servo) limited(goal int) int {
	lo, hi := int(s.get(s.at.minLimit)), int(s.get(s.at.maxLimit))
	if lo == 0 && hi == 0 {
		return goal
	}
	return min(max(goal, lo), hi)
}

// offset returns the value that an STS subtracts from its encoder's count, or that an X servo adds
// to it. In position mode an X ignores an offset of more than a quarter turn.
//
//rt:noalloc
func (s *servo) offset() int {
	switch s.series {
	case seriesSTS:
		return magnitude(s.get(stsOffset)&(2*signOffset-1), signOffset)
	case seriesX:
		if v := int(s.get(xOffset)); s.mem[xMode] != xModePosition || v <= xHomingLimit && v >= -xHomingLimit {
			return v
		}
	}
	return 0
}

// tune computes the parameters of the control loop from the registers, and passes them to the
// servo's fitted motor, if it has one.
//
//rt:noalloc
func (s *servo) tune(now rt.Instant) {
	v := motor.Loop{DutyMax: 1, AmpsMax: math.MaxFloat64}
	switch s.series {
	case seriesSTS:
		s.tuneSTS(&v)
	case seriesAX:
		v.Gain = 1 / float64(max(s.mem[axSlope], 1))
		v.DutyMax = float64(s.get(axTorqueLimit)) / 1023
		v.DeadBand = float64(s.mem[axMargin])
		v.Speed = float64(s.get(axSpeed)&1023) * axSpeedUnit
	case seriesX:
		s.tuneX(&v)
	}
	if s.health.capped && s.feetech() {
		v.DutyMax = min(v.DutyMax, s.afterTrip())
	}
	s.loop = v
	if s.motors != nil {
		s.motors.Tune(now, s.joint, v)
	}
}

// afterTrip returns the share of its torque that a Feetech servo keeps after an overload.
//
//rt:noalloc
func (s *servo) afterTrip() float64 { return float64(s.mem[stsProtectForce]) / 100 }

//rt:noalloc
func (s *servo) tuneSTS(v *motor.Loop) {
	unit := 50.0
	if s.mem[stsPhase]&phaseSteps != 0 {
		unit = 1
	}
	unitOfP := 1 / s.gainDuty
	v.Gain = float64(s.mem[stsP]) * unitOfP
	v.Brake = (float64(s.mem[stsD]) - stsFactoryD) * feetechD * unitOfP
	v.Sum = float64(s.mem[stsI]) * feetechI * unitOfP
	v.SumMax = float64(s.mem[stsSumLimit]) * 4 / 1000
	v.DutyMax = float64(s.get(stsTorqueLimit)) / 1000
	v.StartDuty = float64(s.mem[stsStartup]) / 1000
	v.DeadBand = float64(s.mem[stsDeadZone])
	speed := float64(magnitude(s.get(stsGoalVelocity), signPosition)) * unit
	v.Speed = min(math.Abs(speed), speedMax)
	switch {
	case v.Speed == 0 && s.mem[stsPhase]&phaseZeroFast != 0:
		v.Speed = speedMax
	case v.Speed == 0:
		v.Speed = standstill
	}
	v.Accel = float64(s.mem[stsAcceleration]) * 100
	v.Damped = s.mem[stsTorque] == torqueDamp
	switch s.mem[s.at.mode] {
	case modeVelocity:
		v.Mode, v.SpeedGoal = motor.Velocity, min(max(speed, -speedMax), speedMax)
	case modePWM:
		v.Mode, v.DutyGoal = motor.PWM, float64(magnitude(s.get(stsGoalTime), signLoad))/1000
	}
}

// standstill is the speed limit, in counts/s, of a servo whose goal velocity 0 means a stop. A
// limit of 0 would mean no limit.
const standstill = 1e-6

// Feetech's D and I gains, in units of its P gain; the maker does not document them. The STS3215
// was fitted with the factory's D, so the fit's viscous friction includes the effect of D.
// feetechD, per step, is chosen so that the factory's D produces all of that friction: with a D of
// 0 none is left. feetechI is chosen so that the I effort of a lasting error grows by the P effort
// every second.
const (
	feetechD    = 3.3
	feetechI    = 1.0 / 1000
	stsFactoryD = 32
)

// Duty per count and unit of an X servo's gains. The full duty is 885 in these units.
//
// Source: ROBOTIS e-manual, Position PID Gain(80, 82, 84).
const (
	xGainI = 1.0 / 65536 / 885
	xGainD = 1.0 / 16 / 885
)

//rt:noalloc
func (s *servo) tuneX(v *motor.Loop) {
	v.Gain = float64(s.get(xPositionP)) / s.gainDuty
	v.Sum, v.Brake = float64(s.get(xPositionI))*xGainI, float64(s.get(xPositionD))*xGainD
	v.DutyMax = float64(s.get(xGoalPWM)) / 885
	if s.model.amp > 0 {
		v.AmpsMax = float64(s.get(xLimitCurrent)) * s.model.amp
	}
	if s.mem[xDriveMode]&4 == 0 && s.mem[xWatchdog] != watchdogFired {
		v.Speed = float64(s.get(xProfile)) * xSpeedUnit
		v.Accel = float64(s.get(xAcceleration)) * xAccelUnit
	}
	f := float64(s.direction())
	switch s.mem[xMode] {
	case xModeVelocity:
		v.Mode, v.SpeedGoal = motor.Velocity, f*float64(s.get(xGoalVelocity))*xSpeedUnit
	case xModePWM:
		v.Mode = motor.PWM
		v.DutyGoal = f * float64(s.get(xGoalPWM)) / 885
		v.DutyMax = 1
	case xModeCurrent:
		v.Mode, v.AmpsGoal = motor.Current, f*float64(s.get(xGoalCurrent))*s.model.amp
	case xModeCurrentPos:
		v.AmpsMax = min(v.AmpsMax, math.Abs(float64(s.get(xGoalCurrent)))*s.model.amp)
	}
	if s.mem[xWatchdog] == watchdogFired && v.Mode != motor.Position {
		v.Mode, v.SpeedGoal = motor.Velocity, 0
	}
}
