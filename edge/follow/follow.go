// Package follow drives a follower arm: whoever has goals for one, a policy, a
// leader arm or a person, gives them to a Follower and to nothing else.
//
// Its tick is Read, then one of ArmOn, Drive, WalkIn or ParkOn, or nothing: an arm
// that holds is sent nothing, because the last goal is not safe to send again. Which
// joint may be told what is one table (joint.go); every goal passes one gate
// (gate.go), parking and the way in from outside the range included.
//
// The arm's phases go Untouched, Arming, Armed, Parking, Done. An arm that was away
// (package plug) comes back Untouched; a joint whose motor has restarted then waits
// for an operator's consent.
package follow

import (
	"fmt"
	"time"

	"edgert/edge/event"
	"edgert/edge/hotplug"
	"edgert/rt"
	"edgert/servo"
	"edgert/servo/robot"
)

// How long a joint may be silent.
const (
	jointStale = 100 * time.Millisecond // this joint keeps its goal
	busSilence = 200 * time.Millisecond // nothing may move
)

// Bus is what a Follower needs of an arm; *hotplug.Arm is one.
type Bus interface {
	Read(dst []float32, deadline rt.Instant) (stale uint32)
	Positions(dst []float32)
	Goals(dst []float32) // those that arming has set
	Write(goal []float32, joints uint32)
	ArmStep(deadline rt.Instant, joints uint32) (armed bool, err error)
	Reconnected() (why hotplug.Cause, restarted uint32) // once after the arm was away
	Reactions() servo.Reactions
	DisableTorque(joints uint32)
	Recheck()             // has every motor compared as after a silence
	Unchecked() uint32    // joints that were silent and have not been compared since
	GoalMismatch() uint32 // once: those that hold another goal than they were given
	Effort(joint int, since rt.Instant) float64
	Prioritize(joints uint32)
	OutOfRange() uint32
	MovedWhileArming() uint32 // limp joints that move while they are armed
	Rescue() error
	EndRescue() error
	WatchdogFired() bool // the motors have stopped by themselves and want to be armed again
	Fatal() error        // why the run must end; nil: it need not
}

// Exit says what becomes of an arm at the end of a run.
type Exit uint8

// The ways out. Whatever the mode, an arm that was never armed is left as it was
// found.
const (
	ExitPark Exit = iota // back to where it was armed, then torque off
	ExitHold             // torque stays on at the last goal
	ExitOff              // torque off where it stands
)

// ExitModes are the values of --on-exit.
var ExitModes = map[string]Exit{"park": ExitPark, "hold": ExitHold, "off": ExitOff}

// Phase is how far an arm is.
type Phase uint8

const (
	Untouched Phase = iota // torque is as it was found: nothing is written
	Arming                 // goal := present, torque on
	Armed                  // goals may be given
	Parking                // moving back to where it was armed first
	Done
)

// Config is a follower arm's.
type Config struct {
	Period time.Duration
	Safety robot.Safety
	Gate   Gate // GateOf
	Exit   Exit
	Rescue bool         // an arm that stands outside its range is walked in instead of refused
	Events *event.Queue // may be nil
	Clock  rt.Clock     // nil: the kernel's
}

// Follower is one follower arm on a tick.
//
// Owner: tick thread.
type Follower struct {
	// Lent to whoever drives: read only.
	State []float32 // measured, as LeRobot says it: what a policy sees
	Place []float32 // measured, also outside the calibrated range
	Goal  []float32 // given last; of joints that are not driven, what they hold
	Phase Phase

	cfg      Config
	bus      Bus
	gate     Gate
	joints   []Life
	may      []Permission
	stalls   []stall
	push     []float32 // per joint: which way it pushed when it was overloaded
	said     servo.Reactions
	limp     uint32
	seen     []rt.Instant // per joint
	stale    uint32       // joints that did not answer in this tick
	frozen   uint32       // those silent for long
	lapsed   uint32       // those that were, and have not been compared since
	silent   bool
	restarts bool // somebody waits for consent; said once
	began    bool

	park     []float32 // where the arm stood when it was armed first
	parked   bool      // park is set
	parkEnd  rt.Instant
	slow     bool // since it was armed the goals have not caught up with what is wanted
	slowEnd  rt.Instant
	rescuing bool
	rescued  uint32     // joints that are on their way in
	giveUp   rt.Instant // the way in
	waking   bool       // all joints are armed again, not only those without torque
	moved    uint32     // limp joints that people were told not to move
	want     []float32  // WalkIn's
	failed   error
	asleep   *rt.Suspension
}

