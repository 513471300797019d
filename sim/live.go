package sim

import (
	"math"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

// catchUpTicksMax is the largest number of past ticks that one call of Live simulates.
// Score.SkippedTicks counts earlier ticks, which are left out.
const catchUpTicksMax = 600 * ticksPerSecond

// Live is a World on a clock. It is a servosim.Plant and offers camera.Sources. It has no thread:
// each call first advances the world to the instant of the call.
//
// The world is judged on its own 60 Hz grid. Between two grid points each joint moves towards its
// goal at the servo's speed limit, so the phase of the edge's tick does not matter, and a goal
// written exactly on the grid gives exactly World.Step. A joint without torque holds its place,
// unless Sink makes it sink.
//
// Owner: any thread. The lock is never held while sleeping, painting or writing. A call for an
// instant before the newest instant counts as a call for the newest.
type Live struct {
	clock rt.Clock
	start rt.Instant

	mu      sync.Mutex
	world   *World            // guarded by mu; world.q holds the joints at the last grid point
	tick    int64             // guarded by mu; the grid point of world
	phase   float64           // guarded by mu; the newest instant's share of the period after tick, [0, 1)
	newest  rt.Instant        // guarded by mu; the newest instant so far
	motion  [DOF]motion       // guarded by mu
	skipped int64             // guarded by mu; ticks lost to catchUpTicksMax
	goals   [DOF]goalRegister // guarded by mu
}

// motion is the motion of a joint within the present tick: a straight line towards the goal. The line begins at the
// value q and the phase from.
type motion struct {
	q    float64
	from float64
}

// goalRegister is the last value that the bus wrote to a servo.
type goalRegister struct {
	goal   float64 // degrees, the gripper in percent
	torque bool
	rest   float64 // value at which the joint comes to rest without torque
	sink   float64 // motion towards rest per tick; 0: the joint holds its place
}

// Score is the arm's achievement so far.
type Score struct {
	Reached, Collided, Timeouts int
	SkippedTicks                int64 // ticks that the world left out because no call came for over ten minutes
}

// Add adds the score of another world.
//
//rt:noalloc
func (s *Score) Add(other Score) {
	s.Reached += other.Reached
	s.Collided += other.Collided
	s.Timeouts += other.Timeouts
	s.SkippedTicks += other.SkippedTicks
}

// NewLive returns a Live with the world w, whose grid begins at start. The Live owns w from now on.
func NewLive(w *World, clock rt.Clock, start rt.Instant) *Live {
	l := &Live{
		clock:  clock,
		start:  start,
		world:  w,
		newest: start,
	}
	for j, q := range w.q {
		l.motion[j].q = q
		l.goals[j].goal = q
	}
	return l
}

// Goal sets a joint's goal in encoder counts. It implements servosim.Plant.
//
//rt:noalloc
func (l *Live) Goal(now rt.Instant, joint, raw int) {
	l.lock(now, joint).goal = AngleOf(joint, raw)
	l.mu.Unlock()
}

// lock returns a joint's register to change at the instant now. The caller unlocks mu.
//
//rt:noalloc
func (l *Live) lock(now rt.Instant, joint int) *goalRegister {
	l.mu.Lock()
	l.advance(now)
	l.motion[joint] = motion{q: l.at(joint, l.phase), from: l.phase} // a new straight line begins at the present value
	return &l.goals[joint]
}

// Torque makes a joint follow its goal when on is true; otherwise the joint stops, or sinks if Sink has set
// a motion.
//
//rt:noalloc
func (l *Live) Torque(now rt.Instant, joint int, on bool) {
	l.lock(now, joint).torque = on
	l.mu.Unlock()
}

// Sink sets how a joint moves without torque: towards the encoder count rest, at the given speed in counts per second.
// With speed 0 the joint stays.
//
//rt:noalloc
func (l *Live) Sink(now rt.Instant, joint, rest int, speed float64) {
	g := l.lock(now, joint)
	g.rest, g.sink = AngleOf(joint, rest), speed/countsPer(joint)/ticksPerSecond
	l.mu.Unlock()
}

// Present returns a joint's position, rounded to an encoder count.
//
//rt:noalloc
func (l *Live) Present(now rt.Instant, joint int) (raw int) {
	l.mu.Lock()
	l.advance(now)
	raw = RawOf(joint, l.at(joint, l.phase))
	l.mu.Unlock()
	return raw
}

// Speed returns a joint's speed in counts per second; 0 when it is at the end of the encoder's range.
//
//rt:noalloc
func (l *Live) Speed(now rt.Instant, joint int) float64 {
	l.mu.Lock()
	l.advance(now)
	q, goal := l.at(joint, l.phase), l.goals[joint]
	l.mu.Unlock()
	to, step := goal.goal, maxStep[joint]
	if !goal.torque {
		to, step = goal.rest, goal.sink
	}
	raw := RawOf(joint, q)
	switch {
	case q == to, step == 0, raw == 0 && to < q, raw == countMax && to > q:
		return 0
	}
	return math.Copysign(step*ticksPerSecond*countsPer(joint), to-q)
}

// Score returns the score until the clock's present instant.
func (l *Live) Score() Score { return l.View().Score }

// sceneAt returns the scene at now, and its instant. When an earlier call was for a later instant,
// it returns the scene of that later instant.
//
//rt:noalloc
func (l *Live) sceneAt(now rt.Instant) (scene, rt.Instant) {
	l.mu.Lock()
	l.advance(now)
	s := l.world.scene()
	s.Pan = l.at(pan, l.phase)
	s.Elbow = l.at(elbow, l.phase)
	at := l.newest
	l.mu.Unlock()
	return s, at
}

// advance moves the world to now and judges it at every grid point on the way. Called with mu held.
//
//rt:noalloc
func (l *Live) advance(now rt.Instant) {
	if now <= l.newest {
		return
	}
	l.newest = now
	last := int64(now-l.start) / int64(time.Second) * ticksPerSecond
	last += int64(now-l.start) % int64(time.Second) * ticksPerSecond / int64(time.Second)
	if lost := last - l.tick - catchUpTicksMax; lost > 0 {
		l.skipped += lost
		l.tick += lost
	}
	for l.tick < last {
		for j := range l.motion {
			l.world.q[j] = l.at(j, 1)
			l.motion[j] = motion{q: l.world.q[j]}
		}
		l.world.judge()
		l.tick++
	}
	begin, end := l.grid(last), l.grid(last+1)
	l.phase = float64(now-begin) / float64(end-begin)
}

//rt:noalloc
func (l *Live) grid(k int64) rt.Instant {
	whole, part := k/ticksPerSecond, k%ticksPerSecond
	ns := (part*int64(time.Second) + ticksPerSecond - 1) / ticksPerSecond
	return l.start + rt.Instant(whole*int64(time.Second)+ns)
}

// at returns a joint's value at a phase of the present tick. Called with mu held.
//
//rt:noalloc
func (l *Live) at(joint int, phase float64) float64 {
	m, g := &l.motion[joint], &l.goals[joint]
	switch {
	case g.torque:
		return towards(m.q, g.goal, float64(maxStep[joint]*(phase-m.from)))
	case g.sink == 0:
		return m.q
	}
	return towards(m.q, g.rest, float64(g.sink*(phase-m.from)))
}
