// Package follow drives a follower arm. Only a Follower writes goals to the arm, for every source of motion. The
// sources are a policy or a person's leader arm (edge/mode.go selects one in each tick), a teleoperation or a replay
// (package attend), and edge-rt move.
//
// A tick is Read (read.go, stall.go), then one of ArmStep (arming.go), Drive, RescueStep or ParkStep (drive.go), or no
// call. Without a call nothing is sent and the motors hold, since it is not safe to send the last goal again. A table
// determines the goals that a joint may get (joint.go), and every goal passes the gate (gate.go). A policy's actions
// come from a Core (core.go). The wheels of a base get a goal of 0 after a tick that does not drive the arm (base.go).
//
// The arm's phases are Unarmed, Arming, Armed, Parking and Done. An arm that was away (package hotplug) returns
// Unarmed; a joint whose motor has restarted then waits until an operator resumes the run.
package follow

import (
	"fmt"
	"time"

	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// Limits of a joint's silence.
const (
	jointStale = 100 * time.Millisecond // silence after which the joint keeps its goal
	busSilence = 200 * time.Millisecond // silence after which nothing may move
)

// Bus is the part of a *hotplug.Arm that a Follower needs. Tests use joints without motors.
type Bus interface {
	SetPeriod(time.Duration) // sets the period of the ticks, which bounds the travel between two reads
	// stale includes joints with an implausible position: see servo.Arm.Read
	Read(dst []float32, deadline rt.Instant) (stale robot.Joints)
	Positions(dst []float32)
	Jumped() robot.Joints // see servo.Arm.Jumped
	Goals(dst []float32)  // writes into dst the newest goals that ArmStep or Write has sent
	Write(goal []float32, joints robot.Joints)
	ArmStep(deadline rt.Instant, joints robot.Joints) (armed bool, err error)
	Reconnected() (why hotplug.Cause, restarted robot.Joints) // returns a cause once after each absence of the arm
	Reactions() servo.Reactions
	DisableTorque(joints robot.Joints)
	Recheck()                   // makes the next reads compare every motor with its expected values, as after a silence
	Unchecked() robot.Joints    // joints that were silent and have not been compared since
	GoalMismatch() robot.Joints // joints whose motors hold another goal than the last one sent, each returned once
	Complaint(joint int) (fault servo.Fault, value int)
	Effort(joint int, since rt.Instant) float64
	Push(joint int, since rt.Instant) (way float32, known bool) // direction in which the joint's motor pushes
	RenewTorque(joints robot.Joints)
	Prioritize(joints robot.Joints)
	OutOfRange() robot.Joints
	MovedWhileArming() robot.Joints // limp joints that move during the arming
	Rescue() error
	EndRescue() error
	BusWait() rt.Wait                    // time spent waiting for the bus since the last Read began
	Wheel(joint int) (goal, present int) // goal and present velocity of a base's wheel, in counts per second
	BusWatchdogFired() bool              // the motors have stopped by themselves and must be armed again
	Fatal() error                        // reason why the run must end; nil: the run may go on
}

// Exit is the treatment of an arm at the end of a run.
type Exit uint8

// The exit modes. In every mode an arm that was never armed keeps its torque state.
const (
	ExitPark Exit = iota // back to the pose of the first arming, then torque off
	ExitHold             // torque stays on at the last goal
	ExitOff              // torque off at the present pose
)

// ExitModes are the values of --on-exit.
var ExitModes = map[string]Exit{"park": ExitPark, "hold": ExitHold, "off": ExitOff}

// CheckExit refuses an unknown value of --on-exit.
func CheckExit(mode string) error {
	if _, known := ExitModes[mode]; !known {
		return exit.Errorf(exit.Usage, "--on-exit is %q, want park, hold or off", mode)
	}
	return nil
}

// Phase is the phase of an arm in a run.
type Phase uint8

const (
	Unarmed Phase = iota // nothing is written: the torque stays as it was at the start
	Arming               // goal := present, torque on
	Armed                // goals may be given
	Parking              // moving back to the pose of the first arming
	Done
)

// Config is the configuration of a follower arm.
type Config struct {
	Period time.Duration
	Safety robot.Safety
	Gate   Gate // made by NewGate
	Exit   Exit
	EaseIn time.Duration // time for which an unknown policy drives the arm slowly; 0: not slowly
	Rescue bool          // the run moves an arm outside its range into the range, instead of refusing it
	Events *event.Queue  // may be nil
	Clock  rt.Clock      // nil: the kernel's clock
}

// Follower is one follower arm. Owner: tick thread.
type Follower struct {
	// Read only.
	State []float32 // measured, as LeRobot reports it and a policy sees it
	Place []float32 // measured, also outside the calibrated range
	Goal  []float32 // the last goals; for a joint without torque, its place
	Phase Phase

	cfg         Config
	bus         Bus
	gate        Gate
	joints      []Condition
	may         []permission
	stalls      []stall
	base        base
	push        []push
	unloading   unloading
	complaints  complaints
	scratch     []float32
	jumpTold    rt.Instant      // instant of the last event.JointJumped
	reactions   servo.Reactions // reactions in the last tick
	silence     silence
	slow        slowStart
	rescue      rescue
	parking     parking
	suspension  *rt.Suspension
	needsResume bool         // a joint waits for an operator
	rearmAll    bool         // all joints are armed again, not only the joints without torque
	movedLimp   robot.Joints // limp joints whose motion during the arming was reported
	began       bool
	failed      error

	// The next fields are set in a robot of several parts, see Parts.
	first int  // index of the follower's first joint among the robot's joints
	part  bool // the robot has other parts
}

// silence tracks the joints that do not answer.
type silence struct {
	lastReply []rt.Instant // per joint
	stale     robot.Joints // no position in this tick: no reply, or an implausible position
	frozen    robot.Joints // no position for jointStale
	resuming  robot.Joints // joints that were frozen and have not been verified since
	strayed   robot.Joints // joints whose motors hold another goal than ours, and whose places are not known yet
	bus       bool         // so many joints are silent that no joint may move
}

// slowStart bounds the velocity until the goals have caught up with the actions.
type slowStart struct {
	active bool
	until  rt.Instant    // earliest end
	easeIn time.Duration // remaining time of the slow driving
}

// rescue is the motion that brings joints from outside their range back into it.
type rescue struct {
	active bool
	joints robot.Joints
	left   time.Duration // remaining time; pauses do not count
	silent event.Lacks   // silences since the rescue began
}

// parking is the way back to the pose of the first arming.
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
		base:       base{slips: make([]slip, n)},
		complaints: complaints{of: make([]int64, n)},
		scratch:    row(),
		silence:    silence{lastReply: make([]rt.Instant, n)},
		slow:       slowStart{easeIn: cfg.EaseIn},
		parking:    parking{place: row()},
		suspension: rt.NewSuspension(cfg.Clock),
	}
}

