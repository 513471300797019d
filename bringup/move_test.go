package bringup

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/table"
	"github.com/edge-rt/edge-rt/sim/servosim"
	"github.com/edge-rt/edge-rt/sim/servosim/servosimtest"
)

// Goal: a move names the joints that it first moves into their range, even those that the command does not name.
func TestMoveNamesTheJointsThatItWalksIn(t *testing.T) {
	t.Parallel()
	r := named(t, "so101")
	_, cfg, out := simArm(t, r, servosim.Config{})
	whole(t, cfg)
	c := loaded(t, cfg.Place)
	at := registers(t, cfg, r.Motors[5].ID, nil, table.PresentPosition)[0]
	c[r.Motors[5].Name] = servo.MotorCalibration{ID: int(r.Motors[5].ID), RangeMin: at + 40, RangeMax: at + 1000}
	rttest.Do(t, c.Save(cfg.File()))
	if err := moves(t, cfg, "elbow_flex", 0, 0.5); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	rttest.Contains(t, out.String(), "are moved in slowly: gripper.")
}

// Goal: a move that gives up reports the lasting cause, not a reply that was lost in its last tick.
func TestMoveNamesWhatLasted(t *testing.T) {
	t.Parallel()
	bus, cfg, _ := wholeArm(t)
	open := servo.ArmConfig{Path: cfg.Bus, Robot: cfg.Robot, Calibration: loaded(t, cfg.Place), Clock: rt.KernelClock()}
	arm := rttest.Must(servo.OpenArm(open))(t)
	h := hotplug.New(arm, open, open.Clock)
	defer h.Close()
	m := mover{arm: follow.One(follow.New(h, follow.Config{Period: movePeriod, Gate: follow.NewGate(arm, movePeriod),
		Clock: open.Clock}, len(cfg.Robot.Motors))), joint: 2}
	read := func() {
		now := open.Clock.Now()
		m.arm.Read(rt.Tick{Deadline: now, Woke: now})
		m.noteWhy()
	}
	for end := open.Clock.Now().Add(5 * time.Second); m.why == "" && open.Clock.Now() < end; {
		read()
	}
	m.bus, m.armed = h, true
	for phase, moves := range map[follow.Phase]bool{follow.Unarmed: false, follow.Arming: true, follow.Armed: true} {
		m.arm.Phase = phase
		if err := m.fault(0); (err == nil) != moves {
			t.Errorf("phase %d of an arm that was armed: %v, want the move to go on: %v", phase, err, moves)
		}
	}
	// Move waits for a joint as long as it comes nearer, and gives up a joint that does not move.
	now := open.Clock.Now()
	m.want = append(m.want, m.arm.Goal...)
	m.best = 60
	m.cfg.To = float64(m.arm.State[m.joint]) + 50
	for range 2 {
		if m.drive(now); m.giveUp != now.Add(moveExtra) {
			t.Errorf("a joint that came nearer is given up at %v, want %v later", m.giveUp, moveExtra)
		}
		m.arm.Read(rt.Tick{Deadline: now, Woke: now})
	}
	before := m.why
	bus.Unplug()
	read()
	if before == "" || m.arm.Stale() == 0 || m.why != before {
		t.Errorf("stale %b, before %q, then %q: want what was before the silence", m.arm.Stale(), before, m.why)
	}
}

// tired are joints that move at ten degrees a second, however far their goal is.
type tired struct {
	servosimtest.Shafts
	seen [6]atomic.Int64
	goal [6]atomic.Int32
}

func (p *tired) Goal(_ rt.Instant, joint, raw int) { p.goal[joint].Store(int32(raw)) }

func (p *tired) Present(now rt.Instant, joint int) int {
	const perSecond = 114
	steps := int32(now.Sub(rt.Instant(p.seen[joint].Load())).Seconds() * perSecond)
	if at := p.Raw[joint].Load(); steps > 0 {
		p.seen[joint].Store(int64(now))
		p.Raw[joint].Store(at + min(max(p.goal[joint].Load()-at, -steps), steps))
	}
	return p.Shafts.Present(now, joint)
}

// A move continues while the joint comes nearer, even at a lower speed than requested.
func TestMoveOfATiredJoint(t *testing.T) {
	t.Parallel()
	plant := new(tired)
	plant.All(2047)
	for j := range plant.goal {
		plant.goal[j].Store(2047)
	}
	_, cfg, out := simArm(t, named(t, "so101"), servosim.Config{Plant: plant})
	whole(t, cfg)
	if err := moves(t, cfg, "elbow_flex", 45, 1); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
