// Package history keeps the last action steps of a run for a policy that looks back, as
// LeRobot's queue of n_obs_steps does: every action step goes in, and at the beginning
// the first one stands for those before it.
//
// The tick puts each step's state into Steps (steps.go) and wakes the sender, whose Past
// (past.go) adds the pictures of that moment and fills observations.
package history

import (
	"sync/atomic"

	"edgert/rt"
)

// stepSlots is how many action steps the sender may be behind: about a second.
const stepSlots = 64

// Step is what the tick knows of one action step.
type Step struct {
	Key    int64 // counts action steps from 1
	Begins bool  // the history begins anew with it
	At     rt.Instant
	State  []float32 // [dof], as measured
}

// Run is what ends a history when it changes.
type Run struct{ Epoch, Episode uint32 }

// Steps carries action steps from the tick to the sender. A step that did not happen, or
// was measured badly, cannot be told from one that was not far away, so that the next
// good one begins the history anew.
type Steps struct {
	N    int // observations that go together, at most; constant
	ring *rt.Ring[Step]

	// Owner: the tick thread.
	key    int64
	run    Run
	broken bool // the next step begins the history

	anew, full atomic.Uint64
}

// NewSteps returns the way for states of dof joints, to a policy that looks at n together.
func NewSteps(n, dof int) *Steps {
	s := &Steps{N: n, ring: rt.NewRing[Step](stepSlots), broken: true}
	s.ring.Prepare(func(step *Step) { step.State = make([]float32, dof) })
	return s
}

// Put hands one action step to the sender and returns its key. Whole says that every
// joint answered: a step that is not begins the history, and so does the one after it.
// Without room the step is counted and left out. Owner: the tick thread.
//
//rt:noalloc
func (s *Steps) Put(at rt.Instant, run Run, state []float32, whole bool) (key int64) {
	if s.key++; run != s.run || !whole {
		s.Break()
	}
	s.run = run
	slot := s.ring.Reserve()
	if slot == nil {
		s.full.Add(1)
		s.Break()
		return s.key
	}
	slot.Key, slot.Begins, slot.At = s.key, s.broken, at
	copy(slot.State, state)
	s.ring.Commit()
	s.broken = !whole
	return s.key
}

// Break has the next step begin the history anew: one before it is missing. Owner: the
// tick thread.
//
//rt:noalloc
func (s *Steps) Break() {
	if !s.broken {
		s.broken = true
		s.anew.Add(1)
	}
}

// Counts returns how often the history began anew, after its first beginning, and how
// many steps were left out for want of room. Any thread may call it.
func (s *Steps) Counts() (anew, full uint64) { return s.anew.Load(), s.full.Load() }
