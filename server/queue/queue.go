// Package queue is where observations wait for the policy: one mailbox for each
// robot, in which the newest wins (mailbox.go), in buffers that are lent while
// they are used (pool.go), and the schedulers that say who is next (scheduler.go,
// runway.go).
//
// Nothing here knows of sessions, models or threads: a server, a simulation of one
// and the tests ask the same code.
package queue

import (
	"math"
	"time"

	"edgert/rt"
	"edgert/wire"
)

// NoDeadline is the deadline of a robot that does not say how long its actions
// last, as clients of LeRobot's draft do not.
const NoDeadline = rt.Instant(math.MaxInt64)

// Request is one observation as it arrived: the header, the body still encoded,
// and when. Its memory is the pool's.
type Request struct {
	Header wire.Header
	Body   []byte
	At     rt.Instant
	Since  rt.Instant // when its robot began to wait: newer observations of its own keep the place
	Said

	told  bool     // its robot was told that it gave way
	class int      // of the buffer
	next  *Request // in the pool's list; nil while it is lent
}

// Said is what an observation says of its robot's schedule.
type Said struct {
	Deadline rt.Instant // when the robot runs out of actions; NoDeadline: it did not say
	HasN     bool
	N        int64 // the step that it executed last
}

// Runway is how long the robot's actions lasted when the observation arrived. ok is
// false when it did not say.
//
//rt:noalloc
func (r *Request) Runway() (d time.Duration, ok bool) {
	if r.Deadline == NoDeadline {
		return 0, false
	}
	return r.Deadline.Sub(r.At), true
}

// Deadline is when the actions of a robot end that said at an instant that they
// last so many milliseconds. What is less than nothing is nothing, and what is
// longer than a minute is a minute: both are as good as that to a scheduler.
//
//rt:noalloc
func Deadline(at rt.Instant, runwayMs float64, said bool) rt.Instant {
	if !said {
		return NoDeadline
	}
	const most = float64(time.Minute / time.Millisecond)
	return at.Add(time.Duration(min(max(runwayMs, 0), most) * float64(time.Millisecond)))
}

// Key orders the observations of one robot: epochs count its reconnects, sequence
// numbers its requests.
type Key struct {
	Epoch uint32
	Seq   uint64
}

func (k Key) after(o Key) bool { return k.Epoch > o.Epoch || k.Epoch == o.Epoch && k.Seq > o.Seq }

//rt:noalloc
func keyOf(h *wire.Header) Key { return Key{h.SessionEpoch, h.SeqID} }
