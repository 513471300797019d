package drive

import (
	"fmt"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// tickGrace is the time after its last tick for which the process is reported as healthy.
const tickGrace = 2 * time.Second

// Viewer carries the newest tick to the page. A nil Viewer carries nothing.
type Viewer struct {
	names, units []string
	ticks        *rt.Latest[view]
	mu           sync.Mutex // serializes the readers of ticks
}

// view is the newest tick.
type view struct {
	at       rt.Instant
	source   rt.Instant // instant of the observation that led to the arm's motion; 0: no motion
	lateness time.Duration
	state    []float32
	goal     []float32
	joints   follow.View
}

// NewViewer returns a Viewer of an arm.
func NewViewer(r robot.Robot) *Viewer {
	dof := len(r.Motors)
	return &Viewer{names: r.ActionNames(), units: r.Units(), ticks: rt.NewLatest(func(v *view) {
		v.state = make([]float32, dof)
		v.goal = make([]float32, dof)
		v.joints.Conditions = make([]follow.Condition, dof)
		v.joints.Complaints = make([]int64, dof)
	})}
}

// Publish replaces the newest tick. source is the instant of the observation that led to the arm's
// motion, 0 before the first motion. Owner: the tick.
//
//rt:noalloc
func (w *Viewer) Publish(t rt.Tick, arm *follow.Parts, source rt.Instant) {
	if w == nil {
		return
	}
	v := w.ticks.Back()
	v.at = t.Woke
	v.source = source
	v.lateness = t.Woke.Sub(t.Deadline)
	copy(v.state, arm.State)
	copy(v.goal, arm.Goal)
	arm.View(&v.joints)
	w.ticks.Publish(int64(t.Woke))
}

// Show fills l with the newest tick and its joints, and reports whether a joint is overloaded.
func (w *Viewer) Show(l *Live, now rt.Instant) (overloaded bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	v, key, _ := w.ticks.Front()
	if key == rt.NoKey {
		return false
	}
	l.Tick = LiveTick{AgeMS: Millis(now.Sub(v.at)), LatenessUS: float64(v.lateness) / 1e3}
	if v.source != 0 {
		l.Tick.ActionAgeMS = new(Millis(now.Sub(v.source)))
	}
	for j, condition := range v.joints.Conditions {
		bit := robot.Joints(1) << j
		overloaded = overloaded || condition&follow.Overloaded != 0
		joint := Joint{
			Name:       w.names[j],
			Unit:       w.units[j],
			State:      round3(float64(v.state[j])),
			Goal:       round3(float64(v.goal[j])),
			Stale:      v.joints.Stale&bit != 0,
			Frozen:     v.joints.Frozen&bit != 0,
			Held:       v.joints.Held&bit != 0,
			Conditions: condition.String(),
			Why:        condition.Why(),
		}
		if condition&follow.HeatOrSupply != 0 {
			if joint.Complaint = event.ComplaintText(v.joints.Complaints[j]); joint.Complaint != "" {
				joint.Why += " (" + joint.Complaint + ")"
			}
		}
		l.Joints = append(l.Joints, joint)
	}
	return overloaded
}

// Healthy reports whether the tick runs, with a reason when it does not.
func (w *Viewer) Healthy(now rt.Instant) (bool, string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	v, key, _ := w.ticks.Front()
	if key == rt.NoKey {
		return true, "starting"
	}
	if quiet := now.Sub(v.at); quiet > tickGrace {
		return false, fmt.Sprintf("no tick for %.0f s", quiet.Seconds())
	}
	return true, "ok"
}
