// Package leader is the leader arm beside a running policy. With it a person takes the follower
// over and gives it back.
//
// A thread of its own reads the leader (Run) and publishes the newest Pose for the tick, which never waits for the
// leader's bus. In each period the tick publishes an order. An actuated leader is driven to the follower's pose
// (align.go), slowly and through a gate of its own. It is limp again before the follower follows it, and has torque at
// no other time. Any other leader never gets torque, except for its triggers.
package leader

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
)

const (
	ReadEvery  = 10 * time.Millisecond // shortest interval of reads: a leader with a slow adapter is read less often
	busShare   = 0.5                   // largest share of the interval that a read may take
	slowest    = 50 * time.Millisecond // longest interval of reads; a slower bus is refused
	relaxEvery = 100 * time.Millisecond
	pushTravel = 10.0        // travel of a limp leader's joint that counts as a push, in robot units
	pushWithin = time.Second // longest time for pushTravel; a leader that sinks is slower
)

// State is the state of the leader.
type State uint8

const (
	Limp   State = iota // free to be moved
	Driven              // under torque: on its way to the follower, or there and waiting for a hand
	Ready               // limp, or about to be limp, at the follower's pose
	Failed              // could not be brought to the follower
)

// Pose is the leader's state for the tick.
type Pose struct {
	At     rt.Instant // instant at which all Joints were measured; 0: never
	Joints []float32  // [dof]
	State  State
	Stiff  bool         // torque may be on
	Order  uint32       // number of the newest order that has begun; State belongs to it
	Pushes uint32       // number of times that a hand has moved the limp leader
	Held   robot.Joints // joints that do not lead: these joints of the follower hold
	Causes []Cause      // [dof] reasons for Held
}

// order is the tick's order to the leader.
type order struct {
	Number uint32    // counts the alignments that were ordered
	Align  bool      // align now; otherwise be limp
	Place  []float32 // [dof] the follower's pose
}

// Config is the configuration of a leader arm.
type Config struct {
	Arm   *hotplug.Arm
	Part  string // part of the follower that the leader leads; empty: the whole robot
	Robot robot.Robot
	Clock rt.Clock
	Every time.Duration // interval of reads, from Interval
	// a hand takes over by moving the leader; after an alignment the leader stays under torque until a hand moves it
	Push bool
	Say  func(warn bool, text string)
}

// Leader is a leader arm. Owner: the thread of Run, except for methods marked otherwise.
type Leader struct {
	cfg    Config
	poses  *rt.Latest[Pose]  // poses for the tick
	orders *rt.Latest[order] // orders of the tick

	read     []float32 // places read last
	joints   []float32 // newest complete pose
	at       rt.Instant
	state    State
	answered uint32 // number of the newest order that has begun
	align    *alignment
	stiff    bool // torque may be on
	relaxAt  rt.Instant
	told     bool // an error of switching the torque off was reported
	feeling  feeling
	leading  *Leading
}

// New prepares a leader arm that is open and limp.
func New(cfg Config) *Leader {
	n := len(cfg.Robot.Motors)
	row := func() []float32 { return make([]float32, n) }
	cfg.Arm.SetPeriod(cfg.Every)
	return &Leader{
		cfg:     cfg,
		read:    row(),
		joints:  row(),
		feeling: feeling{rest: row()},
		leading: NewLeading(cfg.Robot),
		poses:   rt.NewLatest(func(p *Pose) { p.Joints, p.Causes = row(), make([]Cause, n) }),
		orders:  rt.NewLatest(func(o *order) { o.Place = row() }),
	}
}

// Interval returns the interval of reads for a leader. The parameter cycle is the duration of one read. The error is
// for a bus that is too slow for a leader.
func Interval(cycle time.Duration) (time.Duration, error) {
	every := max(ReadEvery, time.Duration(float64(cycle)/busShare))
	if every > slowest {
		return 0, fmt.Errorf("the leader's bus takes %v per cycle, want at most %v: set its adapter's latency timer "+
			"to 1 ms, or raise its servos' baud rate",
			cycle.Round(10*time.Microsecond), time.Duration(busShare*float64(slowest)))
	}
	return every, nil
}

// Every returns the interval of reads.
func (l *Leader) Every() time.Duration { return l.cfg.Every }

// Actuated reports whether the leader is driven to the follower's pose before it leads.
func (l *Leader) Actuated() bool { return l.cfg.Robot.Actuated }

func (l *Leader) part() string { return l.cfg.Part }

// Pose lends the newest pose until the next call. Owner: the tick thread.
//
//rt:noalloc
func (l *Leader) Pose() *Pose {
	p, _, _ := l.poses.Front()
	return p
}

// Want gives the leader its order. align is whether the leader must align now, number counts the alignments, and place
// is the follower's pose, which may have more joints than the leader. Owner: the tick thread.
//
//rt:noalloc
func (l *Leader) Want(now rt.Instant, number uint32, align bool, place []float32) {
	o := l.orders.Back()
	o.Number, o.Align = number, align
	copy(o.Place, place)
	l.orders.Publish(int64(now))
}

// Run reads the leader until ending is set, then switches its torque off. Once hurry returns true, Run stops trying.
func (l *Leader) Run(ending *atomic.Bool, hurry func() bool) (err error) {
	defer func() {
		if off := l.release(hurry); off != nil && err == nil {
			err = off
		}
	}()
	next := l.cfg.Clock.Now()
	for !ending.Load() {
		now := l.cfg.Clock.Now()
		l.cycle(now)
		if next = next.Add(l.cfg.Every); next < now {
			next = now.Add(l.cfg.Every)
		}
		l.cfg.Clock.SleepUntil(next)
	}
	return nil
}

