package follow

import (
	"math"

	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// A joint stalls when its effort is high, it is far from its goal, and it does not move for Safety.StallFor.
const (
	stallEffort = 0.8 // effort, as a share of the motor's limits
	stallOff    = 3.0 // distance to the goal, in robot units
	stallTravel = 1.0 // robot units; a smaller travel is not a motion
)

// stall is one joint's progress towards its goal.
type stall struct {
	from     float32    // place of the joint at its last motion
	since    rt.Instant // instant of the last motion; 0: the joint is at its goal
	reported bool
}

// watchStalls reports joints that stall, and reacts as the robot's description demands.
//
//rt:noalloc
func (f *Follower) watchStalls(now rt.Instant) {
	if f.Phase != Armed && f.Phase != Parking {
		return
	}
	begun := robot.Joints(0)
	for j := range f.stalls {
		s := &f.stalls[j]
		if f.gate.Wheels.Has(j) {
			continue // watchBase watches the wheels
		}
		off := math.Abs(float64(f.Goal[j] - f.Place[j]))
		moved := math.Abs(float64(f.Place[j]-s.from)) > stallTravel
		if off < stallOff || f.joints[j]&(Torque|Answering) != Torque|Answering {
			*s = stall{}
			continue
		}
		if s.since == 0 || moved {
			*s = stall{from: f.Place[j], since: now}
			continue
		}
		if s.reported || now.Sub(s.since) < f.cfg.Safety.StallFor {
			continue
		}
		f.bus.Prioritize(1 << j)
		// only an effort read since the last motion counts: the effort of a Koch motor is up to 0.9 s old
		if f.bus.Effort(j, s.since) >= stallEffort {
			s.reported = true
			begun |= 1 << j
			f.push[j] = newPush(now, f.Goal[j], f.Place[j])
		}
	}
	if begun != 0 {
		f.stallBegins(now, begun)
	}
}

func (f *Follower) stallBegins(now rt.Instant, joints robot.Joints) {
	f.emitEach(now, event.JointStalled, joints)
	switch f.cfg.Safety.Stall {
	case robot.Limp:
		for j := range f.joints {
			if joints.Has(j) {
				// now, before this tick's goals are sent, so that the joint gets no goal
				f.joints[j] = f.joints[j].after(torqueTaken)
			}
		}
		f.bus.DisableTorque(joints)
	case robot.Stop:
		f.stopStalled(joints)
	}
}

// stopStalled ends the run. It allocates, once.
func (f *Follower) stopStalled(joints robot.Joints) {
	if f.failed == nil {
		f.failed = exit.Errorf(exit.Fault, "joint %d is stalled: it works hard and does not move; look for an obstacle",
			joints.First()+1)
	}
}

// stalled returns the joints that stall, if the reaction is to hold them, else 0.
//
//rt:noalloc
func (f *Follower) stalled() (joints robot.Joints) {
	if f.cfg.Safety.Stall != robot.Hold {
		return 0
	}
	for j := range f.stalls {
		if f.stalls[j].reported {
			joints |= 1 << j
		}
	}
	return joints
}
