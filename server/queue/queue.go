// Package queue holds the observations that wait for the policy: one mailbox for each robot, which keeps its newest
// observation (mailbox.go) in a buffer from a pool (pool.go), and the schedulers that choose the next robots
// (scheduler.go, runway.go).
//
// It is independent of sessions, models and threads, so that a server, its simulation and the tests use the same code.
package queue

import (
	"math"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/wire"
)

// NoDeadline is the deadline of a robot that does not report how long its actions last, such as a
// client of LeRobot's draft.
const NoDeadline = rt.Instant(math.MaxInt64)

// Request is one observation as it arrived: its header, its encoded body and the time of its arrival. Its memory
// belongs to the pool.
type Request struct {
	Header wire.Header
	Body   []byte
	At     rt.Instant
	Since  rt.Instant // when the robot began to wait, possibly with an earlier observation
	Schedule

	passed bool     // the robot was informed that other robots are served first
	class  int      // class of the buffer
	next   *Request // next buffer in the pool's list; nil while this one is lent
}

// Schedule is the part of an observation about its robot's schedule.
type Schedule struct {
	Deadline rt.Instant // instant at which the robot has no more actions; NoDeadline: not reported
	HasN     bool
	N        int64 // step that the robot executed last
}

// Runway returns how long the robot's actions would last from the observation's arrival. ok is false when the
// observation did not report that.
//
//rt:noalloc
func (r *Request) Runway() (d time.Duration, ok bool) {
	if r.Deadline == NoDeadline {
		return 0, false
	}
	return r.Deadline.Sub(r.At), true
}

// Deadline returns the instant at which a robot's actions end. The parameter at is the instant at which the robot's
// report arrived, and runwayMs is the reported time, in ms, until the actions end. If the parameter said is false,
// the robot reported nothing. Values below zero count as zero and values above a minute as a minute, which makes no
// difference to a scheduler.
//
//rt:noalloc
func Deadline(at rt.Instant, runwayMs float64, said bool) rt.Instant {
	if !said {
		return NoDeadline
	}
	const most = float64(time.Minute / time.Millisecond)
	return at.Add(time.Duration(min(max(runwayMs, 0), most) * float64(time.Millisecond)))
}

// key orders the observations of one robot. Its epoch counts the robot's reconnects, and its sequence number the
// robot's requests.
type key struct {
	Epoch uint32
	Seq   uint64
}

func (k key) after(o key) bool { return k.Epoch > o.Epoch || k.Epoch == o.Epoch && k.Seq > o.Seq }

//rt:noalloc
func keyOf(h *wire.Header) key { return key{h.SessionEpoch, h.SeqID} }
