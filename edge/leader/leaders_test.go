package leader

import (
	"testing"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// ofTwoJoints returns a leader without motors.
func ofTwoJoints(part string, actuated bool) *Leader {
	r := robot.Robot{Motors: make([]robot.Motor, 2), Actuated: actuated}
	return &Leader{
		cfg: Config{Part: part, Robot: r},
		poses: rt.NewLatest(func(p *Pose) {
			p.Joints = make([]float32, 2)
			p.Causes = make([]Cause, 2)
		}),
		orders: rt.NewLatest(func(o *order) { o.Place = make([]float32, 2) }),
	}
}

func (l *Leader) shows(at rt.Instant, p Pose) {
	b := l.poses.Back()
	copy(b.Joints, p.Joints)
	copy(b.Causes, p.Causes)
	b.At, b.State = at, p.State
	b.Stiff, b.Order = p.Stiff, p.Order
	b.Pushes, b.Held = p.Pushes, p.Held
	l.poses.Publish(int64(at))
}

func (l *Leader) wanted() *order {
	o, _, _ := l.orders.Front()
	return o
}

// The pose of two leaders has the older of their times, and the state of the leader that is not ready.
func TestLeadersAreOnePose(t *testing.T) {
	follower := rttest.Must(robot.ByName("bi_so101"))(t)
	left, right := ofTwoJoints("left", true), ofTwoJoints("right", true)
	both := Join(follower, []*Leader{left, right}, nil)
	left.shows(20, Pose{Joints: []float32{1, 2}, State: Ready, Order: 3, Pushes: 1})
	right.shows(10, Pose{Joints: []float32{3, 4}, State: Driven, Order: 2, Pushes: 2, Stiff: true, Held: 2,
		Causes: []Cause{0, TooFar}})
	p := both.Pose()
	if p.At != 10 || p.State != Driven || !p.Stiff || p.Order != 2 || p.Pushes != 3 || p.Held != 2<<6 {
		t.Errorf("pose %+v", p)
	}
	if p.Joints[0] != 1 || p.Joints[7] != 4 || p.Causes[7] != TooFar {
		t.Errorf("joints %v, causes %v", p.Joints, p.Causes)
	}
	right.shows(30, Pose{Joints: []float32{3, 4}, State: Ready, Order: 3})
	if p := both.Pose(); p.State != Ready || p.At != 20 || p.Stiff || p.Held != 0 {
		t.Errorf("pose %+v, want Ready", p)
	}
	left.shows(40, Pose{Joints: []float32{1, 2}, State: Failed, Order: 3})
	rttest.Want(t, both.Pose().State, Failed, "state")
	both.Want(50, 4, true, []float32{5, 6, 0, 0, 0, 0, 7, 8, 0, 0, 0, 0})
	if o := right.wanted(); o.Number != 4 || !o.Align || o.Place[0] != 7 || o.Place[1] != 8 {
		t.Errorf("right's order %+v", o)
	}
	if !both.Actuated() || Join(follower, []*Leader{left, ofTwoJoints("right", false)}, nil).Actuated() {
		t.Error("a leader that cannot be driven is one of two that can")
	}
	both.Choose(63)
	both.Want(60, 5, true, make([]float32, 12))
	if p := both.Pose(); p.At != 40 || p.State != Failed || right.wanted().Align || !left.wanted().Align {
		t.Errorf("pose %+v, right's order %+v, want left's alone", p, right.wanted())
	}
	alone := Join(follower, []*Leader{right}, nil)
	if p := alone.Pose(); p.At != 30 || p.Joints[6] != 3 || alone.Joints() != 63<<6 {
		t.Errorf("right alone: %+v of the joints %b", p, alone.Joints())
	}
	rttest.NoAllocs(t, "Pose allocates %v times", 100, func() { both.Pose() })
}
