// Package sim simulates a small world: a planar arm of two links moves its tip to targets around a
// post on a table, under a camera.
//
// World is the task itself without a clock: Step moves the six servos by one 60 Hz tick and judges,
// Render paints a camera's picture (world.go, arm.go, scene.go). Live advances a World with a clock
// (live.go) and shares it between a simulated bus and cameras (camera.go).
//
// In a leg of the task, the arm brings the tip within 15 mm of the target and keeps it there for
// ten ticks, without touching the post on the way. Then the next target appears on the other side.
// Every draw, position and pixel is defined to the last bit that matters, so a policy can be
// trained on this world elsewhere; see testdata/sim.
//
// The units are metres, degrees (percent for the gripper) and ticks. Products are wrapped in
// float64() where a fused multiply-add would change the result between machines.
package sim

import "math"

// DOF is the number of joints, in the order shoulder_pan, shoulder_lift,
// elbow_flex, wrist_flex, wrist_roll, gripper.
const DOF = 6

// ticksPerSecond is the rate of the world's own grid.
const ticksPerSecond = 60

// The rules of the task.
const (
	postRadius   = 0.050 // a tip inside this circle collides; the pictures show this circle
	targetRadius = 0.015 // a tip inside this circle is at the target
	dwellTicks   = 10    // ticks in a row at the target that end a leg
	legTicksMax  = 360   // ticks after which a leg is given up
)

// Point is a place on the table in metres: x to the camera's right, y away from
// the arm's base.
type Point struct{ X, Y float64 }

// Outcome is the end of a leg.
type Outcome uint8

// The ways in which a leg ends.
const (
	Reached  Outcome = iota + 1 // the tip is at the target and never touched the post
	Collided                    // the tip is at the target, but touched the post on the way
	TimedOut                    // the tip was not at the target within 360 ticks
)

// Leg is one ended attempt at one target.
type Leg struct {
	Side    int // side of its target: +1 right, -1 left
	Outcome Outcome
	Ticks   int
}

// maxLag is the longest lag of the servos that a world can simulate, in ticks.
const maxLag = 8

// Rules make the world harder than the world of the policies' training. The zero value is the demo
// world.
type Rules struct {
	Clearance float64 // metres added to the post's radius when judging; the pictures do not show it
	Speed     float64 // the servos' speed limit as a multiple of the demo's; 0: 1
	Lag       int     // ticks until the servos begin to follow a goal, 0 to maxLag
}

// Narrow is the harder world. The teacher keeps 35 mm from the post, and 21 mm of these count as
// the post. The servos are twice as fast, so that they follow a jump of the goal, but two ticks
// late.
var Narrow = Rules{Clearance: 0.021, Speed: 2, Lag: 2}

// World is the arm, the post and the present target.
//
// Owner: one goroutine; Live adds the lock.
type World struct {
	rules  Rules
	late   [maxLag][DOF]float64 // goals on their way to the servos, oldest first
	random splitMix64
	q      [DOF]float64
	post   Point
	target Point
	side   int // side of the present target

	legTicks int
	near     int  // number of ticks in a row at the target
	hit      bool // the post was touched during this leg
	ended    [TimedOut + 1]int
	last     Leg
}

// NewWorld draws a world from seed. direction is +1 when the first target lies
// on the right and the arm starts on the left, -1 for the mirror image.
func NewWorld(seed uint64, direction int) *World {
	w := new(World)
	w.reset(seed, direction)
	return w
}

// reset makes w equal to a world that NewWorld has just made.
//
//rt:noalloc
func (w *World) reset(seed uint64, direction int) { w.ResetUnder(Rules{}, seed, direction) }

// ResetUnder makes w a new world from seed and direction under rules. The rules change only how the arm moves and how
// the world judges, not the places of target and post. ResetUnder panics on a lag outside 0 to maxLag and on a
// clearance or speed below 0.
//
//rt:noalloc
func (w *World) ResetUnder(rules Rules, seed uint64, direction int) {
	if rules.Lag < 0 || rules.Lag > maxLag || rules.Clearance < 0 || rules.Speed < 0 {
		panic("sim: rules out of bounds")
	}
	if rules.Speed == 0 {
		rules.Speed = 1
	}
	if direction != 1 && direction != -1 {
		panic("sim: direction must be +1 or -1")
	}
	*w = World{rules: rules, random: splitMix64{state: seed}, side: direction}
	w.post.X = w.random.uniform(-0.02, 0.02)
	w.post.Y = w.random.uniform(-0.02, 0.02)
	w.q = poseAt(w.random.place(-direction), 0)
	w.target = w.random.place(direction)
	for i := range w.late {
		w.late[i] = w.q // a servo holds its place until its first goal
	}
}

