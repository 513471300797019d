package leader

import (
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// Leaders are the leaders of a robot's parts, as the tick uses them. Each has its own thread. A
// person takes over all parts at once: the oldest pose counts, and one leader that fails stops the
// take-over.
type Leaders struct {
	arms []*Leader
	pose Pose
}

// Join returns the leaders of a robot's parts, in the order of its joints.
func Join(arms []*Leader) *Leaders {
	l := &Leaders{arms: arms}
	for _, a := range arms {
		n := len(a.cfg.Robot.Motors)
		l.pose.Joints = append(l.pose.Joints, make([]float32, n)...)
		l.pose.Causes = append(l.pose.Causes, make([]Cause, n)...)
	}
	return l
}

// Pose returns the newest pose of all leaders, lent until the next call.
//
//rt:noalloc
func (l *Leaders) Pose() *Pose {
	if len(l.arms) == 1 {
		return l.arms[0].Pose()
	}
	p, first := &l.pose, 0
	p.Stiff, p.Pushes = false, 0
	p.Held = 0
	for i, a := range l.arms {
		one := a.Pose()
		copy(p.Joints[first:], one.Joints)
		copy(p.Causes[first:], one.Causes)
		p.Stiff = p.Stiff || one.Stiff
		p.Pushes += one.Pushes
		p.Held |= one.Held << robot.Joints(first)
		if first += len(one.Joints); i == 0 {
			p.At, p.Order = one.At, one.Order
			p.State = one.State
			continue
		}
		p.At, p.Order = min(p.At, one.At), min(p.Order, one.Order)
		p.State = joined(p.State, one.State)
	}
	return p
}

// joined returns the state of two leaders: one that fails, or that is still driven, is that of both.
//
//rt:noalloc
func joined(a, b State) State {
	switch {
	case a == Failed || b == Failed:
		return Failed
	case a == Driven || b == Driven || a != b:
		return Driven
	}
	return a
}

// Want gives the leaders their order: see Leader.Want.
//
//rt:noalloc
func (l *Leaders) Want(now rt.Instant, number uint32, align bool, place []float32) {
	for _, a := range l.arms {
		n := min(len(a.cfg.Robot.Motors), len(place))
		a.Want(now, number, align, place[:n])
		place = place[n:]
	}
}

// Actuated reports whether every leader can be brought to its follower.
func (l *Leaders) Actuated() bool {
	for _, a := range l.arms {
		if !a.Actuated() {
			return false
		}
	}
	return true
}
