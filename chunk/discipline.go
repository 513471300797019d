package chunk

import (
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

// Discipline is one way to run an arm on chunks: it decides which action runs, how an answer joins
// the remaining actions, when to ask for the next, and the content of the request. Instants are the
// caller's. Each tick has this order:
//
//	action, age, tooOld := d.Pop(now, maxAge) // when an action is due
//	result := d.OnChunk(now, &chunk)          // at most one answer
//	if d.OnTick(now, state, &ask) { ... }     // send it; or d.OnTickWithoutObservation()
//
// Owner: the tick thread; it has no lock.
type Discipline interface {
	// Pop takes the action of this tick, [dof] in robot units, or nil without one; age is the time
	// since the older of its state and pictures. The slice is lent until the next OnChunk. Actions
	// older than maxAge (0: no limit) are dropped: tooOld is true.
	Pop(now rt.Instant, maxAge time.Duration) (action []float32, age time.Duration, tooOld bool)

	// Peek lends the action that the next Pop would take, or nil without one: called before and
	// after OnChunk it shows the jump that a merge causes.
	Peek() []float32

	// OnChunk merges the answer to the request c.Key. The rows are copied. The round trip ends at
	// now.
	OnChunk(now rt.Instant, c *Chunk) Result

	// OnTick decides whether an observation leaves now, and fills in its request. state was just
	// read, [dof] in robot units. Call it once on each tick on which an observation could leave,
	// otherwise call OnTickWithoutObservation.
	OnTick(now rt.Instant, state []float32, a *Ask) bool
	OnTickWithoutObservation()

	// SetSource sets the instant of the oldest picture of request key, once the pictures were taken:
	// if the picture is older than the state, the age of the answer's actions counts from it.
	SetSource(key int64, source rt.Instant)

	// RequestNow reports that no request under way will be answered, such as after a lost session,
	// so the next OnTick may ask. Resume does the same after a break in which no request could be
	// sent; the originals ignore it. Reset begins an episode: it also drops every action that has
	// not run.
	RequestNow()
	Resume()
	Reset()

	// Last returns the provenance of the action that ran last.
	Last() Provenance

	// View returns the gauges of this instant.
	View() View
}

// Ask is the request in an observation beside state and pictures. Robot, Model and Spans are the
// caller's memory, from NewAsk.
type Ask struct {
	Key       int64 // the request's number, from 1
	Step      int64 // action step of row 0 of the answer
	Delay     int   // rows that will have run when the answer comes
	PrefixEnd int   // row at which conditioning ends
	Runway    int   // actions left

	// The actions that run next, beginning with row 0 of the answer: the first Rows
	// rows of Robot in robot units and of Model in the policy's, or the same as Spans.
	Rows         int
	ModelRows    int       // valid rows of Model; fewer than Rows when answers came without model rows
	BothRows     bool      // send Model too, even to a server that conditions on Robot
	Robot, Model []float32 // [horizon*dof]
	Spans        []Span    // not empty: sent instead, to a server that keeps its chunks
}

// NewAsk returns room for the prefix of a horizon.
func NewAsk(horizon, dof int) Ask {
	return Ask{
		Robot: make([]float32, horizon*dof), Model: make([]float32, horizon*dof),
		Spans: make([]Span, 0, horizon),
	}
}

//rt:noalloc
func (a *Ask) unconditioned() {
	a.Delay = 0
	a.PrefixEnd = 0
	a.Rows = 0
	a.ModelRows = 0
	a.BothRows = false
	a.Spans = a.Spans[:0]
}

// Span is a run of consecutive actions of one request's chunk: its rows
// [Start, End).
type Span struct {
	Key        int64
	Start, End int
}

// View is the state of a discipline in figures.
type View struct {
	N        int64         // action step that ran last, -1 before the first
	Size     int           // actions left
	Estimate int           // estimated round trip in ticks; 0: no estimate
	Cooldown int           // ticks until a request may leave; 0: now
	SMin     int           // fewest actions that run from each chunk; 0: the discipline has no such bound
	Buffer   time.Duration // the next request leaves when the actions left last no longer; 0: no such rule
}
