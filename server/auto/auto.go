// Package auto decides, for max_sessions: auto, how many robots are let in: as many as
// are still fed with what inferences take now (plan.Gate).
//
// A slow spell of the machine must not keep robots out for ever: the first robot always
// gets in, because what is never tried is never measured, and when nobody asks for a
// while the times of the warm-up count where they were shorter.
package auto

import (
	"time"

	"edgert/policy"
	"edgert/rt"
	"edgert/server/batch"
	"edgert/server/plan"
)

const (
	// verdictTime is how long a refusal stands for the same sessions: asking costs some
	// 10 ms of virtual robots, and anybody may open.
	verdictTime = 100 * time.Millisecond
	// idleMeasures without a request, one a second, what is known of inferences is as
	// old: then those of the warm-up count where they were faster, so that a slow spell
	// that nobody sees the end of does not keep robots out for ever.
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
	sizes *batch.Sizes // what inferences take
	warm  []plan.Size  // and took in the warm-up; set by Begin

	usual, faster verdict       // the last of a robot of the policy's rate or a lower one, and of a faster one, whose refusal says nothing of others
	asking        time.Duration // spent on those that ask, less askingShare of the time since
	asked         rt.Instant    // when that was
	answered      uint64        // requests at the last measure
	change        uint64        // of the sessions then
	settled       bool          // nothing has changed since the number of sessions was found
	idle          int           // measures since there was a request
}

// verdict is what was said of a robot beside those that were here.
type verdict struct {
	change uint64 // of the sessions that it was about
	at     rt.Instant
	whyNot string
}

// New returns one for a policy behind a scheduler, whose inferences take what sizes
// says. Begin comes first.
func New(m *policy.Meta, scheduler string, sizes *batch.Sizes, clock rt.Clock) *Auto {
	return &Auto{meta: m, gate: plan.NewGate(m, scheduler), sizes: sizes, clock: clock}
}

// Robot is one of so many control steps a second, the policy's own where it did not say
// or says what none has, that asks every so often, 0: nobody knows. One that asks more
// seldom than edge-rt does by itself may do so as often tomorrow.
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

// Refuse says why not all are fed with one robot more beside those that are here, ""
// when they are. change differs when the sessions do; others are asked for when that is
// not known from a moment ago.
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

// Measure takes what inferences take now, once a second, and returns how many sessions
// that is enough for: of robots like those that are here, and of the policy's own
// beyond. fed is what it said before; answered counts all requests so far.
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
	return max(fed, len(here)) // who is in stays
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
