package leader

import (
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// Leaders are the leaders of a robot's parts, as the tick uses them. Each leader has its own thread, or is on another
// machine. The chosen leaders take over together: their common pose is as old as the oldest of their poses, and if one
// leader fails, the take-over fails.
type Leaders struct {
	arms   []joined
	chosen robot.Joints
	pose   Pose
}

// arm is a Leader or a Remote.
type arm interface {
	Pose() *Pose
	Want(now rt.Instant, number uint32, align bool, place []float32)
	Actuated() bool
	part() string // name of the follower's part; empty: the whole robot
}

// joined is the leader of one part, or of the whole robot.
type joined struct {
	arm
	first  int // index of its first joint among the follower's joints
	joints robot.Joints
}

// Join returns the leaders of a follower's parts, all of them chosen.
func Join(follower robot.Robot, here []*Leader, far Remotes) *Leaders {
	n := len(follower.Motors)
	l := &Leaders{pose: Pose{Joints: make([]float32, n), Causes: make([]Cause, n)}}
	add := func(a arm) {
		joints := PartJoints(follower, a.part())
		l.arms = append(l.arms, joined{a, joints.First(), joints})
		l.chosen |= joints
	}
	for _, a := range here {
		add(a)
	}
	for _, a := range far {
		add(a)
	}
	return l
}

// PartJoints returns the joints of the part with this name, and all joints if no part has the name.
func PartJoints(follower robot.Robot, name string) robot.Joints {
	for _, p := range follower.Parts() {
		if p.Name == name {
			return p.Joints()
		}
	}
	return 1<<len(follower.Motors) - 1
}

// Joints returns the follower's joints of all parts with a leader.
func (l *Leaders) Joints() (joints robot.Joints) {
	for _, a := range l.arms {
		joints |= a.joints
	}
	return joints
}

// Choose chooses the leaders of these joints. The other leaders stay limp, and their poses do not count.
//
//rt:noalloc
func (l *Leaders) Choose(joints robot.Joints) { l.chosen = joints }

// Pose returns the newest pose of the chosen leaders, with the indexes of the follower's joints. It is lent until the
// next call. Pushes counts the pushes of all leaders, chosen or not.
//
//rt:noalloc
func (l *Leaders) Pose() *Pose {
	p, found := &l.pose, false
	p.Stiff, p.Pushes = false, 0
	p.Held = 0
	for i := range l.arms {
		a := &l.arms[i]
		one := a.Pose()
		p.Pushes += one.Pushes
		if a.joints&l.chosen == 0 {
			continue
		}
		copy(p.Joints[a.first:], one.Joints)
		copy(p.Causes[a.first:], one.Causes)
		p.Stiff = p.Stiff || one.Stiff
		p.Held |= one.Held << a.first
		if !found {
			found = true
			p.At, p.Order = one.At, one.Order
			p.State = one.State
			continue
		}
		p.At, p.Order = min(p.At, one.At), min(p.Order, one.Order)
		p.State = together(p.State, one.State)
	}
	return p
}

// together returns the common state of two leaders: Failed if one has failed, the state of both if it is the same, and
// else Driven.
//
//rt:noalloc
func together(a, b State) State {
	switch {
	case a == Failed || b == Failed:
		return Failed
	case a == Driven || b == Driven || a != b:
		return Driven
	}
	return a
}

// Want gives the leaders their order: see Leader.Want. Only the chosen leaders align.
//
//rt:noalloc
func (l *Leaders) Want(now rt.Instant, number uint32, align bool, place []float32) {
	for i := range l.arms {
		a := &l.arms[i]
		a.arm.Want(now, number, align && a.joints&l.chosen != 0, place[a.first:])
	}
}

// Actuated reports whether every chosen leader can be driven to its follower's pose.
//
//rt:noalloc
func (l *Leaders) Actuated() bool {
	for i := range l.arms {
		if a := &l.arms[i]; a.joints&l.chosen != 0 && !a.arm.Actuated() {
			return false
		}
	}
	return true
}
