package servosim

import (
	"math"
	"time"

	"edgert/rt"
)

// Load is what hangs on one shaft of a fitted bus. The zero value is a shaft
// that nothing hangs on.
type Load struct {
	Gravity float64 // N m when the link is level
	Level   int     // the encoder count at which it is; gravity pulls towards lower counts
	Inertia float64 // kg m2, added to the motor's own
	// Where the joint's stops are, in counts; none when both are 0.
	StopMin, StopMax int
	Backlash         int // counts of play that the encoder sees
}

// settings are the registers that the firmware's control loop obeys.
type settings struct {
	control   control
	gain      float64 // duty per count of error
	sum       float64 // duty per count of error and step: the I gain
	sumMax    float64 // duty that the I gain may come to; 0: any
	brake     float64 // duty per count that the error changes by in a step: the D gain
	limit     float64 // of duty
	ampsMax   float64
	speed     float64 // counts/s of the trajectory; 0: as fast as it can
	accel     float64 // counts/s2; 0: at once
	dead      float64 // counts around the goal without effort
	startup   float64 // duty below which nothing happens
	speedGoal float64 // counts/s
	dutyGoal  float64
	ampsGoal  float64
	damp      bool // without torque: windings shorted
}

type control uint8

const (
	controlPosition control = iota
	controlVelocity
	controlPWM
	controlCurrent
)

// fitted is the plant of Config.Fitted: a motor with the constants of its model,
// a position loop with the gains of its registers, friction and a load,
// integrated at 1 kHz whenever somebody looks.
//
// A Dynamixel's D and I gains act as its e-manual says, once in a step. Feetech
// says no unit for its own, so theirs are assumed, see feetechD and feetechI; at
// the gains of the factory the fit holds as it was made.
//
// Source: Rhoban/bam; ROBOTIS e-manual, position PID gain.
type fitted struct{ joints []fittedJoint }

type fittedJoint struct {
	at     rt.Instant
	m      motor
	load   Load
	rad    float64 // per count
	counts int
	v      settings

	place, speed float64 // counts, counts/s
	lo, hi       float64 // where obstacles are; infinite without
	seen         float64 // what the encoder sees, behind the play
	goal         float64
	target, pace float64 // of the trajectory
	torque       bool
	summed       float64 // duty that the I gain has come to
	off          float64 // the error of the step before
	extra        float64 // N m that a script adds
	duty, amps   float64
	wish         float64 // duty without its limit
}

const (
	fittedStep  = time.Millisecond
	catchUpMax  = 2000 // steps that one look makes up for; what is older is taken as rest
	dutyMax     = 0.97
	stuckBelow  = 1e-3 // rad/s at which friction may hold the shaft
	speedGainUp = 4.0  // of the velocity loop: duty per unit of relative error
)

func newFitted(models []*model, loads []Load, now rt.Instant) *fitted {
	f := &fitted{joints: make([]fittedJoint, len(models))}
	for i, m := range models {
		j := &f.joints[i]
		j.m, j.at, j.counts = m.motor, now, m.table.counts
		j.lo, j.hi = math.Inf(-1), math.Inf(1)
		j.rad = m.table.arc / float64(m.table.counts)
		if i < len(loads) {
			j.load = loads[i]
		}
		j.place = float64(m.table.counts) / 2
		j.seen, j.goal, j.target = j.place, j.place, j.place
	}
	return f
}

//rt:noalloc
func (f *fitted) Goal(now rt.Instant, joint, raw int) {
	f.joints[joint].settle(now)
	f.joints[joint].goal = float64(raw)
}

//rt:noalloc
func (f *fitted) Torque(now rt.Instant, joint int, on bool) {
	j := &f.joints[joint]
	j.settle(now)
	if on && !j.torque {
		j.target, j.pace = j.place, 0
		j.summed, j.off = 0, 0
	}
	j.torque = on
}

//rt:noalloc
func (f *fitted) Present(now rt.Instant, joint int) int {
	j := &f.joints[joint]
	j.settle(now)
	return round(j.seen)
}

//rt:noalloc
func (f *fitted) Speed(now rt.Instant, joint int) float64 {
	j := &f.joints[joint]
	j.settle(now)
	return j.speed
}

//rt:noalloc
func (f *fitted) drive(now rt.Instant, joint int) (duty, amps, wish float64) {
	j := &f.joints[joint]
	j.settle(now)
	return j.duty, j.amps, j.wish
}

//rt:noalloc
func (f *fitted) tune(now rt.Instant, joint int, v settings) {
	f.joints[joint].settle(now)
	f.joints[joint].v = v
}

