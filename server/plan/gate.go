package plan

import (
	"fmt"
	"math"
	"time"

	"edgert/policy"
)

const (
	// gatePlayed is how long a gate plays robots, in virtual time, and gateRobots of
	// how many: of more it plays less, so that an open waits for it some 10 ms at most.
	gatePlayed    = 10 * time.Second
	gatePlayedMin = 3 * time.Second
	gateRobots    = 100
	// RoundTrip is the assumed round trip of a robot without a measurement, and Own the time of its
	// request beside waits and inference: as in `lean-server plan`.
	RoundTrip = 40 * time.Millisecond
	Own       = time.Millisecond
	// noticed is by how much inferences must be slower or faster to count.
	noticed = 0.05
)

// Gate says whether all of some robots are fed, from what inferences take now: none
// may stand, nor get a chunk that is later than the policy can be conditioned for, nor
// all together ask for more than the device computes.
//
// Owner: one goroutine.
type Gate struct {
	o    Options
	step int // of Approach
}

// NewGate returns a gate for a policy behind a scheduler, which has no times yet.
func NewGate(m *policy.Meta, scheduler string) *Gate {
	return &Gate{o: Options{Meta: m, Scheduler: scheduler, Fleet: Fleet{Own: Own}}, step: 1}
}

// Learn takes what inferences of each size take now, the smallest first, and reports
// whether that differs from before by enough to count.
func (g *Gate) Learn(took []Size) (changed bool) {
	if changed = len(took) != len(g.o.Took); !changed {
		for i, s := range took {
			if math.Abs(s.Ms-g.o.Took[i].Ms) > noticed*g.o.Took[i].Ms {
				changed = true
			}
		}
	}
	if changed {
		g.o.Took = append(g.o.Took[:0], took...)
	}
	return changed
}

// SizeOf is what an inference of so many rows takes.
func SizeOf(rows int, took time.Duration) Size {
	return Size{rows, took.Seconds() * 1e3, float64(rows) / took.Seconds()}
}

// Feeds reports whether all of these are fed, and else why not.
func (g *Gate) Feeds(robots []Robot) (whyNot string) {
	if len(g.o.Took) == 0 {
		return "it is not known yet how long an inference takes"
	}
	row, _ := g.o.simulate(robots, max(gatePlayedMin, gatePlayed*gateRobots/time.Duration(max(gateRobots, len(robots)))))
	if row.OK {
		return ""
	}
	fastest := g.o.Took[0]
	for _, s := range g.o.Took {
		if s.PerS > fastest.PerS {
			fastest = s
		}
	}
	limit := 0
	for _, r := range robots {
		if d := delayMax(g.o.Meta, r.Execute); limit == 0 || d < limit {
			limit = d
		}
	}
	text := why(row, limit)
	if row.StarvedMs > 0 { // why speaks of a minute
		text = fmt.Sprintf("of %d robots some would stand", row.Robots)
	}
	return fmt.Sprintf("%s (an inference of %d takes %.1f ms here)", text, fastest.Batch, fastest.Ms)
}

// Most is how many robots are fed when more like the last of these join them or the
// last ones leave: at least one, because what is never tried is never measured.
func (g *Gate) Most(robots []Robot, another Robot) int {
	return max(1, search(func(n int) bool { return g.feeds(robots, another, n) }))
}

func (g *Gate) feeds(robots []Robot, another Robot, n int) bool {
	fleet := append([]Robot(nil), robots[:min(n, len(robots))]...)
	for len(fleet) < n {
		fleet = append(fleet, another)
	}
	return g.Feeds(fleet) == ""
}

// Approach goes from n towards Most in steps that grow while they lead somewhere, each
// of which plays twice at most. settled: n is what Most would say.
func (g *Gate) Approach(robots []Robot, another Robot, n int) (next int, settled bool) {
	switch {
	case n+g.step <= MostRobots && g.feeds(robots, another, n+g.step):
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
