package edge

import (
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/uplink"
	"github.com/edge-rt/edge-rt/rt"
)

// The reasons for dropping a chunk: first the reasons of package uplink, then the outcomes of
// package chunk.
const (
	dropOutcome = uplink.NumDrops // the reason is this number plus the chunk.Outcome
	numDrops    = dropOutcome + 16
)

var dropNames = func() (names [numDrops]string) {
	copy(names[:], uplink.DropNames[:])
	for _, o := range chunk.Outcomes() {
		names[dropOutcome+int(o)] = o.String()
	}
	return names
}()

// tickStats are the counters of the tick. The tick writes them, and any thread may read them.
type tickStats struct {
	requests, chunks, starved, actions, tooOld atomic.Uint64
	starvedBus                                 atomic.Uint64 // starved ticks on which the bus was silent
	starvedStart                               atomic.Uint64 // starved ticks at the start of an episode
	// ticks on which no joint was driven, since the motors complained
	heldAll        atomic.Uint64
	repeated       atomic.Uint64 // starved ticks on which the last action ran again
	size           atomic.Int64
	buffer         atomic.Int64 // ns: buffer time of the schedule now; 0: it has none
	state, episode atomic.Uint32
	// armed: the arm has been under torque; silent: too many joints do not answer now; needResume: the run waits for an
	// operator
	armed, silent, needResume atomic.Bool
	inState                   [numStates]atomic.Int64 // nanoseconds
	rtt, age, network         *rt.Hist

	// These are used in a run with a leader.
	phase       atomic.Uint32
	takeovers   atomic.Uint32 // number of take-overs so far
	corrected   atomic.Uint64 // ticks on which a person drove the arm
	led         atomic.Uint32 // robot.Joints of the parts that a take-over concerns
	leaderAt    atomic.Int64  // instant of the newest pose
	leaderStiff atomic.Bool   // the leader may be under torque

	dropped [numDrops]atomic.Uint64 // answers that the tick did not merge; uplink.Stats has the link's drops
}

func newTickStats() *tickStats {
	s := &tickStats{rtt: rt.NewHist(), age: rt.NewHist(), network: rt.NewHist()}
	s.state.Store(uint32(stateConnecting))
	return s
}

//rt:noalloc
func (s *tickStats) drop(reason int) { s.dropped[reason].Add(1) }

// dropTotals returns the counts by reason, without zeros. It includes the answers that the link
// dropped.
func (s *tickStats) dropTotals(l *uplink.Stats) map[string]uint64 {
	m := l.Drops()
	for i := range s.dropped {
		if n := s.dropped[i].Load(); n > 0 {
			m[dropNames[i]] += n
		}
	}
	return m
}

// seconds returns the time of the run in each state.
func (s *tickStats) seconds() map[string]float64 {
	m := map[string]float64{}
	for state := range numStates {
		m[state.String()] = drive.Seconds(time.Duration(s.inState[state].Load()))
	}
	return m
}