//rt:noalloc
func (f *fitted) push(now rt.Instant, joint int, torque float64) {
	f.joints[joint].settle(now)
	f.joints[joint].extra = torque
}

//rt:noalloc
func (f *fitted) block(now rt.Instant, joint int, lo, hi float64) {
	f.joints[joint].settle(now)
	f.joints[joint].lo, f.joints[joint].hi = lo, hi
}

// settle integrates up to an instant.
//
//rt:noalloc
func (j *fittedJoint) settle(now rt.Instant) {
	if late := now.Sub(j.at) - catchUpMax*fittedStep; late > 0 {
		j.at = j.at.Add(late)
	}
	for now.Sub(j.at) >= fittedStep {
		j.at = j.at.Add(fittedStep)
		j.step(fittedStep.Seconds())
	}
}

// step is one of the firmware's, and of the world's.
//
//rt:noalloc
func (j *fittedJoint) step(dt float64) {
	w := j.speed * j.rad
	j.duty, j.wish = 0, 0
	if j.torque {
		j.shape(dt)
		j.duty = j.effort()
	}
	m := &j.m
	j.amps = (j.duty*m.volts - m.kt*w) / m.ohm
	switch {
	case !j.torque && j.v.damp: // the windings are shorted: amps brakes
	case j.duty == 0:
		j.amps = 0 // the bridge is open
	}
	if limit := min(j.v.ampsMax, m.stall/m.kt); limit > 0 {
		j.amps = min(max(j.amps, -limit), limit)
	}
	outside := j.extra - j.load.Gravity*math.Cos((j.place-float64(j.load.Level))*j.rad)
	push := m.kt*j.amps + outside
	if math.Abs(w) < stuckBelow && math.Abs(push) <= m.coulomb {
		j.speed = 0
	} else {
		// Friction opposes the movement, and cannot turn it round by itself.
		inertia := m.inertia + j.load.Inertia
		direction := w
		if math.Abs(w) < stuckBelow {
			direction = push
		}
		next := w + (push-math.Copysign(m.coulomb, direction)-m.viscous*w)/inertia*dt
		if w != 0 && next*w < 0 && math.Abs(push) <= m.coulomb {
			next = 0
		}
		j.speed = next / j.rad
	}
	j.place += j.speed * dt
	j.stop()
	play := float64(j.load.Backlash) / 2
	j.seen = min(max(j.seen, j.place-play), j.place+play)
}

// stop keeps the joint between its stops, and on its side of an obstacle.
//
//rt:noalloc
func (j *fittedJoint) stop() {
	lo, hi := float64(j.load.StopMin), float64(j.load.StopMax)
	if lo == 0 && hi == 0 {
		lo, hi = math.Inf(-1), math.Inf(1) // the shaft turns freely
		if j.counts == 1024 {
			lo, hi = 0, 1023 // a potentiometer does not
		}
	}
	lo, hi = max(lo, j.lo), min(hi, j.hi)
	if j.place < lo || j.place > hi {
		j.place, j.speed = min(max(j.place, lo), hi), 0
	}
}

// shape moves the trajectory towards the goal: at once, or within its limits of
// speed and acceleration.
//
//rt:noalloc
func (j *fittedJoint) shape(dt float64) {
	off := j.goal - j.target
	if j.v.speed <= 0 && j.v.accel <= 0 {
		j.target, j.pace = j.goal, 0
		return
	}
	pace := math.Copysign(math.Abs(off)/dt, off)
	if j.v.speed > 0 {
		pace = min(max(pace, -j.v.speed), j.v.speed)
	}
	if a := j.v.accel; a > 0 {
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

// effort is the duty that the firmware applies.
//
//rt:noalloc
func (j *fittedJoint) effort() (duty float64) {
	limit := min(j.v.limit, dutyMax)
	switch j.v.control {
	case controlPosition:
		off := j.target - j.seen
		if math.Abs(off) > j.v.dead {
			duty = j.v.gain*off + j.v.brake*(off-j.off)
			most := limit
			if j.v.sumMax > 0 {
				most = min(limit, j.v.sumMax)
			}
			j.summed = min(max(j.summed+j.v.sum*off, -most), most)
		}
		j.off = off
		duty += j.summed
	case controlVelocity:
		fastest := j.m.volts / j.m.kt / j.rad
		duty = (j.v.speedGoal + speedGainUp*(j.v.speedGoal-j.speed)) / fastest
	case controlPWM:
		duty = j.v.dutyGoal
	case controlCurrent:
		duty = (j.v.ampsGoal*j.m.ohm + j.m.kt*j.speed*j.rad) / j.m.volts
	}
	j.wish = duty
	if math.Abs(duty) < j.v.startup {
		return 0
	}
	return min(max(duty, -limit), limit)
}
