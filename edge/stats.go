package edge

import (
	"sync/atomic"

	"edgert/chunk"
	"edgert/rt"
)

// Why a chunk was dropped, in addition to chunk's own outcomes.
const (
	dropHeader  = iota // no header, or not one of ours
	dropBody           // the message does not decode, or breaks a limit
	dropEpoch          // it answers a session of another policy, or one that is long over
	dropEpisode        // it answers an earlier episode
	dropUnknown        // its request was never sent, or was answered, or is forgotten
	dropNewer          // a newer one came before it was merged
	dropForeign        // it answers a request that another robot of this name sent, or another server made it
	dropOutcome        // + chunk.Outcome
	numDrops    = dropOutcome + 16
)

var dropNames = func() (names [numDrops]string) {
	copy(names[:], []string{"header", "body", "epoch", "episode", "unknown_seq", "superseded", "foreign"})
	for _, o := range chunk.Outcomes() {
		names[dropOutcome+int(o)] = o.String()
	}
	return names
}()

// tickStats is what the run counts. One thread writes each field, any reads.
type tickStats struct {
	// Written by the tick.
	requests, chunks, starved, actions, tooOld atomic.Uint64
	starvedBus                                 atomic.Uint64 // starved ticks on which the bus was silent
	heldAll                                    atomic.Uint64 // ticks on which no joint was driven, since the motors complained
	repeated                                   atomic.Uint64 // starved ticks on which the last action ran again
	size                                       atomic.Int64
	maxAge                                     atomic.Int64 // ns: how old an action may be now
	state, episode                             atomic.Uint32
	touched, armed, needResume                 atomic.Bool             // touched: torque may be on; needResume: an operator is waited for
	inState                                    [numStates]atomic.Int64 // nanoseconds
	rtt, age, network                          *rt.Hist

	// Written by the tick, where there is a leader.
	phase       atomic.Uint32
	takeovers   atomic.Uint32 // so far
	corrected   atomic.Uint64 // ticks that a person drove the arm
	leaderAt    atomic.Int64  // instant of the newest pose
	leaderStiff atomic.Bool   // it may be under torque

	// Written by the tick and the receiver.
	dropped [numDrops]atomic.Uint64

	// Written by the sender.
	replaced, unsent, sendErrors atomic.Uint64 // unsent: no publisher or no picture yet

	// Written by the receiver.
	notices atomic.Uint64 // events from the server
}

func newTickStats() *tickStats {
	s := &tickStats{rtt: rt.NewHist(), age: rt.NewHist(), network: rt.NewHist()}
	s.state.Store(uint32(stateConnecting))
	return s
}

//rt:noalloc
func (s *tickStats) drop(reason int) { s.dropped[reason].Add(1) }

// dropTotals returns the counts by reason, those that happened.
func (s *tickStats) dropTotals() map[string]uint64 {
	m := map[string]uint64{}
	for i := range s.dropped {
		if n := s.dropped[i].Load(); n > 0 {
			m[dropNames[i]] = n
		}
	}
	return m
}

// seconds returns how long the run was in each State.
func (s *tickStats) seconds() map[string]float64 {
	m := map[string]float64{}
	for state := range numStates {
		m[state.String()] = round3(float64(s.inState[state].Load()) / 1e9)
	}
	return m
}
