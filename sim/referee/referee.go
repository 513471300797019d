// Package referee checks that the driver of an arm never breaks certain rules. The package gets only
// the writes that the servos of a simulated bus receive, and the servos' states.
//
// It shares no code with the driver. It gets ranges and velocities as plain numbers, every write
// from servosim.Config.Watch, and events outside the bus (the first chunk, a pause, a consent, the
// end) through calls of its methods. Where servos differ or documents are silent it assumes the
// unsafe behaviour: a goal that is written to a limp servo switches its torque on.
//
// Rules describes the rules in short phrases for tables.
package referee

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

// Rule is one of the nine rules.
type Rule uint8

// The rules.
const (
	rangeRule Rule = iota // a goal is inside the joint's range; a joint outside moves only towards its range
	// A step from goal to goal, and from the present position to a goal, is within the velocity
	// limit. A wheel's acceleration is within its limit.
	stepRule
	torqueRule   // no torque before the first chunk or while paused
	restartRule  // no torque, without an operator, on a servo that restarted or lost its torque by itself
	endRule      // all torque off within 300 ms of every end, and no write after it
	encoderRule  // a servo whose encoder reports a fault gets no goals
	limpRule     // a joint that was made limp stays limp until a person requests torque
	overloadRule // an overloaded joint keeps its force and adds none, until a goal of the policy relieves it
	wheelRule    // a wheel's goal is 0 within 2 ticks of losing permission
	numRules
)

// Rules holds a short phrase for each rule.
var Rules = [numRules]string{
	rangeRule: "goals within range", stepRule: "steps within the velocity limit",
	torqueRule:  "no torque before the first chunk or while paused",
	restartRule: "no torque after a restart without an operator", endRule: "all off within 300 ms of the end",
	encoderRule: "no faulted encoder is driven",
	limpRule:    "limp stays limp", overloadRule: "an overloaded joint follows relief",
	wheelRule: "a wheel stops within 2 ticks of losing permission",
}

var keys = [numRules]string{"range", "step", "torque", "restart", "end", "encoder", "limp", "overload",
	"wheel"}

func (r Rule) String() string { return keys[r] }

// The limits of the rules.
const (
	stale      = 100 * time.Millisecond // silence after which a servo's next goal must be its present position
	leadFor    = 500 * time.Millisecond // a goal may be ahead of a lagging servo by its travel in this time
	offWithin  = 300 * time.Millisecond // time from an end until all torque must be off
	chunkGrace = 200 * time.Millisecond // longest delay of a chunk's report after the bus's events
	reliefIn   = 500 * time.Millisecond // longest time until the driver follows a relieving goal
	stopTicks  = 2                      // ticks after which a wheel without permission must have the goal 0
	knowTicks  = 2                      // ticks after which a driver can detect a servo's restart
	// Ticks after which the driver must have reacted to an alarm: three reads, and the present
	// tick.
	alarmTicks = 4
	noise      = 2   // counts of an encoder's noise
	rounding   = 1   // counts that rounding may add
	missedMost = 2   // largest number of successive goals that a servo may miss unnoticed
	burst      = 6   // number of ticks whose travel a servo may get at once after the host was late
	keptMost   = 256 // largest number of kept violations; all are counted
)

// The registers of a Feetech STS that the rules concern.
const (
	torqueAddr    = 40     // one byte
	goalAddr      = 42     // two bytes
	spinAddr      = 46     // two bytes
	alarmOverload = 1 << 5 // bit of its alarm
)

// Joint is one servo with its limits.
type Joint struct {
	ID       uint8
	Name     string
	Min, Max int     // the joint's range, in encoder counts
	Velocity float64 // counts per second
	Degree   float64 // counts of one degree
	// The servo turns at a goal velocity, which is at most Velocity. Min, Max and Degree do not
	// apply to it.
	Wheel        bool
	Acceleration float64 // of a wheel: counts per second squared; 0: not judged
}

// Config describes the arm to judge.
type Config struct {
	Joints []Joint
	Period time.Duration // period of the driver's tick
}

// Violation is one broken rule.
type Violation struct {
	At    rt.Instant
	Rule  Rule
	Joint string
	What  string
}

func (v Violation) String() string { return fmt.Sprintf("%s: %s: %s", v.Rule, v.Joint, v.What) }

// Figure measures one step of a goal.
type Figure struct {
	Joint   string
	Counts  int
	Degrees float64
}

// Referee judges one arm. Any thread may call its methods. A caller that permits something (a
// resume, a consent) calls the method before it sends the permission to the driver. A caller that
// forbids something (a pause) calls the method after the driver has confirmed it.
type Referee struct {
	cfg Config

	mu       sync.Mutex
	joints   []joint
	now      rt.Instant
	hasChunk bool
	early    []Violation // violations by early torque, held for chunkGrace: the chunk's report may come late
	armed    bool        // a servo has got torque in this run
	paused   bool
	ended    rt.Instant
	over     bool
	offAt    rt.Instant // time when the last servo's torque went off after the end
	judged   bool       // the end has been judged
	idleAt   rt.Instant // when the wheels lost their permission; 0: they have permission
	counts   [numRules]int
	kept     []Violation
	goals    int
	longest  Figure
}

// New returns the referee of a new run.
func New(cfg Config) *Referee {
	r := &Referee{cfg: cfg, joints: make([]joint, len(cfg.Joints))}
	for i := range r.joints {
		j := &r.joints[i]
		j.Joint = cfg.Joints[i]
		j.pace = j.Velocity
		if j.Wheel {
			j.pace = j.Acceleration
		}
		j.step = j.pace * cfg.Period.Seconds()
		j.first, j.budget = true, burst*j.step
	}
	return r
}