// Step moves the servos by one tick towards goal, which has DOF values, and judges the result.
//
//rt:noalloc
func (w *World) Step(goal []float64) {
	if len(goal) != DOF {
		panic("sim: want one goal per joint")
	}
	for j := range w.q {
		w.q[j] = towards(w.q[j], w.lagged(j, goal[j]), maxStep[j]*w.rules.Speed)
	}
	w.judge()
}

// lagged queues one joint's goal and returns the goal that its servo follows now.
//
//rt:noalloc
func (w *World) lagged(joint int, goal float64) float64 {
	n := w.rules.Lag
	if n == 0 {
		return goal
	}
	due := w.late[0][joint]
	for i := range n - 1 {
		w.late[i][joint] = w.late[i+1][joint]
	}
	w.late[n-1][joint] = goal
	return due
}

// judge counts one tick, and ends the leg when the tip has reached the target or the time is over.
// The post does not stop the arm; a touch only makes the leg a collision.
//
//rt:noalloc
func (w *World) judge() {
	tip := w.tip()
	w.legTicks++
	if distance(tip, w.post) < postRadius+w.rules.Clearance {
		w.hit = true
	}
	if distance(tip, w.target) < targetRadius {
		w.near++
	} else {
		w.near = 0
	}
	switch {
	case w.near >= dwellTicks && w.hit:
		w.endLeg(Collided)
		w.side = -w.side
	case w.near >= dwellTicks:
		w.endLeg(Reached)
		w.side = -w.side
	case w.legTicks >= legTicksMax:
		w.endLeg(TimedOut) // the next target is on the same side, so holding still earns nothing
	default:
		return
	}
	w.target = w.random.place(w.side)
	w.legTicks = 0
	w.near = 0
	w.hit = false
}

//rt:noalloc
func (w *World) endLeg(o Outcome) {
	w.ended[o]++
	w.last = Leg{Side: w.side, Outcome: o, Ticks: w.legTicks}
}

// Q returns the joints in degrees, the gripper in percent.
func (w *World) Q() [DOF]float64 { return w.q }

//rt:noalloc
func (w *World) tip() Point { return TipAt(w.q[pan], w.q[elbow]) }

// TipAt returns the tip's place for pan and elbow in degrees.
//
//rt:noalloc
func TipAt(panDeg, elbowDeg float64) Point {
	_, tip := reach(panDeg, elbowDeg)
	return tip
}

// Target returns the present target.
func (w *World) Target() Point { return w.target }

// Post returns the centre of the post, which does not move during the run.
func (w *World) Post() Point { return w.post }

// Legs counts the legs ended so far.
func (w *World) Legs() (reached, collided, timeouts int) {
	return w.ended[Reached], w.ended[Collided], w.ended[TimedOut]
}

// LastLeg returns the leg that ended last; its Outcome is zero before the first leg has ended.
func (w *World) LastLeg() Leg { return w.last }

// LegTicks returns how many ticks the present leg has lasted.
func (w *World) LegTicks() int { return w.legTicks }

//rt:noalloc
func (w *World) scene() scene {
	return scene{
		Pan:    w.q[pan],
		Elbow:  w.q[elbow],
		Target: w.target,
		Post:   w.post,
	}
}

// Render paints the picture into dst, height rows of width RGB pixels. Every size
// shows the whole native view.
//
//rt:noalloc
func (w *World) Render(dst []byte, width, height int) {
	s := w.scene()
	s.render(dst, width, height)
}

//rt:noalloc
func distance(a, b Point) float64 { return math.Hypot(a.X-b.X, a.Y-b.Y) }

// splitMix64 is the SplitMix64 generator, which any language repeats bit for bit.
//
// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
// OOPSLA 2014; the first draw of seed 0 is e220a8397b1dcdaf.
type splitMix64 struct{ state uint64 }

//rt:noalloc
func (r *splitMix64) next() uint64 {
	r.state += 0x9E3779B97F4A7C15
	z := r.state
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// uniform draws from [lo, hi) with 53 bits.
//
//rt:noalloc
func (r *splitMix64) uniform(lo, hi float64) float64 {
	return lo + float64((hi-lo)*(float64(r.next()>>11)*0x1p-53))
}

// place draws a place on one side of the table, x before y.
//
//rt:noalloc
func (r *splitMix64) place(side int) Point {
	x := float64(side) * r.uniform(0.15, 0.21)
	return Point{X: x, Y: r.uniform(-0.04, 0.04)}
}
