package motor

import (
	"math"
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

// Load is the load on one shaft. The zero value is no load.
type Load struct {
	Gravity float64 // N m when the link is level
	Level   int     // encoder count of the level position; gravity pulls towards lower counts
	Inertia float64 // kg m2, added to the motor's own
	// The joint's stops, in counts. Both 0: the joint has no stops.
	StopMin, StopMax int
	Backlash         int // counts of play, visible to the encoder
}

// Mode is the quantity that a servo's firmware controls.
type Mode uint8

const (
	Position Mode = iota
	Velocity
	PWM
	Current
)

// Loop is the control loop of a servo's firmware: its gains, its limits, and its goals in all modes
// except Position.
type Loop struct {
	Mode      Mode
	Gain      float64 // P: duty per count of error
	Sum       float64 // I: duty per count of error and step
	SumMax    float64 // limit of the duty that the I gain adds; 0: no limit
	Brake     float64 // D: duty per count of the error's change in a step
	DutyMax   float64
	AmpsMax   float64
	Speed     float64 // counts/s of the trajectory; 0: no limit
	Accel     float64 // counts/s2; 0: no limit
	DeadBand  float64 // counts: a smaller error adds no duty
	StartDuty float64 // duty below which the motor gets no power

	SpeedGoal float64 // counts/s, in mode Velocity
	DutyGoal  float64 // duty, in mode PWM
	AmpsGoal  float64 // amperes, in mode Current
	Damped    bool    // without torque, the windings are shorted, which brakes the shaft
}

// Fitted is a chain of DC motors whose constants were fitted to measurements, each with a control
// loop, friction and a load. Every call for a motor integrates the motor's motion, at 1 kHz, up to
// the instant of the call.
//
// Source: Rhoban/bam.
type Fitted struct{ joints []fittedJoint }

type fittedJoint struct {
	Joint
	at  rt.Instant
	rad float64 // radians per count
	v   Loop

	place, speed float64 // counts, counts/s
	lo, hi       float64 // positions of obstacles; infinite without one
	seen         float64 // position that the encoder reads, after the backlash
	goal         float64
	target, pace float64 // place and speed of the trajectory
	torque       bool
	summed       float64 // duty that the I gain has added up
	off          float64 // error in the previous step
	extra        float64 // torque in N m that a script adds
	duty, amps   float64
	wish         float64 // duty before its limit is applied
}

const (
	fittedStep = time.Millisecond
	catchUpMax = 2000 // most steps that one call integrates; the motor rests in the time before them
	dutyMax    = 0.97
	stuckBelow = 1e-3 // rad/s below which friction may hold the shaft
	speedGain  = 4.0  // in mode Velocity: duty per unit of relative error
)

// NewFitted returns motors whose shafts are in the middle of their range.
func NewFitted(joints []Joint, now rt.Instant) *Fitted {
	f := &Fitted{joints: make([]fittedJoint, len(joints))}
	for i := range joints {
		j := &f.joints[i]
		j.Joint, j.at = joints[i], now
		j.lo, j.hi = math.Inf(-1), math.Inf(1)
		j.rad = j.Arc / float64(j.Counts)
		j.place = float64(j.Counts) / 2
		j.seen = j.place
		j.goal = j.place
		j.target = j.place
	}
	return f
}

//rt:noalloc
func (f *Fitted) Goal(now rt.Instant, joint, raw int) { f.settled(now, joint).goal = float64(raw) }

//rt:noalloc
func (f *Fitted) Torque(now rt.Instant, joint int, on bool) {
	j := f.settled(now, joint)
	if on && !j.torque {
		j.target, j.pace = j.place, 0
		j.summed, j.off = 0, 0
	}
	j.torque = on
}

//rt:noalloc
func (f *Fitted) Present(now rt.Instant, joint int) int { return Round(f.settled(now, joint).seen) }

//rt:noalloc
func (f *Fitted) Speed(now rt.Instant, joint int) float64 { return f.settled(now, joint).speed }

//rt:noalloc
func (f *Fitted) Drive(now rt.Instant, joint int) (duty, amps, wish float64) {
	j := f.settled(now, joint)
	return j.duty, j.amps, j.wish
}

//rt:noalloc
func (f *Fitted) Tune(now rt.Instant, joint int, v Loop) { f.settled(now, joint).v = v }

//rt:noalloc
func (f *Fitted) Push(now rt.Instant, joint int, torque float64) {
	f.settled(now, joint).extra = torque
}

//rt:noalloc
func (f *Fitted) Block(now rt.Instant, joint int, lo, hi float64) {
	j := f.settled(now, joint)
	j.lo, j.hi = lo, hi
}

// settled returns a joint whose motion is integrated up to the instant now.
//
//rt:noalloc
func (f *Fitted) settled(now rt.Instant, joint int) *fittedJoint {
	j := &f.joints[joint]
	if late := now.Sub(j.at) - catchUpMax*fittedStep; late > 0 {
		j.at = j.at.Add(late)
	}
	for now.Sub(j.at) >= fittedStep {
		j.at = j.at.Add(fittedStep)
		j.step(fittedStep.Seconds())
	}
	return j
}

// step integrates one period of the firmware and of the physics.
//
//rt:noalloc
func (j *fittedJoint) step(dt float64) {
	w := j.speed * j.rad
	j.duty, j.wish = 0, 0
	if j.torque {
		j.shape(dt)
		j.duty = j.effort()
	}
	m := &j.Motor
	j.amps = (j.duty*m.Volts - m.KT*w) / m.Ohm
	if shorted := !j.torque && j.v.Damped; j.duty == 0 && !shorted {
		j.amps = 0 // the bridge is open
	}
	if limit := min(j.v.AmpsMax, m.Stall/m.KT); limit > 0 {
		j.amps = min(max(j.amps, -limit), limit)
	}
	outside := j.extra - j.Load.Gravity*math.Cos((j.place-float64(j.Load.Level))*j.rad)
	push := m.KT*j.amps + outside
	if math.Abs(w) < stuckBelow && math.Abs(push) <= m.Coulomb {
		j.speed = 0
	} else {
		// Friction acts against the motion. It can stop the shaft, but not reverse its motion.
		inertia := m.Inertia + j.Load.Inertia
		direction := w
		if math.Abs(w) < stuckBelow {
			direction = push
		}
		next := w + (push-math.Copysign(m.Coulomb, direction)-m.Viscous*w)/inertia*dt
		if w != 0 && next*w < 0 && math.Abs(push) <= m.Coulomb {
			next = 0
		}
		j.speed = next / j.rad
	}
	j.place += j.speed * dt
	j.stop()
	play := float64(j.Load.Backlash) / 2
	j.seen = min(max(j.seen, j.place-play), j.place+play)
}

// stop keeps the joint between its stops, and keeps it from passing an obstacle.
//
//rt:noalloc
func (j *fittedJoint) stop() {
	lo, hi := float64(j.Load.StopMin), float64(j.Load.StopMax)
	if lo == 0 && hi == 0 {
		lo, hi = math.Inf(-1), math.Inf(1) // the shaft turns freely
		if j.Counts == 1024 {
			lo, hi = 0, 1023 // the travel of a potentiometer is limited
		}
	}
	lo, hi = max(lo, j.lo), min(hi, j.hi)
	if j.place < lo || j.place > hi {
		j.place, j.speed = min(max(j.place, lo), hi), 0
	}
}

// shape moves the trajectory's target to the goal at once, or towards it within the limits of speed
// and acceleration.
//
//rt:noalloc
func (j *fittedJoint) shape(dt float64) {
	off := j.goal - j.target
	if j.v.Speed <= 0 && j.v.Accel <= 0 {
		j.target, j.pace = j.goal, 0
		return
	}
	pace := math.Copysign(math.Abs(off)/dt, off)
	if j.v.Speed > 0 {
		pace = min(max(pace, -j.v.Speed), j.v.Speed)
	}
	if a := j.v.Accel; a > 0 {
		brake := math.Sqrt(2 * a * math.Abs(off))
		pace = min(max(pace, -brake), brake)
		pace = min(max(pace, j.pace-a*dt), j.pace+a*dt)
	}
	j.pace = pace
	if step := pace * dt; math.Abs(step) >= math.Abs(off) && step*off >= 0 {
		j.target = j.goal
	} else {
		j.target += step
	}
}

// effort returns the duty that the firmware applies in its mode.
//
//rt:noalloc
func (j *fittedJoint) effort() (duty float64) {
	limit := min(j.v.DutyMax, dutyMax)
	switch j.v.Mode {
	case Position:
		duty = j.positionDuty(limit)
	case Velocity:
		fastest := j.Motor.Volts / j.Motor.KT / j.rad
		duty = (j.v.SpeedGoal + speedGain*(j.v.SpeedGoal-j.speed)) / fastest
	case PWM:
		duty = j.v.DutyGoal
	case Current:
		duty = (j.v.AmpsGoal*j.Motor.Ohm + j.Motor.KT*j.speed*j.rad) / j.Motor.Volts
	}
	j.wish = duty
	if math.Abs(duty) < j.v.StartDuty {
		return 0
	}
	return min(max(duty, -limit), limit)
}

// positionDuty returns the duty that moves the shaft towards the trajectory's target.
//
//rt:noalloc
func (j *fittedJoint) positionDuty(limit float64) (duty float64) {
	off := j.target - j.seen
	if math.Abs(off) > j.v.DeadBand {
		duty = j.v.Gain*off + j.v.Brake*(off-j.off)
		most := limit
		if j.v.SumMax > 0 {
			most = min(limit, j.v.SumMax)
		}
		j.summed = min(max(j.summed+j.v.Sum*off, -most), most)
	}
	j.off = off
	return duty + j.summed
}
