package capacity

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/edge-rt/edge-rt/policy"
)

const (
	// gatePlayed is how much virtual time a gate simulates for up to gateRobots robots. For more
	// robots it simulates less, at least gatePlayedMin, so that an open waits some 10 ms at most.
	gatePlayed    = 10 * time.Second
	gatePlayedMin = 3 * time.Second
	gateRobots    = 100
	// roundTrip is the assumed round trip of a robot whose round trip is not measured. ownTime is
	// the assumed time that the server takes for a request besides waits and inference.
	// `lean-server plan` assumes the same times.
	roundTrip = 40 * time.Millisecond
	ownTime   = time.Millisecond
	// noticed is the least relative change of an inference time at which the gate uses the new time.
	noticed = 0.05
)

// gate decides whether a set of robots is fed at the present inference times: no robot may run out
// of actions, no chunk may be later than the policy can be conditioned for, and the robots together
// must not request more than the device computes.
//
// Owner: one goroutine.
type gate struct {
	o    Options
	step int // step width of approach
}

// newGate returns a gate for a policy and a scheduler. It has no inference times yet.
func newGate(m *policy.Meta, scheduler string) *gate {
	return &gate{o: Options{Meta: m, Scheduler: scheduler, Fleet: Fleet{Own: ownTime}}, step: 1}
}

// learn takes the present inference time of each size of batch, smallest size first. It reports whether the gate uses
// them, because they differ enough from the previous times.
func (g *gate) learn(took []Size) (changed bool) {
	changed = !slices.EqualFunc(took, g.o.Took, func(now, before Size) bool {
		return math.Abs(now.Ms-before.Ms) <= noticed*before.Ms
	})
	if changed {
		g.o.Took = append(g.o.Took[:0], took...)
	}
	return changed
}

// sizeOf returns the Size for inferences of this number of rows that take this time.
func sizeOf(rows int, took time.Duration) Size {
	return Size{rows, took.Seconds() * 1e3, float64(rows) / took.Seconds()}
}

// whyNot returns the reason why some of the robots are not fed; "" when all are fed.
func (g *gate) whyNot(robots []Robot) (whyNot string) {
	if len(g.o.Took) == 0 {
		return "the duration of an inference is not known yet"
	}
	row, _ := g.o.simulate(robots, max(gatePlayedMin,
		gatePlayed*gateRobots/time.Duration(max(gateRobots, len(robots)))))
	if row.OK {
		return ""
	}
	most := 0
	for _, r := range robots {
		most = max(most, r.Execute)
	}
	text := why(row, delayMax(g.o.Meta, most))
	if row.StarvedMs > 0 { // the text of why names a minute, but a gate simulates less
		text = fmt.Sprintf("of %d robots some would run out of actions", row.Robots)
	}
	fastest := g.o.fastest()
	return fmt.Sprintf("%s (an inference of %d takes %.1f ms here)", text, fastest.Batch, fastest.Ms)
}

// most returns how many robots are fed when all have this robot's demand. It returns at least one, because an inference
// that never runs is never measured.
func (g *gate) most(robot Robot) int {
	return max(1, search(func(n int) bool { return g.feeds(nil, robot, n) }))
}

// feeds reports whether n robots are fed. These are the first n elements of the list robots. If the list is shorter,
// they are all its elements and, for the rest, copies of the robot another.
func (g *gate) feeds(robots []Robot, another Robot, n int) bool {
	fleet := slices.Concat(robots[:min(n, len(robots))], slices.Repeat([]Robot{another}, max(0, n-len(robots))))
	return g.whyNot(fleet) == ""
}

// approach makes one step from n towards the largest number of robots that is fed, and returns the new number as the
// result next. The steps grow as long as they succeed, and each call simulates at most twice. The result settled
// reports that n is the largest number.
func (g *gate) approach(robots []Robot, another Robot, n int) (next int, settled bool) {
	switch {
	case n+g.step <= mostRobots && g.feeds(robots, another, n+g.step):
		next = n + g.step
	case n > 1 && !g.feeds(robots, another, n):
		next = max(1, n-g.step)
	case g.step > 1:
		g.step = max(1, g.step/2)
		return n, false
	default:
		return n, true
	}
	g.step *= 2
	return next, false
}
