// Package follow drives a follower arm. All goals go through a Follower, whether they
// come from a policy, a leader arm or a person.
//
// A tick of it is Read (read.go, stall.go), then one of ArmStep (arming.go), Drive,
// RescueStep or ParkStep (drive.go), or nothing: to hold, an arm is sent nothing, because
// the last goal is not safe to send again. Which goals a joint may get is one table
// (joint.go), and every goal passes one gate (gate.go).
//
// The arm's phases are Unarmed, Arming, Armed, Parking and Done. An arm that was away
// (package hotplug) comes back Unarmed; a joint whose motor has restarted then waits
// until an operator resumes the run.
package follow

import (
	"fmt"
	"time"

	"edgert/edge/event"
	"edgert/edge/hotplug"
	"edgert/internal/exit"
	"edgert/rt"
	"edgert/servo"
	"edgert/servo/robot"
)

// How long a joint may be silent.
const (
	jointStale = 100 * time.Millisecond // this joint keeps its goal
	busSilence = 200 * time.Millisecond // nothing may move
)

// Bus is what a Follower needs of an arm: of a *hotplug.Arm, and in tests of joints
// that need no motors.
type Bus interface {
	SetPeriod(time.Duration)                                // of the ticks: what a joint may travel between two
	Read(dst []float32, deadline rt.Instant) (stale uint32) // or without a position that counts: see servo.Arm.Read
	Positions(dst []float32)
	Goals(dst []float32) // as arming has set them
	Write(goal []float32, joints uint32)
	ArmStep(deadline rt.Instant, joints uint32) (armed bool, err error)
	Reconnected() (why hotplug.Cause, restarted uint32) // once after the arm was away
	Reactions() servo.Reactions
	DisableTorque(joints uint32)
	Recheck()             // compares every motor with the values it should have, as after a silence
	Unchecked() uint32    // joints that were silent and have not been compared since
	GoalMismatch() uint32 // joints whose motors have another goal than they were given, reported once
	Complaint(joint int) (fault servo.Fault, value int)
	Effort(joint int, since rt.Instant) float64
	Push(joint int, since rt.Instant) (way float32, known bool) // which way its motor pushes
	RenewTorque(joints uint32)
	Prioritize(joints uint32)
	OutOfRange() uint32
	MovedWhileArming() uint32 // limp joints that move while they are armed
	Rescue() error
	EndRescue() error
	BusWatchdogFired() bool // the motors have stopped by themselves and must be armed again
	Fatal() error           // why the run must end; nil: it need not
}

// Exit is what becomes of an arm at the end of a run.
type Exit uint8

// The exit modes. In each an arm that was never armed is left as it was found.
const (
	ExitPark Exit = iota // back to where it was armed, then torque off
	ExitHold             // torque stays on at the last goal
	ExitOff              // torque off where it stands
)

// ExitModes are the values of --on-exit.
var ExitModes = map[string]Exit{"park": ExitPark, "hold": ExitHold, "off": ExitOff}

// CheckExit refuses what --on-exit does not know.
func CheckExit(mode string) error {
	if _, known := ExitModes[mode]; !known {
		return exit.Errorf(exit.Usage, "--on-exit is %q, want park, hold or off", mode)
	}
	return nil
}

// Phase is how far an arm is.
type Phase uint8

const (
	Unarmed Phase = iota // torque is as it was found: nothing is written
	Arming               // goal := present, torque on
	Armed                // goals may be given
	Parking              // moving back to where it was armed first
	Done
)

// Config is a follower arm's.
type Config struct {
	Period time.Duration
	Safety robot.Safety
	Gate   Gate // NewGate
	Exit   Exit
	EaseIn time.Duration // an unknown policy drives the arm slowly for so long; 0: not
	Rescue bool          // an arm that stands outside its range is moved into it instead of refused
	Events *event.Queue  // may be nil
	Clock  rt.Clock      // nil: the kernel's
}

// Follower is one follower arm. Owner: tick thread.
type Follower struct {
	// Read only.
	State []float32 // measured, as LeRobot reports it: what a policy sees
	Place []float32 // measured, also outside the calibrated range
	Goal  []float32 // the last one; of joints that are not driven, what they keep
	Phase Phase

	cfg         Config
	bus         Bus
	gate        Gate
	joints      []Condition
	may         []permission
	stalls      []stall
	push        []push
	unloading   unloading
	complaints  complaints
	scratch     []float32
	reactions   servo.Reactions // the last tick's
	silence     silence
	slow        slowStart
	rescue      rescue
	parking     parking
	suspension  *rt.Suspension
	needsResume bool   // a joint waits for an operator
	rearmAll    bool   // all joints are armed again, not only those without torque
	movedLimp   uint32 // limp joints whose movement was reported while the arm is armed
	began       bool
	failed      error
}

// silence is which joints do not answer, one bit each.
type silence struct {
	lastReply []rt.Instant // per joint
	stale     uint32       // no position in this tick: no reply, or one that does not count
	frozen    uint32       // none for jointStale
	resuming  uint32       // were frozen, and have not been verified since
	strayed   uint32       // their motors hold another goal than ours, and where they are is not known yet
	bus       bool         // so many that nothing may move
}

// slowStart bounds the velocity until the goals have caught up with what is wanted.
type slowStart struct {
	active bool
	until  rt.Instant    // at least
	easeIn time.Duration // so long it still has to be driven slowly
}

