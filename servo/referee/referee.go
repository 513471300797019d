// Package referee holds the driver of an arm against rules that it must never
// break, by nothing but what the servos of a simulated bus receive and become.
//
// It shares no line with the driver: it gets ranges and velocities as plain
// numbers, every write from servosim.Config.Watch, and what only people and the
// network know (the first chunk, a pause, a consent, the end) by calls of its
// methods. Where servos differ or documents are silent it takes the unsafe
// reading: a goal that is written to a limp servo switches its torque on.
//
// The rules, in words that a table may use, are in Rules.
package referee

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"edgert/rt"
	"edgert/servo/servosim"
)

// Rule is one of the eight.
type Rule uint8

// The rules.
const (
	Range    Rule = iota // a goal lies inside the joint's range; a joint outside it is only moved towards it
	Step                 // from goal to goal, and from present to goal, within the velocity limit
	Torque               // no torque before the first chunk, nor while paused
	Restart              // no torque on a servo that restarted or let go by itself, without an operator
	End                  // all off within 300 ms of every end, and nothing after it
	Encoder              // a servo whose encoder reports a fault is not driven
	Limp                 // what was let go stays so until somebody asks for it
	Overload             // an overloaded joint keeps its force, adds none, and follows relief
	numRules
)

// Rules says what each rule demands.
var Rules = [numRules]string{
	Range: "goals within range", Step: "steps within the velocity limit", Torque: "no torque before the first chunk or while paused",
	Restart: "no torque after a restart without an operator", End: "all off within 300 ms of the end", Encoder: "no faulted encoder is driven",
	Limp: "limp stays limp", Overload: "an overloaded joint follows relief",
}

var keys = [numRules]string{"range", "step", "torque", "restart", "end", "encoder", "limp", "overload"}

func (r Rule) String() string { return keys[r] }

// What the rules allow.
const (
	stale      = 100 * time.Millisecond // silence after which a servo's first goal must be where it stands
	leadFor    = 500 * time.Millisecond // that a goal may be ahead of a servo that lags, as time at full speed
	offWithin  = 300 * time.Millisecond // after an end
	chunkGrace = 200 * time.Millisecond // by which the network's news of a chunk may come after the bus's
	reliefIn   = 500 * time.Millisecond // in which a goal that relieves is taken up
	knowTicks  = 2                      // until a driver can know what a servo did by itself
	alarmTicks = 4                      // until an alarm counts: three reads, and the tick under way
	noise      = 2                      // counts that an encoder may be off
	rounding   = 1                      // count
	missedMost = 2                      // goals in a row that a servo may have missed without anybody's knowing
	burst      = 6                      // ticks' travel that may come at once after a host that was away
	keptMost   = 256                    // violations kept; all are counted
)

// Where a Feetech STS has what the rules are about.
const (
	torqueAddr    = 40     // one byte
	goalAddr      = 42     // two bytes
	alarmOverload = 1 << 5 // bit of its alarm
)

// Joint is one servo and what may be asked of it.
type Joint struct {
	ID       uint8
	Name     string
	Min, Max int     // raw
	Velocity float64 // counts per second
	Degree   float64 // counts, of one degree
}

// Config is the arm to judge.
type Config struct {
	Joints []Joint
	Period time.Duration // the driver's tick
}

// Violation is one broken rule.
type Violation struct {
	At    rt.Instant
	Rule  Rule
	Joint string
	What  string
}

func (v Violation) String() string { return fmt.Sprintf("%s: %s: %s", v.Rule, v.Joint, v.What) }

// Figure is one step of a goal.
type Figure struct {
	Joint   string
	Counts  int
	Degrees float64
}

// Referee judges one arm. Its methods may be called by any thread, in the order of
// people's acts: one that allows something (a resume, a consent) before it begins, one
// that forbids (a pause) after it has taken effect.
type Referee struct {
	cfg Config

	mu       sync.Mutex
	joints   []joint
	now      rt.Instant
	chunk    rt.Instant // the first; 0: none yet
	hasChunk bool
	early    []Violation // torque without a chunk, until the network has had its time
	armed    bool        // some servo had torque from this run
	paused   bool
	ended    rt.Instant
	over     bool
	offAt    rt.Instant // when the last servo's torque went off after the end
	judged   bool       // the end
	counts   [numRules]int
	kept     []Violation
	goals    int
	longest  Figure
}

