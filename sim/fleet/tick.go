package fleet

import (
	"time"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/sim"
)

// Tick holds the events of one tick, for tables and plots. Times count from the start of the world;
// 0 means that the event did not happen.
type Tick struct {
	Seed uint64
	Tick int

	Step     int64 // action step that ran last; -1 before the first action
	Size     int   // actions left at the tick's end
	Estimate int   // estimated round trip, in ticks
	Cooldown int   // ticks until a request may leave
	Seq      uint64

	Starved   bool // an action was due and missing
	Requested bool // an observation left
	Received  bool // an answer was merged

	// Only for a received answer.
	Measured                             time.Duration // time from capture to merge
	Sent, ServerIn, ServerOut, ReceiveAt time.Duration // ServerIn is the observation's arrival at the server
	Overlap                              int
	MeanL2, MaxL2                        float64

	Goal, Q [sim.DOF]float64
}

func (t *Tick) merged(f *request, now time.Duration, m *chunk.Result) {
	t.Received = true
	t.Measured = now - f.sent
	t.Sent = f.sent
	t.ServerIn = f.arrived
	t.ServerOut = f.answered
	t.ReceiveAt = f.at
	t.Overlap = m.Overlap
	t.MeanL2 = m.MeanL2
	t.MaxL2 = m.MaxL2
}

func (t *Tick) end(goal, q [sim.DOF]float64, v chunk.View) {
	t.Step = v.N
	t.Size = v.Size
	t.Cooldown = v.Cooldown
	t.Goal, t.Q = goal, q
}
