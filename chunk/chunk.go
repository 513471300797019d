// Package chunk decides which action runs on which tick.
//
// A policy answers an observation with a chunk: H rows, one per control period.
// Chunks arrive late, twice, out of order or never, and the arm must not care.
// The canonical Schedule is therefore DRTC's: a ring of slots keyed by action
// step j, each slot a last-write-wins register that keeps the row of the newest
// request. n is the step executed last. An observation captured at n asks for
// the steps from n+1 on; row i of its chunk, and of the prefix that conditions
// it, is step n+1+i. Merging is the pointwise join for j > n, so the steps that
// ran while the chunk was under way fall away by index, a duplicate changes
// nothing and an older answer loses. Executing is popping slot n+1; n moves
// only when an action ran.
//
// Trigger says when to ask for the next chunk: when few enough actions are left
// and the cooldown since the last request has run out. A lost chunk thus costs
// one round trip.
//
// A Discipline is all of it as one step machine: Pop, OnChunk and OnTick, in
// this order on every tick. The runtime, the tests and the simulation drive the
// same one, made by New. Nothing here reads a clock, does I/O or allocates after
// New.
//
// Source: Distributed Real-Time Chunking, sections 3.3 to 3.6.
package chunk

import (
	"time"

	"edgert/rt"
)

// Provenance says where an action came from.
type Provenance struct {
	Seq     uint64 // request that the chunk answers
	Epoch   uint32 // session the request was sent in
	Episode uint32
	Index   int32 // row within the chunk
	Delay   int32 // rows of the chunk that had run before it was merged
	Asked   int32 // rows that were announced to have run by then
}

// Chunk is one answer of the policy, as the receiver lends it to Merge.
type Chunk struct {
	Key  int64 // request key; the newer request has the larger key
	Step int64 // action step of row 0: the one that came next at the capture of its observation
	Rows int
	DOF  int

	Robot []float32 // [Rows*DOF] in robot units, what the arm executes
	Model []float32 // [Rows*DOF] in the policy's units; empty when the server sends none

	Source rt.Instant // older of the observation's state and its oldest picture
	Prov   Provenance // Index, Delay and Asked are filled in
}

// Outcome is what Merge did with a chunk. Its String is the reason under which
// summaries count dropped chunks.
type Outcome uint8

// The outcomes of Merge.
const (
	Joined    Outcome = iota // at least one row is still to run
	Late                     // every row had run already, or had lost to a newer one
	Older                    // a newer request has been merged before
	Duplicate                // this request has been answered before
	BadShape                 // rows, width or slice lengths are not the schedule's
	Ahead                    // its steps lie outside the ring, or the queue is full
	NotFinite                // a row holds NaN or infinity
	Unknown                  // its request was never sent or is forgotten
	numOutcomes
)

var outcomeNames = [numOutcomes]string{"joined", "late", "older", "duplicate", "bad_shape", "ahead", "not_finite", "unknown_seq"}

func (o Outcome) String() string {
	if int(o) >= len(outcomeNames) {
		return "unknown"
	}
	return outcomeNames[o]
}

// Outcomes lists every outcome, for whoever prints the counts.
func Outcomes() []Outcome {
	return []Outcome{Joined, Late, Older, Duplicate, BadShape, Ahead, NotFinite, Unknown}
}

// MergeResult is the outcome of one Merge with its figures.
type MergeResult struct {
	Outcome Outcome
	Stored  int // rows that are now in the schedule
	Delay   int // rows that had run before the merge

	RTT time.Duration // capture to merge, filled in by Discipline.OnChunk

	// Rows of the chunk whose step the schedule already held, and the Euclidean
	// distance of the two robot rows: the discontinuity a merge causes.
	Overlap int
	MeanL2  float64
	MaxL2   float64
}
