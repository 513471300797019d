package leader

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/rt"
)

// Limits of the alignment of an actuated leader. The motion is slow, since the leader may meet a hand.
const (
	alignPace  = 0.12             // share of the joint's velocity limit: 30 degrees a second
	alignLimit = 15 * time.Second // longest duration of an alignment; half a turn takes less
	// robot units, permitted distance from the follower's pose: the leader sags under its weight. When the leader takes
	// over, the follower moves slowly by this distance
	alignNear  = 8.0
	settleFor  = 300 * time.Millisecond // time within alignNear after which the leader has arrived
	handTravel = 4.0                    // with Push: travel, in robot units, after which a hand has taken the leader
	handLimit  = time.Minute            // longest wait for a hand: motors that hold get warm
)

// alignment is one motion of the leader to the follower's pose.
type alignment struct {
	arm     *follow.Follower
	by      rt.Instant
	there   rt.Instant // start of the present stay within alignNear; 0: farther away
	settled []float32  // pose at the arrival, updated while the motors approach the follower's pose; nil: not arrived
}

// beginAlignment starts an alignment. It allocates once per take-over.
func (l *Leader) beginAlignment(now rt.Instant, number uint32) {
	l.answered = number
	if l.stiff {
		l.fail(errors.New("it does not let go"))
		return
	}
	r := l.cfg.Robot
	gate := follow.NewGate(l.cfg.Arm.Arm(), l.cfg.Every)
	l.align = &alignment{by: now.Add(alignLimit), arm: follow.New(l.cfg.Arm, follow.Config{
		Period: l.cfg.Every,
		Safety: r.Safety,
		Gate:   gate,
		Exit:   follow.ExitOff,
		Clock:  l.cfg.Clock,
	}, len(r.Motors))}
}

// alignStep drives the leader one step towards the follower. It ends the alignment when the leader has arrived or
// failed, or when the tick no longer orders it.
func (l *Leader) alignStep(now rt.Instant, order *order) {
	a := l.align
	t := rt.Tick{Deadline: now, Woke: now}
	a.arm.ReadBy(t, l.readBy(now))
	if a.arm.Stale() == 0 {
		l.keep(now, a.arm.State)
	}
	switch {
	case !order.Align || order.Number != l.answered:
		l.endAlignment(Limp)
	case l.cfg.Arm.Away() || a.arm.NeedsResume():
		l.fail(errors.New("it was unplugged, or a motor restarted; an unplugged leader stays as it is until it is " +
			"plugged in again, or its supply is off"))
	case a.arm.Fatal() != nil:
		l.fail(a.arm.Fatal())
	case now >= a.by:
		l.fail(l.obstacle(order.Place))
	case a.arm.Phase == follow.Unarmed:
		a.arm.StartArming()
	case a.arm.Phase == follow.Arming:
		touched, err := a.arm.ArmStep(t)
		l.stiff = l.stiff || touched
		if err != nil {
			l.fail(err)
		}
	default:
		a.arm.DriveAt(now, order.Place, alignPace)
		l.checkArrival(now, order)
	}
}

// checkArrival ends the alignment of a leader that has arrived: at once or, if Push is set, as soon as a hand moves it.
func (l *Leader) checkArrival(now rt.Instant, order *order) {
	a := l.align
	if a.settled != nil {
		for j, want := range order.Place {
			low, high := min(a.settled[j], want), max(a.settled[j], want)
			a.settled[j] = min(high, max(low, a.arm.Place[j])) // the motors go on to the follower's pose
		}
		if _, moved := farthest(a.arm.Place, a.settled); moved > handTravel {
			l.endAlignment(Ready)
		}
		return
	}
	if _, far := farthest(a.arm.Place, order.Place); far > alignNear {
		a.there = 0
		return
	}
	if a.there == 0 {
		a.there = now
	}
	switch {
	case now.Sub(a.there) < settleFor:
	case l.cfg.Push:
		a.settled, a.by = slices.Clone(a.arm.Place), now.Add(handLimit)
		l.say(false, "the leader is at the follower's pose: take it")
	default:
		l.endAlignment(Ready)
	}
}

// obstacle returns the reason why the leader did not arrive in time.
func (l *Leader) obstacle(place []float32) error {
	a := l.align
	if a.settled != nil {
		return fmt.Errorf("no hand took it within %v", handLimit)
	}
	j, far := farthest(a.arm.Place, place)
	m := l.cfg.Robot.Motors[j]
	if a.arm.Phase != follow.Armed {
		return fmt.Errorf("it could not be switched on within %v: hold it still", alignLimit)
	}
	low, high := a.arm.Gate().Min[j], a.arm.Gate().Max[j]
	return fmt.Errorf("its %s is at %.1f %s, %.1f from the follower's %.1f, after %v: its range is %.1f to %.1f; "+
		"look for an obstacle",
		m.Name, a.arm.Place[j], m.Norm, far, place[j], alignLimit, low, high)
}

func (l *Leader) fail(why error) {
	l.say(true, fmt.Sprintf("the leader could not be brought to the follower, which holds: %v; edge-rt ctl correct "+
		"tries again, resume gives the arm back to the policy", why))
	l.endAlignment(Failed)
}

// endAlignment ends the alignment, with end as the leader's state. From the next cycle on, relax switches the leader's
// torque off. The pose stays Stiff until the motors confirm.
func (l *Leader) endAlignment(end State) {
	l.align, l.state = nil, end
	l.leading.Forget()
	l.feeling.known, l.relaxAt = false, 0 // the next cycle calls relax
}
