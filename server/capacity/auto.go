package capacity

import (
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/server/batch"
)

const (
	// verdictTime is how long a refusal stays valid while the set of sessions is the same. Otherwise any client could
	// keep the server busy with simulations by opening again and again, because a simulation of robots takes some 10
	// ms.
	verdictTime = 100 * time.Millisecond
	// idleMeasures is the number of calls of Measure, one a second, without a request, after which
	// the measured inference times count as too old. From then on Auto uses the times of the
	// warm-up where they are shorter, so that a past slowness does not exclude robots for ever.
	idleMeasures = 10
	// askingMost is the most time that opens may spend on simulations in a burst. After a burst, simulations may take
	// 1/askingShare of the time. A simulation of a hundred robots takes some 10 ms, and a client that opens and closes
	// in a loop must not take a core from the policy.
	askingMost  = time.Second
	askingShare = 10
)

// Auto decides, for max_sessions: auto, how many robots a server admits: as many as it can feed at
// the present duration of its inferences (gate).
//
// A temporary slowness of the machine must not exclude robots for ever. So the first robot is always admitted, because
// an inference that never runs is never measured. After a while without requests, the times of the warm-up are used if
// they are shorter.
//
// Owner: housekeeping.
type Auto struct {
	// Constant.
	meta  *policy.Meta
	gate  *gate
	clock rt.Clock
	sizes *batch.Sizes // present durations of inferences
	warm  []Size       // durations in the warm-up; set by Begin

	// the last verdict on a robot with at most the policy's rate, and the last verdict on a faster robot, whose refusal
	// does not concern usual robots
	usual, faster verdict
	asking        time.Duration // time spent on simulations, minus 1/askingShare of the time that has passed
	asked         rt.Instant    // when Auto.asking was last updated
	answered      uint64        // requests at the last measure
	change        uint64        // state of the sessions at the last measure
	settled       bool          // the number of sessions was found, and nothing has changed since
	idle          int           // measures since the last request
}

// verdict is the decision whether one more robot is admitted beside the open sessions.
type verdict struct {
	change uint64 // state of the sessions for which the verdict was made
	at     rt.Instant
	whyNot string
}

// NewAuto returns an Auto for a policy and a scheduler; sizes holds the durations of its inferences. Begin must be
// called before the other methods.
func NewAuto(m *policy.Meta, scheduler string, sizes *batch.Sizes, clock rt.Clock) *Auto {
	return &Auto{
		meta:  m,
		gate:  newGate(m, scheduler),
		sizes: sizes,
		clock: clock,
	}
}

// Robot returns the demand of a robot. fps is its control steps per second; if fps is missing or impossible, the
// policy's rate counts. The parameter every is the time between the robot's requests; 0 means unknown. If a robot
// requests chunks less often than edge-rt does by default, the default counts, because the robot's setting may change
// at any time.
func (a *Auto) Robot(fps float64, every time.Duration) Robot {
	if !playable(fps) {
		fps = a.meta.FPS
	}
	r := Robot{FPS: fps, Execute: execute(a.meta), RoundTrip: roundTrip}
	if every > 0 {
		r.FPS = min(max(fps, 1/every.Seconds()), fpsMost)
		r.Execute = min(r.Execute, max(1, int(every.Seconds()*r.FPS)))
		r.RoundTrip = min(r.RoundTrip, every/2) // with a longer round trip the robot could not send requests so often
	}
	return r
}

// Refuse returns the reason why some robots would run out of actions if the server admitted one more with this demand;
// "" when no robot would. The number change differs for each set of open sessions. Without a recent verdict on this
// set, Refuse calls the function others, which returns the robots with a session.
func (a *Auto) Refuse(robot Robot, change uint64, others func() []Robot) (whyNot string) {
	now, v := a.clock.Now(), &a.usual
	if robot.FPS > a.meta.FPS {
		v = &a.faster
	}
	if v.whyNot != "" && v.change == change && now.Sub(v.at) < verdictTime {
		return v.whyNot
	}
	a.asking, a.asked = max(0, a.asking-now.Sub(a.asked)/askingShare), now
	if a.asking > askingMost {
		return "the server cannot check whether all would be fed: too many robots open and leave"
	}
	*v = verdict{change, now, a.gate.whyNot(append(others(), robot))}
	a.asking += a.clock.Now().Sub(now)
	return v.whyNot
}

// Begin records the inference times of the warm-up. It returns how many robots with the policy's own rate the server
// feeds at these times.
func (a *Auto) Begin() (fed int) {
	a.warm = a.took()
	a.gate.learn(a.warm)
	return a.gate.most(a.Robot(0, 0))
}

// Measure takes the present duration of inferences and returns how many sessions the server feeds at this duration:
// the present robots, and as many more with the policy's own rate as fit. The caller calls it once a second. The
// parameter fed is the last result of Measure or Begin, answered is the number of all requests so far, and change is
// as in Refuse.
func (a *Auto) Measure(answered, change uint64, fed int, robots func() []Robot) int {
	if a.idle++; answered != a.answered {
		a.answered, a.idle = answered, 0
	}
	if a.gate.learn(a.took()) || change != a.change {
		a.change = change
		a.usual = verdict{}
		a.faster = verdict{}
		a.settled = false
	}
	if a.settled {
		return fed
	}
	here := robots()
	fed, a.settled = a.gate.approach(here, a.Robot(0, 0), max(fed, 1))
	return max(fed, len(here)) // open sessions stay
}

// took returns the durations of inferences of each size, as far as they are known.
func (a *Auto) took() (took []Size) {
	for i, rows := range a.sizes.All() {
		known := a.sizes.Took(rows)
		if a.idle >= idleMeasures && i < len(a.warm) {
			known = min(known, a.warm[i].took())
		}
		if known == 0 {
			break
		}
		took = append(took, sizeOf(rows, known))
	}
	return took
}