// rescue is the way of joints that were found outside their range into it.
type rescue struct {
	active bool
	joints uint32 // one bit each
	end    rt.Instant
	silent event.Lacks // since it began
}

// parking is the way back to where the arm stood when it was armed first.
type parking struct {
	place []float32
	known bool
	end   rt.Instant
}

// New prepares a follower arm of n joints.
func New(bus Bus, cfg Config, n int) *Follower {
	if cfg.Clock == nil {
		cfg.Clock = rt.KernelClock()
	}
	row := func() []float32 { return make([]float32, n) }
	bus.SetPeriod(cfg.Period)
	return &Follower{
		State:      row(),
		Place:      row(),
		Goal:       row(),
		cfg:        cfg,
		bus:        bus,
		gate:       cfg.Gate,
		joints:     make([]Condition, n),
		may:        make([]permission, n),
		stalls:     make([]stall, n),
		push:       make([]push, n),
		complaints: complaints{of: make([]int64, n)},
		scratch:    row(),
		silence:    silence{lastReply: make([]rt.Instant, n)},
		slow:       slowStart{easeIn: cfg.EaseIn},
		parking:    parking{place: row()},
		suspension: rt.NewSuspension(cfg.Clock),
	}
}

// Reserve is what reading the joints leaves of a period; OpenArm refuses other rates.
func Reserve(period time.Duration) time.Duration {
	const most, share = 3 * time.Millisecond, 0.4
	return min(most, time.Duration(share*float64(period)))
}

// Resume lets motors that have restarted be armed; an operator asks for it.
//
//rt:noalloc
func (f *Follower) Resume() {
	for j := range f.joints {
		f.joints[j] = f.joints[j].after(operatorResumed)
	}
	f.needsResume = false
}

// HasTorque reports whether this run has put any joint under torque.
//
//rt:noalloc
func (f *Follower) HasTorque() bool { return f.with(Torque) != 0 }

//rt:noalloc
func (f *Follower) with(c Condition) (joints uint32) {
	for j := range f.joints {
		if f.joints[j]&c != 0 {
			joints |= 1 << j
		}
	}
	return joints
}

// NeedsResume reports whether a joint waits for Resume.
//
//rt:noalloc
func (f *Follower) NeedsResume() bool { return f.needsResume }

// StartSlowly bounds the arm's velocity until it has caught up with its actions.
//
//rt:noalloc
func (f *Follower) StartSlowly(now rt.Instant) {
	f.slow.active, f.slow.until = true, now.Add(f.cfg.Safety.SlewFor)
}

// KeepGoals puts the last goals of these joints, one bit each, into an action.
//
//rt:noalloc
func (f *Follower) KeepGoals(action []float32, joints uint32) {
	for j := range action {
		if joints&(1<<j) != 0 {
			action[j] = f.Goal[j]
		}
	}
}

// Silent reports whether so many joints do not answer that nothing may move.
//
//rt:noalloc
func (f *Follower) Silent() bool { return f.silence.bus }

// Stale returns the joints that did not answer in this tick, one bit each.
//
//rt:noalloc
func (f *Follower) Stale() uint32 { return f.silence.stale }

// Frozen returns the joints that have been silent for long and keep their goal.
//
//rt:noalloc
func (f *Follower) Frozen() uint32 { return f.silence.frozen }

// View is what a Follower knows of its joints, one bit each in the sets.
type View struct {
	Stale      uint32      // did not answer in this tick
	Frozen     uint32      // have not answered for so long that they keep their goal
	Held       uint32      // keep it for another reason
	Conditions []Condition // [joint]
	Complaints []int64     // [joint] of heat or supply, event.Complaint; of a joint that has none any more, the last
}

// View fills in v; Conditions has its length.
//
//rt:noalloc
func (f *Follower) View(v *View) {
	v.Stale, v.Frozen = f.silence.stale, f.silence.frozen
	v.Held = f.Held()
	copy(v.Conditions, f.joints)
	copy(v.Complaints, f.complaints.of)
}

// Held returns the joints that keep their goal for another reason than silence.
//
//rt:noalloc
func (f *Follower) Held() (joints uint32) {
	joints = f.with(HeatOrSupply | Overloaded | EncoderFault | Limp | Restarted)
	if f.Phase == Armed {
		joints |= (1<<len(f.joints) - 1) &^ f.with(Torque)
	}
	return joints
}

// AllHeld returns every joint's bit where the arm is armed and none of them is driven, since
// their motors complain or were let go; else 0. A reply that is lost meanwhile changes nothing.
//
//rt:noalloc
func (f *Follower) AllHeld() (joints uint32) {
	held := f.Held()
	for j := range f.joints {
		if f.Phase != Armed || held&(1<<j) == 0 || f.may[j] >= mayRelieve {
			return 0
		}
	}
	return held
}

// Why returns the reason for what joint j may get, in words.
func (f *Follower) Why(j int) string {
	if text := f.Complains(j); text != "" {
		return f.joints[j].Why() + " (" + text + ")"
	}
	return f.joints[j].Why()
}

// Complains says of what heat or supply joint j's motor complains now; "" where of nothing.
func (f *Follower) Complains(j int) string {
	if f.joints[j]&HeatOrSupply == 0 {
		return ""
	}
	return event.ComplaintText(f.Complaint(j))
}

// Gate returns the arm's gate.
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