// Reserve returns the part of a period that must remain after the joints are read. A bus that drive.BusCheck accepts
// can be read before that part.
func Reserve(period time.Duration) time.Duration {
	const most, share = 3 * time.Millisecond, 0.4
	return min(most, time.Duration(share*float64(period)))
}

// Resume carries out an operator's command: motors that have restarted may be armed again.
//
//rt:noalloc
func (f *Follower) Resume() {
	for j := range f.joints {
		f.joints[j] = f.joints[j].after(operatorResumed)
	}
	f.needsResume = false
}

// hasTorque reports whether this run has a joint under torque.
//
//rt:noalloc
func (f *Follower) hasTorque() bool { return f.with(Torque) != 0 }

//rt:noalloc
func (f *Follower) with(c Condition) (joints robot.Joints) {
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

// startSlowly bounds the arm's velocity until it has caught up with its actions.
//
//rt:noalloc
func (f *Follower) startSlowly(now rt.Instant) {
	f.slow.active, f.slow.until = true, now.Add(f.cfg.Safety.SlewFor)
}

// keepGoals writes the last goals of these joints into an action, and 0 for the wheels of a base.
//
//rt:noalloc
func (f *Follower) keepGoals(action []float32, joints robot.Joints) {
	for j := range action {
		if joints.Has(j) {
			action[j] = f.Goal[j]
			if f.gate.Wheels.Has(j) {
				action[j] = 0
			}
		}
	}
}

// silent reports whether too many joints are silent, so that no joint may move.
//
//rt:noalloc
func (f *Follower) silent() bool { return f.silence.bus }

// Stale returns the joints without a position in this tick.
//
//rt:noalloc
func (f *Follower) Stale() robot.Joints { return f.silence.stale }

// frozen returns the joints that have been silent for jointStale and keep their goal.
//
//rt:noalloc
func (f *Follower) frozen() robot.Joints { return f.silence.frozen }

// View is the state of the joints of a robot or of one of its parts. A robot.Joints is a set with one bit for each
// joint.
type View struct {
	Stale      robot.Joints // joints without a position in this tick
	Frozen     robot.Joints // joints that are silent for so long that they keep their goal
	Held       robot.Joints // joints that keep their goal for another reason
	Conditions []Condition  // [joint]
	Complaints []int64      // [joint] the current or last event.Complaint about heat or supply
}

// view fills in v. The slices of v must have one element per joint.
//
//rt:noalloc
func (f *Follower) view(v *View) {
	v.Stale, v.Frozen = f.silence.stale, f.silence.frozen
	v.Held = f.held()
	copy(v.Conditions, f.joints)
	copy(v.Complaints, f.complaints.of)
}

// held returns the joints that keep their goal for another reason than silence.
//
//rt:noalloc
func (f *Follower) held() (joints robot.Joints) {
	joints = f.with(HeatOrSupply | Overloaded | EncoderFault | Limp | Restarted)
	if f.Phase == Armed {
		joints |= (1<<len(f.joints) - 1) &^ f.with(Torque)
	}
	return joints
}

// allHeld returns all joints if the arm is armed and no joint may be driven, because the motors complain, are limp or
// have no torque. Otherwise it returns 0. A lost reply does not change the result.
//
//rt:noalloc
func (f *Follower) allHeld() (joints robot.Joints) {
	held := f.held()
	for j := range f.joints {
		if f.Phase != Armed || !held.Has(j) || f.may[j] >= mayRelieve {
			return 0
		}
	}
	return held
}

// why returns the reason for joint j's permission, in words.
func (f *Follower) why(j int) string {
	if text := f.complains(j); text != "" {
		return f.joints[j].Why() + " (" + text + ")"
	}
	return f.joints[j].Why()
}

// complains returns the current complaint of joint j's motor about heat or supply, "" if it has none.
func (f *Follower) complains(j int) string {
	if f.joints[j]&HeatOrSupply == 0 {
		return ""
	}
	return event.ComplaintText(f.complaint(j))
}

// Gate returns the arm's gate.
func (f *Follower) Gate() *Gate { return &f.gate }

// Fatal returns the reason why the run must end, nil if it may go on.
func (f *Follower) Fatal() error {
	if f.failed != nil {
		return f.failed
	}
	if err := f.bus.Fatal(); err != nil {
		return fmt.Errorf("stopped by a motor: %w", err)
	}
	return nil
}