// Watch is a function for servosim.Config.Watch.
func (r *Referee) Watch(e *servosim.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = max(r.now, e.At)
	for i := range r.joints {
		j := &r.joints[i]
		if j.ID != e.ID || e.NotReceived {
			continue
		}
		if e.Data == nil {
			r.stateChanged(j, e)
		} else {
			r.checkWrite(j, e)
		}
		j.state = e.After
	}
	r.checkDue()
}

// NewRun reports that a person who has seen the state of the arm starts the driver, or starts it
// again.
func (r *Referee) NewRun(at rt.Instant) {
	r.record(at, func() {
		r.checkDue()
		r.hasChunk = false
		r.armed = false
		r.paused = false
		r.over = false
		r.judged = false
		r.idleAt = 0
		for i := range r.joints {
			j := &r.joints[i]
			j.fellAt = 0
			j.limp = false
			j.first = true
		}
	})
}

// FirstChunk reports that the first chunk is on its way to the driver.
func (r *Referee) FirstChunk(at rt.Instant) {
	r.record(at, func() {
		if r.hasChunk {
			return
		}
		r.hasChunk = true
		for _, v := range r.early {
			if at.Sub(v.At) > chunkGrace {
				r.addViolation(v)
			}
		}
		r.early = nil
	})
}

// Paused reports, with on true, that the driver has confirmed a pause. With on false it reports
// that the driver is about to get a resume.
func (r *Referee) Paused(at rt.Instant, on bool) {
	r.record(at, func() { r.paused = on; r.setIdle(at, on) })
}

// Idle reports, with on true, that the driver may not drive a base, since no action is fit to run
// or all motors are silent. With on false the driver may drive the base again from now on.
func (r *Referee) Idle(at rt.Instant, on bool) { r.record(at, func() { r.setIdle(at, on) }) }

func (r *Referee) setIdle(at rt.Instant, on bool) {
	r.idleAt = 0
	if on {
		r.idleAt = at
	}
	for i := range r.joints {
		r.joints[i].onward = false
	}
}

// Consent reports that an operator is about to permit the arm to continue.
func (r *Referee) Consent(at rt.Instant) {
	r.record(at, func() {
		for i := range r.joints {
			j := &r.joints[i]
			j.fellAt, j.limp = 0, false
		}
	})
}

// PolicyGoal reports the policy's goal for a joint from now on.
func (r *Referee) PolicyGoal(at rt.Instant, id uint8, raw int) {
	r.record(at, func() {
		if j := r.joint(id); j != nil && (!j.hasPolicyGoal || j.policyGoal != raw) {
			j.hasPolicyGoal = true
			j.policyGoal = raw
			j.policyGoalAt = at
		}
	})
}

// Ended reports that the driver's process has ended, or was killed.
func (r *Referee) Ended(at rt.Instant) {
	r.record(at, func() {
		r.over = true
		r.ended = at
		r.idleAt = 0 // from now on the limit offWithin applies
		r.judged = false
		r.offAt = at
	})
}

// CheckAt judges, at the instant at, the rules that depend only on time.
func (r *Referee) CheckAt(at rt.Instant) { r.record(at, func() {}) }

func (r *Referee) record(at rt.Instant, do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = max(r.now, at)
	do()
	r.checkDue()
}

func (r *Referee) joint(id uint8) *joint {
	for i := range r.joints {
		if r.joints[i].ID == id {
			return &r.joints[i]
		}
	}
	return nil
}

// checkDue judges the rules that depend only on time.
func (r *Referee) checkDue() {
	for len(r.early) > 0 && r.now.Sub(r.early[0].At) > chunkGrace {
		r.addViolation(r.early[0])
		r.early = r.early[1:]
	}
	for i := range r.joints {
		r.checkRelief(&r.joints[i])
		r.checkStopped(&r.joints[i])
	}
	if !r.over || r.judged || r.now.Sub(r.ended) < offWithin {
		return
	}
	r.judged = true
	for i := range r.joints {
		if j := &r.joints[i]; j.state.Torque {
			r.violation(r.now, endRule, j, "still under torque %v after the end",
				r.now.Sub(r.ended).Round(time.Millisecond))
		}
	}
}

func (r *Referee) violation(at rt.Instant, rule Rule, j *joint, format string, args ...any) {
	r.addViolation(Violation{
		At:    at,
		Rule:  rule,
		Joint: j.Name,
		What:  fmt.Sprintf(format, args...),
	})
}

func (r *Referee) addViolation(v Violation) {
	r.counts[v.Rule]++
	if len(r.kept) < keptMost {
		r.kept = append(r.kept, v)
	}
}

// Verdict is the result of a run so far.
type Verdict struct {
	Violations [numRules]int // violations by rule
	Kept       []Violation   // the first violations, keptMost at most
	Goals      int           // number of judged goals
	Longest    Figure        // the longest step of a goal
	OffAfter   time.Duration // time from the end until the last servo's torque went off; negative: it has not gone off
}

// Verdict returns the result of the run so far.
func (r *Referee) Verdict() Verdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := Verdict{
		Violations: r.counts,
		Kept:       slices.Clone(r.kept),
		Goals:      r.goals,
		Longest:    r.longest,
		OffAfter:   r.offAt.Sub(r.ended),
	}
	for i := range r.joints {
		if r.joints[i].state.Torque {
			v.OffAfter = -1
		}
	}
	return v
}