// New prepares a follower arm of n joints.
func New(bus Bus, cfg Config, n int) *Follower {
	if cfg.Clock == nil {
		cfg.Clock = rt.KernelClock()
	}
	row := func() []float32 { return make([]float32, n) }
	return &Follower{
		State: row(), Place: row(), Goal: row(), cfg: cfg, bus: bus, gate: cfg.Gate,
		joints: make([]Life, n), may: make([]Permission, n), stalls: make([]stall, n), push: row(), seen: make([]rt.Instant, n),
		park: row(), want: row(), asleep: rt.NewSuspension(cfg.Clock),
	}
}

// Reserve is the part of a period that reading the joints leaves to the rest of the
// tick; a rate whose reads do not fit into what remains is refused when the arm is
// opened.
func Reserve(period time.Duration) time.Duration {
	const most, share = 3 * time.Millisecond, 0.4
	return min(most, time.Duration(share*float64(period)))
}

// Consent is an operator's word that motors which have restarted may be armed.
//
//rt:noalloc
func (f *Follower) Consent() {
	for j := range f.joints {
		f.joints[j] = f.joints[j].After(Consented)
	}
	f.restarts = false
}

// Stiff reports whether any joint is under torque of this run's.
//
//rt:noalloc
func (f *Follower) Stiff() bool {
	for _, l := range f.joints {
		if l&Torque != 0 {
			return true
		}
	}
	return false
}

// Waits reports whether a joint waits for an operator's consent.
//
//rt:noalloc
func (f *Follower) Waits() bool { return f.restarts }

// Slow makes the arm slow until it has caught up with what is wanted.
//
//rt:noalloc
func (f *Follower) Slow(now rt.Instant) {
	f.slow, f.slowEnd = true, now.Add(f.cfg.Safety.SlewFor)
}

// Silent reports whether so many joints do not answer that nothing may move.
//
//rt:noalloc
func (f *Follower) Silent() bool { return f.silent }

// Stale returns the joints that did not answer in this tick, Frozen those that have
// not for long, Kept those that keep their goal for another reason.
//
//rt:noalloc
func (f *Follower) Stale() uint32 { return f.stale }

//rt:noalloc
func (f *Follower) Frozen() uint32 { return f.frozen }

//rt:noalloc
func (f *Follower) Kept() (joints uint32) {
	for j := range f.joints {
		if f.joints[j]&(Heated|Pushing|Blind|Limp|Restarted) != 0 || f.Phase == Armed && f.joints[j]&Torque == 0 {
			joints |= 1 << j
		}
	}
	return joints
}

// Lives copies what is known of each joint into dst.
//
//rt:noalloc
func (f *Follower) Lives(dst []Life) { copy(dst, f.joints) }

// Why says in words why a joint is told what it is.
func (f *Follower) Why(j int) string { return f.joints[j].Why() }

// Gate is the arm's.
func (f *Follower) Gate() *Gate { return &f.gate }

// Fatal returns why the run must end, nil when it need not.
func (f *Follower) Fatal() error {
	if f.failed != nil {
		return f.failed
	}
	if err := f.bus.Fatal(); err != nil {
		return fmt.Errorf("stopped by a motor: %w", err)
	}
	return nil
}