// New returns a referee of a run that begins.
func New(cfg Config) *Referee {
	r := &Referee{cfg: cfg, joints: make([]joint, len(cfg.Joints))}
	for i := range r.joints {
		j := &r.joints[i]
		j.Joint = cfg.Joints[i]
		j.step = j.Velocity * cfg.Period.Seconds()
		j.first, j.budget = true, burst*j.step
	}
	return r
}

// Watch is for servosim.Config.
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

// NewRun says that a person starts the driver (again), and has seen what came before.
func (r *Referee) NewRun(at rt.Instant) {
	r.record(at, func() {
		r.checkDue()
		r.hasChunk, r.armed, r.paused, r.over, r.judged = false, false, false, false, false
		for i := range r.joints {
			j := &r.joints[i]
			j.fellAt, j.limp, j.first = 0, false, true
		}
	})
}

// FirstChunk says that the first chunk was on its way to the driver.
func (r *Referee) FirstChunk(at rt.Instant) {
	r.record(at, func() {
		if r.hasChunk {
			return
		}
		r.hasChunk, r.chunk = true, at
		for _, v := range r.early {
			if at.Sub(v.At) > chunkGrace {
				r.addViolation(v)
			}
		}
		r.early = nil
	})
}

// Paused says that the driver has confirmed a pause, or will be told to resume.
func (r *Referee) Paused(at rt.Instant, on bool) { r.record(at, func() { r.paused = on }) }

// Consent says that an operator is about to let the arm go on.
func (r *Referee) Consent(at rt.Instant) {
	r.record(at, func() {
		for i := range r.joints {
			j := &r.joints[i]
			j.fellAt, j.limp = 0, false
		}
	})
}

// PolicyGoal says where the policy wants a joint to be from now on.
func (r *Referee) PolicyGoal(at rt.Instant, id uint8, raw int) {
	r.record(at, func() {
		if j := r.joint(id); j != nil && (!j.hasPolicyGoal || j.policyGoal != raw) {
			j.hasPolicyGoal, j.policyGoal, j.policyGoalAt = true, raw, at
		}
	})
}

// Ended says that the driver's process has ended, or was killed.
func (r *Referee) Ended(at rt.Instant) {
	r.record(at, func() {
		r.over, r.ended, r.judged, r.offAt = true, at, false, at
	})
}

// CheckAt judges what is due by an instant.
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

// checkDue judges what time alone decides.
func (r *Referee) checkDue() {
	for len(r.early) > 0 && r.now.Sub(r.early[0].At) > chunkGrace {
		r.addViolation(r.early[0])
		r.early = r.early[1:]
	}
	for i := range r.joints {
		r.checkRelief(&r.joints[i])
	}
	if !r.over || r.judged || r.now.Sub(r.ended) < offWithin {
		return
	}
	r.judged = true
	for i := range r.joints {
		if j := &r.joints[i]; j.state.Torque {
			r.violation(r.now, End, j, "still under torque %v after the end", r.now.Sub(r.ended).Round(time.Millisecond))
		}
	}
}

func (r *Referee) violation(at rt.Instant, rule Rule, j *joint, format string, args ...any) {
	r.addViolation(Violation{At: at, Rule: rule, Joint: j.Name, What: fmt.Sprintf(format, args...)})
}

func (r *Referee) addViolation(v Violation) {
	r.counts[v.Rule]++
	if len(r.kept) < keptMost {
		r.kept = append(r.kept, v)
	}
}

// Verdict is what came of a run so far.
type Verdict struct {
	Violations [numRules]int // per rule
	Kept       []Violation   // the first of them
	Goals      int           // that were judged
	Longest    Figure        // the longest step of a goal
	OffAfter   time.Duration // from the end to the last servo's torque; negative: still on
}

// Verdict returns what came of it so far.
func (r *Referee) Verdict() Verdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := Verdict{Violations: r.counts, Kept: slices.Clone(r.kept), Goals: r.goals, Longest: r.longest, OffAfter: r.offAt.Sub(r.ended)}
	for i := range r.joints {
		if r.joints[i].state.Torque {
			v.OffAfter = -1
		}
	}
	return v
}
