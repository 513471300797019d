package uplink

import (
	"sync/atomic"

	"github.com/edge-rt/edge-rt/rt"
)

// stepSlots bounds the steps by which the sender may be late: about a second.
const stepSlots = 64

// actionStep is one action step in the tick.
type actionStep struct {
	Key    int64 // counts action steps from 1
	Begins bool  // the history begins anew with this step
	At     rt.Instant
	State  []float32 // [dof], as measured
}

// run identifies the session and episode of a history, which ends when either changes.
type run struct{ epoch, episode uint32 }

// Steps carries action steps from the tick to the sender, for a policy that looks back. As in LeRobot's queue of
// n_obs_steps, the history has every action step, and at its beginning the first step fills the places of the missing
// steps. The tick wakes the sender, which adds the pictures of that instant. A missing or badly measured step breaks
// the history, and the next good step begins it anew. The tick marks the step that begins the history, since the sender
// cannot notice the gap.
type Steps struct {
	N    int // largest number of observations that belong together; constant
	ring *rt.Ring[actionStep]

	// Owner: the tick thread.
	key    int64
	run    run
	broken bool // the next step begins the history

	anew, full atomic.Uint64
}

// newSteps returns the queue for states of dof joints and a policy that looks at n observations
// together.
func newSteps(n, dof int) *Steps {
	s := &Steps{N: n, ring: rt.NewRing[actionStep](stepSlots), broken: true}
	s.ring.Prepare(func(step *actionStep) { step.State = make([]float32, dof) })
	return s
}

// Put hands one action step to the sender and returns its key. whole is whether every joint answered. If not, the
// history begins anew with this step, and again with the next step. If the queue is full, Put leaves the step out and
// counts it. Owner: the tick thread.
//
//rt:noalloc
func (s *Steps) Put(at rt.Instant, epoch, episode uint32, state []float32, whole bool) (key int64) {
	of := run{epoch, episode}
	if s.key++; of != s.run || !whole {
		s.Break()
	}
	s.run = of
	slot := s.ring.Reserve()
	if slot == nil {
		s.full.Add(1)
		s.Break()
		return s.key
	}
	slot.Key = s.key
	slot.Begins = s.broken
	slot.At = at
	copy(slot.State, state)
	s.ring.Commit()
	s.broken = !whole
	return s.key
}

// Break makes the next step begin the history anew, since a step is missing. Owner: the tick
// thread.
//
//rt:noalloc
func (s *Steps) Break() {
	if !s.broken {
		s.broken = true
		s.anew.Add(1)
	}
}

// Counts returns how often the history began anew after its first beginning, and how many steps
// were left out for lack of room. Any thread may call it.
func (s *Steps) Counts() (anew, full uint64) { return s.anew.Load(), s.full.Load() }
