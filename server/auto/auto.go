// Package auto decides, for max_sessions: auto, how many robots are let in: as many as inferences
// can still feed at their present duration (plan.Gate).
//
// A slow spell of the machine must not keep robots out for ever: the first robot always gets in,
// because an inference that never runs is never measured, and after a while without requests the
// times of the warm-up count where they were shorter.
package auto

import (
	"time"

	"edgert/policy"
	"edgert/rt"
	"edgert/server/batch"
	"edgert/server/plan"
)

const (
	// verdictTime is how long a refusal is valid for the same sessions: asking costs some 10 ms of
	// virtual robots, and any client may open.
	verdictTime = 100 * time.Millisecond
	// After idleMeasures without a request, one a second, the measured inference times are too old:
	// then those of the warm-up count where they were faster, so that a slow spell whose end no
	// request shows does not keep robots out for ever.
	idleMeasures = 10
	// askingMost is how long robots may be played at once for those that ask, and
	// askingShare the part of the time that they may be later: of a hundred robots a play
	// takes some 10 ms, and who opens and closes in a loop must not take a core from the
	// policy.
	askingMost  = time.Second
	askingShare = 10
)

// Auto is one server's decision.
//
// Owner: housekeeping.
type Auto struct {
	// Constant.
	meta  *policy.Meta
	gate  *plan.Gate
	clock rt.Clock
	sizes *batch.Sizes // duration of inferences
	warm  []plan.Size  // and took in the warm-up; set by Begin

	usual, faster verdict       // the last verdict on a robot of the policy's rate or a lower one, and on a faster one, whose refusal does not concern others
	asking        time.Duration // spent on those that ask, less askingShare of the time since
	asked         rt.Instant    // when that was
	answered      uint64        // requests at the last measure
	change        uint64        // of the sessions then
	settled       bool          // nothing has changed since the number of sessions was found
	idle          int           // measures since there was a request
}

// verdict is the decision on a robot beside the sessions of that time.
type verdict struct {
	change uint64 // of the sessions that it was about
	at     rt.Instant
	whyNot string
}

// New returns an Auto for a policy with a scheduler; sizes holds the durations of its inferences.
// Begin comes first.
func New(m *policy.Meta, scheduler string, sizes *batch.Sizes, clock rt.Clock) *Auto {
	return &Auto{meta: m, gate: plan.NewGate(m, scheduler), sizes: sizes, clock: clock}
}

// Robot describes a robot by its control steps a second, the policy's own where it names no rate or
// an impossible one, and by the time between its requests, 0: unknown. A robot that asks more
// seldom than edge-rt does by itself may ask as often tomorrow.
func (a *Auto) Robot(fps float64, every time.Duration) plan.Robot {
	if !plan.Playable(fps) {
		fps = a.meta.FPS
	}
	r := plan.Robot{FPS: fps, Execute: plan.Execute(a.meta), RoundTrip: plan.RoundTrip}
	if every > 0 {
		r.FPS = min(max(fps, 1/every.Seconds()), plan.FPSMost)
		r.Execute = min(r.Execute, max(1, int(every.Seconds()*r.FPS)))
		r.RoundTrip = min(r.RoundTrip, every/2) // else it could not ask so often
	}
	return r
}

// Refuse returns why one robot more beside the present ones would leave some without chunks, ""
// when all are fed. change differs when the sessions do; others is called when the verdict of a
// moment ago does not hold.
func (a *Auto) Refuse(robot plan.Robot, change uint64, others func() []plan.Robot) (whyNot string) {
	now, v := a.clock.Now(), &a.usual
	if robot.FPS > a.meta.FPS {
		v = &a.faster
	}
	if v.whyNot != "" && v.change == change && now.Sub(v.at) < verdictTime {
		return v.whyNot
	}
	a.asking, a.asked = max(0, a.asking-now.Sub(a.asked)/askingShare), now
	if a.asking > askingMost {
		return "it is not known whether all are fed: too many open and leave here"
	}
	*v = verdict{change, now, a.gate.Feeds(append(others(), robot))}
	a.asking += a.clock.Now().Sub(now)
	return v.whyNot
}

// Begin takes what inferences took in the warm-up, and returns how many robots of the
// policy's own rate that feeds.
func (a *Auto) Begin() (fed int) {
	a.warm = a.took()
	a.gate.Learn(a.warm)
	return a.gate.Most(nil, a.Robot(0, 0))
}

// Measure takes the present duration of inferences, once a second, and returns for how many
// sessions that is enough: of robots like the present ones, and of the policy's own rate beyond.
// fed is its last result; answered counts all requests so far.
func (a *Auto) Measure(answered, change uint64, fed int, robots func() []plan.Robot) int {
	if a.idle++; answered != a.answered {
		a.answered, a.idle = answered, 0
	}
	if a.gate.Learn(a.took()) || change != a.change {
		a.change, a.usual, a.faster, a.settled = change, verdict{}, verdict{}, false
	}
	if a.settled {
		return fed
	}
	here := robots()
	fed, a.settled = a.gate.Approach(here, a.Robot(0, 0), max(fed, 1))
	return max(fed, len(here)) // open sessions stay
}

// took is what inferences of each size take, as far as is known.
func (a *Auto) took() (took []plan.Size) {
	for i, rows := range a.sizes.All() {
		known := a.sizes.Took(rows)
		if a.idle >= idleMeasures && i < len(a.warm) {
			known = min(known, a.warm[i].Took())
		}
		if known == 0 {
			break
		}
		took = append(took, plan.SizeOf(rows, known))
	}
	return took
}