// cycle reads the leader once and reacts to the reading and the order.
func (l *Leader) cycle(now rt.Instant) {
	order, _, _ := l.orders.Front()
	if l.align == nil && order.Align && order.Number != l.answered {
		l.beginAlignment(now, order.Number)
	}
	if l.align != nil {
		l.alignStep(now, order)
	} else {
		l.readLimp(now)
		if !order.Align && l.state != Limp {
			l.state = Limp
		}
	}
	if l.stiff && l.align == nil {
		l.relax(now)
	}
	l.publish(now)
}

func (l *Leader) readBy(now rt.Instant) rt.Instant {
	return now.Add(l.cfg.Every - follow.Reserve(l.cfg.Every))
}

// readLimp reads a leader that is not driven. A leader that returns may be under torque: it was
// unplugged under torque, or its motors boot with torque.
func (l *Leader) readLimp(now rt.Instant) {
	arm := l.cfg.Arm
	if arm.Read(l.read, l.readBy(now)) == 0 && arm.Reactions().Encoder == 0 {
		l.checkLeading(now)
		l.keep(now, l.read)
	}
	if why, _ := arm.Reconnected(); why != 0 {
		l.comeBack(why)
	}
}

func (l *Leader) comeBack(why hotplug.Cause) {
	l.say(false, fmt.Sprintf("the leader is back: %s", why))
	for _, note := range l.cfg.Arm.Arm().Notes() {
		l.say(true, "the leader: "+note)
	}
	l.leading.Forget()
	l.feeling.known = false
	if l.cfg.Robot.Actuated {
		l.stiff, l.relaxAt = true, 0
		return
	}
	if err := l.cfg.Arm.Arm().HoldTriggers(); err != nil {
		l.say(true, fmt.Sprintf("the leader's trigger is limp: %v", err))
	}
}

// checkLeading finds the joints that do not lead, and reports changes.
func (l *Leader) checkLeading(now rt.Instant) {
	began, ended := l.leading.Check(now, l.cfg.Arm)
	for cause, joints := range began {
		if joints != 0 {
			l.say(true, fmt.Sprintf("the leader's %s does not lead, and the follower's holds: %s",
				l.cfg.Robot.Joints(joints), Cause(cause)))
		}
	}
	if ended != 0 {
		l.feeling.known = false
		l.say(false, fmt.Sprintf("the leader's %s leads again, slowly at first", l.cfg.Robot.Joints(ended)))
	}
}

// keep stores a complete pose, and detects a push by a hand. Joints that do not lead keep their last place.
func (l *Leader) keep(now rt.Instant, joints []float32) {
	for j := range joints {
		if l.align != nil || !l.leading.Held().Has(j) {
			l.joints[j] = joints[j]
		}
	}
	l.at = now
	if l.align == nil && l.cfg.Push {
		l.feeling.feel(now, l.joints)
	}
}

// relax switches the leader's torque off. cycle calls it until the motors confirm.
func (l *Leader) relax(now rt.Instant) {
	if now < l.relaxAt || l.cfg.Arm.Away() {
		return
	}
	l.relaxAt = now.Add(relaxEvery)
	err := l.cfg.Arm.Arm().TorqueOff()
	if err == nil {
		l.stiff, l.told = false, false
		return
	}
	if !l.told {
		l.told = true
		l.say(true, fmt.Sprintf("the leader may be stiff, and its torque is taken again until it is limp: %v", err))
	}
}

//rt:noalloc
func (l *Leader) publish(now rt.Instant) {
	p := l.poses.Back()
	copy(p.Joints, l.joints)
	p.At = l.at
	p.State = l.state
	p.Stiff = l.stiff
	p.Order = l.answered
	p.Pushes = l.feeling.pushes
	p.Held = l.leading.Held()
	l.leading.causes(p.Causes)
	if l.align != nil {
		p.State = Driven
	}
	l.poses.Publish(int64(now))
}

// release switches the leader's torque off at the end of Run, even after a panic.
func (l *Leader) release(hurry func() bool) error {
	triggers := len(l.cfg.Arm.Arm().Triggers()) > 0
	if !l.stiff && !triggers {
		return nil
	}
	err := l.cfg.Arm.RetryTorqueOff(hurry)
	if err == nil || !l.stiff {
		return nil // a trigger's spring carries no load
	}
	return fmt.Errorf("the leader's torque may still be on: %w; hold on to it: edge-rt torque off --bus PORT --robot "+
		"%s, with its port, lets it go once its motors answer", err, l.cfg.Robot.Flag())
}

func (l *Leader) say(warn bool, text string) {
	if l.cfg.Say != nil {
		l.cfg.Say(warn, text)
	}
}

// feeling detects a hand at a limp leader.
type feeling struct {
	rest   []float32 // pose at restAt
	restAt rt.Instant
	known  bool
	pushes uint32
}

// feel counts a push when a joint has moved by pushTravel within pushWithin.
func (f *feeling) feel(at rt.Instant, joints []float32) {
	if !f.known || at.Sub(f.restAt) > pushWithin {
		copy(f.rest, joints)
		f.restAt, f.known = at, true
		return
	}
	if _, moved := farthest(joints, f.rest); moved > pushTravel {
		f.pushes++
		f.known = false
	}
}

// farthest returns the joint with the largest distance from its place in want, and this distance.
func farthest(joints, want []float32) (joint int, far float32) {
	for j := range joints {
		if d := max(joints[j]-want[j], want[j]-joints[j]); d > far {
			joint, far = j, d
		}
	}
	return joint, far
}
