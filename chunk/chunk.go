// Package chunk decides which action runs on which tick, and refuses actions that are too old (schedule.go for drtc,
// queuebase.go for the other disciplines).
//
// A policy answers an observation with a chunk: H rows, one per control period. Chunks arrive late, twice, out of order
// or never. A Discipline is one way to deal with that, a step machine: Pop, OnChunk and OnTick on every tick
// (discipline.go). The robot, the tests and the simulation use the same disciplines, made by New from a Config
// (config.go). Nothing here reads a clock, does I/O or allocates after New.
//
// The default is drtc.go. Its schedule (schedule.go) is a ring of slots keyed by action step j,
// each a last-write-wins register for the row of the newest request. n is the step executed last.
// An observation captured at n asks for the steps from n+1 on; row i of its chunk, and of the
// prefix that conditions it, is step n+1+i. Merging is the pointwise join for j > n: steps that ran
// meanwhile are dropped by index, a duplicate changes nothing and an older answer loses. Executing
// is popping slot n+1; n moves only when an action ran. The trigger (trigger.go) asks when few
// enough actions are left and the cooldown since the last request has run out, so a lost chunk
// costs one round trip.
//
// The others run on LeRobot's ActionQueue (queue.go): sequential.go contains rtc, append and sync,
// async.go and v1.go one each, queuebase.go their common part. Requests under way are in
// requests.go, estimates of the round trip in estimator.go.
//
// The files original_*.go are ports of the original programs, which lose chunks in their own ways,
// for comparison (Config.Compat).
//
// Source: Distributed Real-Time Chunking, sections 3.3 to 3.6.
package chunk

import (
	"math"
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

// Provenance is the origin of an action.
type Provenance struct {
	Seq     uint64 // request that the chunk answers
	Epoch   uint32 // session the request was sent in
	Episode uint32
	Index   int32 // row within the chunk
	Delay   int32 // rows of the chunk that had run before it was merged
	Asked   int32 // rows that the request expected to run before the merge
}

// Chunk is one answer of the policy, as the caller lends it to OnChunk.
type Chunk struct {
	Key  int64 // number of the request that the chunk answers; a newer request has a larger number
	Rows int
	DOF  int

	Robot []float32  // [Rows*DOF] in robot units, for the arm
	Model []float32  // [Rows*DOF] in the policy's units; empty when the server sends no such rows
	Prov  Provenance // the discipline fills in Index, Delay and Asked

	step   int64      // action step of row 0: the next step when the observation was captured
	source rt.Instant // instant of the observation's state or of its oldest picture, whichever is earlier
}

// Outcome is the result of merging a chunk. Its String is the reason by which a summary counts dropped chunks.
type Outcome uint8

// The outcomes of OnChunk.
const (
	Joined    Outcome = iota // at least one row is still to run
	late                     // every row has run already, or its step has a newer row
	older                    // a newer request has been merged before
	duplicate                // this request has been answered before
	BadShape                 // rows, width or slice lengths are not as agreed on
	ahead                    // the steps lie too far ahead, or the queue is full
	NotFinite                // a row holds NaN or infinity
	Unknown                  // no request with this key was sent, or the request is forgotten
	numOutcomes
)

var outcomeNames = [numOutcomes]string{"joined", "late", "older", "duplicate", "bad_shape", "ahead", "not_finite",
	"unknown_seq"}

func (o Outcome) String() string { return outcomeNames[o] }

// Outcomes lists every outcome.
func Outcomes() (all []Outcome) {
	for o := range numOutcomes {
		all = append(all, o)
	}
	return all
}

// Result is the outcome of OnChunk.
type Result struct {
	Outcome Outcome
	Delay   int           // rows that had run before the merge
	RTT     time.Duration // capture to merge

	// Overlap is the number of the chunk's rows for whose step another chunk already had a row. MeanL2 and MaxL2 are
	// the mean and the greatest Euclidean distance between the old and the new robot row: the discontinuity that the
	// merge causes.
	Overlap int
	MeanL2  float64
	MaxL2   float64

	stored int // rows that were added to the schedule
}

// measureOverlap adds a pair of rows to r. Until finishOverlap, r.MeanL2 is the sum of the distances.
//
//rt:noalloc
func (r *Result) measureOverlap(old, fresh []float32) {
	d := distance(old, fresh)
	r.MeanL2 += d
	r.MaxL2 = max(r.MaxL2, d)
	r.Overlap++
}

//rt:noalloc
func (r *Result) finishOverlap() {
	if r.Overlap > 0 {
		r.MeanL2 /= float64(r.Overlap)
	}
}

//rt:noalloc
func checkShape(c *Chunk, horizon, dof int) Outcome {
	if c.Rows < 1 || c.Rows > horizon || c.DOF != dof || len(c.Robot) != c.Rows*c.DOF {
		return BadShape
	}
	if len(c.Model) != 0 && len(c.Model) != len(c.Robot) {
		return BadShape
	}
	if !finite(c.Robot) || !finite(c.Model) {
		return NotFinite
	}
	return Joined
}

//rt:noalloc
func finite(v []float32) bool {
	for _, x := range v {
		if x-x != 0 { // true only for NaN and the infinities
			return false
		}
	}
	return true
}

// distance returns the Euclidean distance of two rows, computed in float32 as in LeRobot.
//
//rt:noalloc
func distance(a, b []float32) float64 {
	var sum float32
	for i, v := range b {
		d := v - a[i]
		sum += float32(d * d)
	}
	return math.Sqrt(float64(sum))
}

// noStep marks the absence of a step; steps start at 0.
const noStep = -1
