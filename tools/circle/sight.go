package main

import (
	"math"
	"time"

	"github.com/edge-rt/edge-rt/sim"
)

// sight is the teacher's view of the run.
type sight struct {
	tip, post sim.Point
	leg       time.Duration // time since the policy got the present target
	since     time.Duration // time since the policy got the arm
}

// trouble returns why the teacher takes the arm over, "" while the policy does well.
func trouble(s sight) string {
	switch {
	case s.since < time.Second: // the first chunk may not have arrived yet
		return ""
	case math.Hypot(s.tip.X-s.post.X, s.tip.Y-s.post.Y) < postNear:
		return "too near to the post"
	case s.leg > legLimit:
		return "too long on its way"
	case s.since > anywayAfter:
		return "without need"
	}
	return ""
}
