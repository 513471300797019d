package follow

import (
	"fmt"
	"slices"
	"time"

	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// Parts is a robot as a run drives it: its followers, one for each part, with one vector of joints.
// A robot of one arm has one part, and Parts adds nothing to it.
//
// The parts are read at the same time (rt.Overlap). Each part has its own table of joints, and so its own silences,
// restarts, faults and stalls. If the parts are Together, all parts hold while one part is away, silent, not armed, or
// on its way back into its range, or while none of its joints may be driven; afterwards all parts go on slowly. If they
// are Apart, the other parts go on meanwhile. A restarted motor pauses the run in both cases, since an operator resumes
// a robot and not a part. Arming, parking and the end concern all parts.
//
// Owner: tick thread, except for methods marked otherwise.
type Parts struct {
	// Read only.
	State []float32 // measured, as LeRobot reports it and a policy sees it
	Place []float32 // measured, also outside the calibrated range
	Goal  []float32 // the last goals
	Phase Phase     // earliest phase of a part; Armed when one part is armed and the parts are apart

	parts   []*Follower
	names   []string // names of the parts, for errors
	apart   bool
	gate    *Gate // limits of all joints
	overlap *rt.Overlap
	cycle   *rt.Hist
	clock   rt.Clock
	holding bool // the parts are together, and one of them cannot be driven: no part may move

	// arguments of this tick's reads, for the coroutines of overlap
	tick     rt.Tick
	deadline rt.Instant
}

// Pausable is the method of a *hotplug.Arm that makes its reads overlap with reads of other buses.
type Pausable interface{ SetPause(rt.Pause) }

// One returns a robot of one part.
func One(f *Follower) *Parts {
	return &Parts{
		State: f.State,
		Place: f.Place,
		Goal:  f.Goal,
		Phase: f.Phase,
		parts: []*Follower{f},
		gate:  &f.gate,
	}
}

// Of returns the followers of a robot's parts. Of calls follower to make the follower of part i.
func Of(r robot.Robot, follower func(i int, part robot.Robot) *Follower) *Parts {
	var names []string
	var parts []*Follower
	for i, p := range r.Parts() {
		names, parts = append(names, p.Name), append(parts, follower(i, p.Robot))
	}
	if len(parts) == 1 {
		return One(parts[0])
	}
	return newParts(r.Safety.Parts, names, parts)
}

func newParts(coupling robot.Coupling, names []string, parts []*Follower) *Parts {
	n := 0
	for _, f := range parts {
		n += len(f.Goal)
	}
	p := &Parts{
		State: make([]float32, n),
		Place: make([]float32, n),
		Goal:  make([]float32, n),
		parts: parts,
		names: names,
		apart: coupling == robot.Apart,
		gate:  new(Gate),
		clock: parts[0].cfg.Clock,
		cycle: rt.NewHist(),
	}
	p.overlap = rt.NewOverlap(p.clock)
	first := 0
	for _, f := range parts {
		last := first + len(f.Goal)
		f.State, f.Place = p.State[first:last:last], p.Place[first:last:last]
		f.Goal, f.part = p.Goal[first:last:last], true
		f.first, first = first, last
		p.gate.join(&f.gate)
		pause := func(rt.Pause) {} // for a bus that never waits
		if bus, ok := f.bus.(Pausable); ok {
			pause = bus.SetPause
		}
		p.overlap.Add(func() { f.ReadBy(p.tick, p.deadline) }, pause)
	}
	return p
}

// Beside makes Read run another read at the same time, such as a leader's. Call it before the first tick, and only for
// a robot of several parts.
func (p *Parts) Beside(read func(), bus Pausable) { p.overlap.Add(read, bus.SetPause) }

// Len returns the number of parts.
func (p *Parts) Len() int { return len(p.parts) }

// Joints returns the joints of all parts.
//
//rt:noalloc
func (p *Parts) Joints() robot.Joints { return 1<<len(p.Goal) - 1 }

// Several reports whether the robot has several parts.
//
//rt:noalloc
func (p *Parts) Several() bool { return len(p.parts) > 1 }

// Read is Follower.ReadBy for all parts at the same time.
//
//rt:noalloc
func (p *Parts) Read(t rt.Tick) {
	period := p.parts[0].cfg.Period
	p.ReadBy(t, t.Deadline.Add(period-Reserve(period)))
}

// ReadBy is Read with another deadline.
//
//rt:noalloc
func (p *Parts) ReadBy(t rt.Tick, deadline rt.Instant) {
	if !p.Several() {
		p.parts[0].ReadBy(t, deadline)
		p.Phase = p.parts[0].Phase
		return
	}
	p.tick, p.deadline = t, deadline
	start := p.clock.Now()
	p.overlap.Run()
	p.cycle.Record(p.clock.Now().Sub(start))
	was := p.holding
	p.holding = !p.apart && p.stopped()
	if was && !p.holding {
		p.StartSlowly(t.Woke) // the arm has held still while the schedule ran on, so it must catch up
	}
	p.findPhase()
}

// stopped reports whether a part cannot be driven.
//
//rt:noalloc
func (p *Parts) stopped() bool {
	for _, f := range p.parts {
		if f.silent() || f.allHeld() != 0 || f.rescuing() || f.NeedsResume() {
			return true
		}
	}
	return false
}

//rt:noalloc
func (p *Parts) findPhase() {
	armed := false
	p.Phase = Done
	for _, f := range p.parts {
		p.Phase = min(p.Phase, f.Phase)
		armed = armed || f.Phase == Armed
	}
	if p.apart && armed {
		p.Phase = Armed
	}
}

// Waited returns how long the tick has waited for the buses since the last Read began.
//
//rt:noalloc
func (p *Parts) Waited() (w rt.Wait) {
	if p.Several() {
		w = p.overlap.Waited()
	}
	for _, f := range p.parts {
		w.Add(f.bus.BusWait())
	}
	return w
}

// Cycle returns the durations of the reads of all parts together, nil for a robot of one part. Any
// thread may call it.
//
//rt:noalloc
func (p *Parts) Cycle() *rt.Hist { return p.cycle }

// Apart reports whether the other parts go on while one part is away or in a rescue.
//
//rt:noalloc
func (p *Parts) Apart() bool { return p.apart && p.Several() }

// Rearming reports whether a part must be armed while another part is driven.
//
//rt:noalloc
func (p *Parts) Rearming() bool {
	return p.Phase == Armed && slices.ContainsFunc(p.parts, func(f *Follower) bool { return f.Phase == Arming })
}

// StartArming makes ArmStep arm the unarmed parts in the following ticks.
//
//rt:noalloc
func (p *Parts) StartArming() {
	for _, f := range p.parts {
		f.StartArming()
	}
	p.findPhase()
}

// CancelArming undoes StartArming for the parts of which no joint has torque yet.
//
//rt:noalloc
func (p *Parts) CancelArming() {
	for _, f := range p.parts {
		f.cancelArming()
	}
	p.findPhase()
}

// ArmStep takes the next step of arming, for one part in each tick. If the parts arm together, none is armed before all
// are ready. A part outside its range is refused before any other part is armed. touched reports whether this
// step may have switched torque on. The error has an exit code.
func (p *Parts) ArmStep(t rt.Tick) (touched bool, err error) {
	at := -1
	for i, f := range p.parts {
		if f.Phase != Arming {
			continue
		}
		joints, ready := f.jointsToArm()
		switch {
		case !ready && p.Several() && !p.apart:
			return false, nil
		case !ready && p.Several():
		case at < 0, f.bus.OutOfRange()&joints != 0 && !f.cfg.Rescue:
			at = i
		}
	}
	if at >= 0 {
		touched, err = p.parts[at].ArmStep(t)
		err = p.named(at, err)
	}
	p.findPhase()
	return touched, err
}

// named adds the name of a part to its error.
func (p *Parts) named(i int, err error) error {
	if err == nil || !p.Several() {
		return err
	}
	return fmt.Errorf("%s: %w", p.names[i], err)
}

// Drive moves one tick towards an action, as far as each joint may.
//
//rt:noalloc
func (p *Parts) Drive(now rt.Instant, action []float32) { p.DriveAt(now, action, 1) }

// DriveAt is Drive at a share (pace) of the velocity limit.
//
//rt:noalloc
func (p *Parts) DriveAt(now rt.Instant, action []float32, pace float32) {
	p.drive(now, action, pace, ^robot.Joints(0), true)
}

// DriveOnly is Drive for the parts that have one of these joints. The other parts hold.
//
//rt:noalloc
func (p *Parts) DriveOnly(now rt.Instant, action []float32, joints robot.Joints) {
	p.drive(now, action, 1, joints, true)
}

// Lead is DriveOnly for a person's action. The time for which an unknown policy drives slowly does not pass meanwhile,
// and does not slow the person.
//
//rt:noalloc
func (p *Parts) Lead(now rt.Instant, action []float32, joints robot.Joints) {
	p.drive(now, action, 1, joints, false)
}

//rt:noalloc
func (p *Parts) drive(now rt.Instant, action []float32, pace float32, joints robot.Joints, policy bool) {
	for _, f := range p.parts {
		if p.moves(f) && joints.Has(f.first) {
			f.drive(now, action[f.first:f.first+len(f.Goal)], pace, policy)
		}
	}
}

// moves reports whether a part gets goals in this tick. For a robot of one part it returns true, because only an armed
// arm is driven.
//
//rt:noalloc
func (p *Parts) moves(f *Follower) bool {
	return !p.Several() || f.Phase == Armed && !p.holding && !f.rescuing()
}

// Rescuing reports whether the tick must call RescueStep. Then it may call Drive only if the parts are apart.
//
//rt:noalloc
func (p *Parts) Rescuing() bool {
	return slices.ContainsFunc(p.parts, (*Follower).rescuing)
}

// RescueStep moves the joints outside their range one tick towards it.
func (p *Parts) RescueStep(now rt.Instant) error {
	for i, f := range p.parts {
		if f.rescuing() {
			if err := f.rescueStep(now); err != nil {
				return p.named(i, err)
			}
		}
	}
	return nil
}

// Finish ends the armed phase of every part, with parking if the exit mode is ExitPark. A part without torque stays
// without it.
//
//rt:noalloc
func (p *Parts) Finish(now rt.Instant) {
	for _, f := range p.parts {
		switch {
		case f.Phase == Armed, f.Phase == Arming && f.hasTorque():
			f.finish(now)
		case f.Phase < Armed:
			f.Phase = Done
		}
	}
	p.findPhase()
}

// ParkStep moves every part one tick towards its parking place, even if other parts hold. If hurry is true, it ends the
// parking.
//
//rt:noalloc
func (p *Parts) ParkStep(now rt.Instant, hurry bool) {
	for _, f := range p.parts {
		if f.Phase == Parking {
			f.parkStep(now, hurry)
		}
	}
	p.findPhase()
}

// ReturnStep moves one tick towards the pose of the first arming, and reports whether all parts have
// arrived. The parts stay armed.
//
//rt:noalloc
func (p *Parts) ReturnStep() (there bool) {
	there = true
	for _, f := range p.parts {
		if p.moves(f) {
			there = f.returnStep() && there
		}
	}
	return there
}

// StopBase sends the goal 0 to the wheels of a base.
//
//rt:noalloc
func (p *Parts) StopBase() {
	for _, f := range p.parts {
		f.stopBase()
	}
}

// BaseTroubles returns how often a wheel of a base has stalled, and how often one turned at another velocity than its
// goal. ok is false without a base. Owner: the caller of drive.Run.Loop, after Loop has returned.
func (p *Parts) BaseTroubles() (stalls, slips uint64, ok bool) {
	for _, f := range p.parts {
		stalls += f.base.stallCount
		slips += f.base.slipCount
		ok = ok || f.gate.Wheels != 0
	}
	return stalls, slips, ok
}

// Resume carries out an operator's command: motors that have restarted may be armed again.
//
//rt:noalloc
func (p *Parts) Resume() {
	for _, f := range p.parts {
		f.Resume()
	}
}

// NeedsResume reports whether a joint waits for Resume.
//
//rt:noalloc
func (p *Parts) NeedsResume() bool { return slices.ContainsFunc(p.parts, (*Follower).NeedsResume) }

// HasTorque reports whether this run has a joint under torque.
//
//rt:noalloc
func (p *Parts) HasTorque() bool { return slices.ContainsFunc(p.parts, (*Follower).hasTorque) }

// StartSlowly bounds the velocity of all parts until they have caught up with their actions.
//
//rt:noalloc
func (p *Parts) StartSlowly(now rt.Instant) { p.StartOnlySlowly(now, ^robot.Joints(0)) }

// StartOnlySlowly does the same as StartSlowly, but only for the parts whose first joint is one of these joints.
//
//rt:noalloc
func (p *Parts) StartOnlySlowly(now rt.Instant, joints robot.Joints) {
	for _, f := range p.parts {
		if joints.Has(f.first) {
			f.startSlowly(now)
		}
	}
}

// EaseIn makes all parts begin another policy slowly. If d is not 0 the policy is unknown, and drives slowly for the
// duration d.
//
//rt:noalloc
func (p *Parts) EaseIn(now rt.Instant, d time.Duration) {
	for _, f := range p.parts {
		f.easeIn(now, d)
	}
}

// KeepGoals writes the last goals of these joints into an action, and 0 for the wheels of a base.
//
//rt:noalloc
func (p *Parts) KeepGoals(action []float32, joints robot.Joints) {
	for _, f := range p.parts {
		f.keepGoals(action[f.first:f.first+len(f.Goal)], joints>>f.first)
	}
}

// Silent reports whether so many joints of a part are silent that it may not move. If the parts are apart, it reports
// whether this is so in every part.
//
//rt:noalloc
func (p *Parts) Silent() bool {
	if p.apart {
		return !slices.ContainsFunc(p.parts, func(f *Follower) bool { return !f.silent() })
	}
	return slices.ContainsFunc(p.parts, (*Follower).silent)
}

// Blind reports whether no observation can be sent because a joint is silent. If the parts are apart, it reports
// whether every part has a silent joint.
//
//rt:noalloc
func (p *Parts) Blind() bool {
	if p.apart {
		return !slices.ContainsFunc(p.parts, func(f *Follower) bool { return f.frozen() == 0 })
	}
	return p.Frozen() != 0
}

// Stale returns the joints without a position in this tick.
//
//rt:noalloc
func (p *Parts) Stale() robot.Joints { return p.joints((*Follower).Stale) }

// Frozen returns the joints that have been silent for so long that they keep their goal.
//
//rt:noalloc
func (p *Parts) Frozen() robot.Joints { return p.joints((*Follower).frozen) }

// Held returns the joints that keep their goal for another reason than silence.
//
//rt:noalloc
func (p *Parts) Held() robot.Joints { return p.joints((*Follower).held) }

// joints calls its parameter, of, for each part, and returns the union of the sets as joints of the robot.
//
//rt:noalloc
func (p *Parts) joints(of func(*Follower) robot.Joints) (all robot.Joints) {
	for _, f := range p.parts {
		all |= of(f) << f.first
	}
	return all
}

// AllHeld returns the joints of the parts of which no joint may be driven, because the motors complain, are limp or
// have no torque. It returns 0 while the robot moves: if the parts are apart, the robot moves as long as one part can.
//
//rt:noalloc
func (p *Parts) AllHeld() (held robot.Joints) {
	for _, f := range p.parts {
		all := f.allHeld()
		if all == 0 && p.apart {
			return 0
		}
		held |= all << f.first
	}
	return held
}

// View fills in v. The slices of v must have one element per joint.
//
//rt:noalloc
func (p *Parts) View(v *View) {
	*v = View{Conditions: v.Conditions, Complaints: v.Complaints}
	for _, f := range p.parts {
		last := f.first + len(f.Goal)
		one := View{Conditions: v.Conditions[f.first:last], Complaints: v.Complaints[f.first:last]}
		f.view(&one)
		v.Stale |= one.Stale << f.first
		v.Frozen |= one.Frozen << f.first
		v.Held |= one.Held << f.first
	}
}

// of returns the follower of joint j of the robot, and the index of the joint in this follower.
//
//rt:noalloc
func (p *Parts) of(j int) (f *Follower, own int) {
	for _, f = range p.parts {
		if own = j - f.first; own < len(f.Goal) {
			break
		}
	}
	return f, own
}

// Complaint returns the current or last event.Complaint of joint j's motor, 0 if the motor has not complained.
//
//rt:noalloc
func (p *Parts) Complaint(j int) int64 {
	f, own := p.of(j)
	return f.complaint(own)
}

// Why returns the reason for joint j's permission, in words.
func (p *Parts) Why(j int) string {
	f, own := p.of(j)
	return f.why(own)
}

// Complains returns the current complaint of joint j's motor about heat or supply, "" if it has none.
func (p *Parts) Complains(j int) string {
	f, own := p.of(j)
	return f.complains(own)
}

// Gate returns a gate with the limits of all joints. Goals pass the gates of their parts, so only the limits and
// preview of this gate may be used.
func (p *Parts) Gate() *Gate { return p.gate }

// Clipped returns the joints whose goals were clipped since the last call.
//
//rt:noalloc
func (p *Parts) Clipped() (ranged, stepped robot.Joints) {
	for _, f := range p.parts {
		r, s := f.gate.clipped()
		ranged, stepped = ranged|r<<f.first, stepped|s<<f.first
	}
	return ranged, stepped
}

// Clips returns the numbers of goals that part i's gate has clipped to a joint's range and to its travel per tick.
func (p *Parts) Clips(i int) (ranged, stepped uint64) {
	g := &p.parts[i].gate
	return g.RangeClips, g.StepClips
}

// Fatal returns the reason why the run must end, nil if it may go on.
func (p *Parts) Fatal() error {
	for i, f := range p.parts {
		if err := f.Fatal(); err != nil {
			return p.named(i, err)
		}
	}
	return nil
}

// emit emits an event about joints of this follower.
//
//rt:noalloc
func (f *Follower) emit(now rt.Instant, what event.Code, joints robot.Joints, b int64) {
	f.cfg.Events.Emit(now, what, int64(joints)<<f.first, b)
}

// itself returns the robot's joints that belong to this follower, 0 if the robot has only one part.
//
//rt:noalloc
func (f *Follower) itself() int64 {
	if !f.part {
		return 0
	}
	return int64(1)<<(f.first+len(f.Goal)) - int64(1)<<f.first
}
