package edge

import (
	"math"
	"time"

	"edgert/rt"
)

// ExitMode says what the arm does when the run ends, --on-exit.
type ExitMode uint8

// The exit modes. Whatever the mode, a robot that was never armed is left as
// it was found.
const (
	ExitPark ExitMode = iota // back to where it was armed, then torque off
	ExitHold                 // torque stays on at the last goal
	ExitOff                  // torque off where it stands
)

// exitModes are the words of --on-exit.
var exitModes = map[string]ExitMode{"park": ExitPark, "hold": ExitHold, "off": ExitOff}

const (
	parkLimit     = 3 * time.Second // parking gives up after this
	parkSpeed     = 0.25            // of the robot's velocity limit
	parkTolerance = 2.0             // robot units; nearer counts as there
)

// depart leaves the armed phase: towards the parking place, or at once.
//
//rt:noalloc
func (c *control) depart(now rt.Instant) {
	c.bus.Write(c.goal)
	c.phase = done
	if c.exitMode == ExitPark && !c.silent {
		c.phase, c.parkEnd = parking, now.Add(c.parkMax)
	}
}

// parkOn moves one tick towards the parking place.
//
//rt:noalloc
func (c *control) parkOn(now rt.Instant) {
	there := true
	for j := range c.goal {
		d := c.park[j] - c.goal[j]
		c.goal[j] += min(max(d, -c.parkStep[j]), c.parkStep[j])
		if math.Abs(float64(c.park[j]-c.state[j])) > parkTolerance {
			there = false
		}
	}
	c.bus.Write(c.goal)
	if there || c.silent || now >= c.parkEnd || c.hurry.Load() {
		c.phase = done
	}
}
