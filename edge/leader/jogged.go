package leader

import (
	"github.com/edge-rt/edge-rt/edge/jog"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// Jogged makes the keys of a Jog lead: its pose is the follower's goal, moved by one tick of the
// pressed keys. Owner: the tick thread.
type Jogged struct {
	keys *jog.Jog
	step []float32 // of the follower's joints in one tick
	pose Pose
}

// NewJogged returns the leader of a follower whose joints travel step in a tick, at most.
func NewJogged(keys *jog.Jog, step []float32) *Jogged {
	return &Jogged{keys: keys, step: step, pose: Pose{Joints: make([]float32, len(step))}}
}

// Choose does nothing: a part that no key moves keeps its goal.
//
//rt:noalloc
func (*Jogged) Choose(robot.Joints) {}

// Pose returns the pose of the newest Want.
//
//rt:noalloc
func (j *Jogged) Pose() *Pose { return &j.pose }

// Want makes the pose of this tick from the follower's goal.
//
//rt:noalloc
func (j *Jogged) Want(now rt.Instant, _ uint32, _ bool, goal []float32) {
	j.pose.At = now
	j.keys.Next(now, goal, j.step, j.pose.Joints[:len(j.keys.Names())])
}

// Actuated reports that no arm has to come to the follower.
func (*Jogged) Actuated() bool { return false }
