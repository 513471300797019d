package chunk

import (
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

// Discipline is one way to run an arm on chunks. It decides which action runs and how an answer joins the actions left.
// It also decides when to ask for the next chunk, and with which request. It reads no clock: the caller passes the
// instants. On each tick the caller makes these calls in this order:
//
//	action, age, tooOld := d.Pop(now, maxAge) // when an action is due
//	result := d.OnChunk(now, &chunk)          // at most one answer
//	if d.OnTick(now, state, &ask) { ... }     // send it; or d.OnTickWithoutObservation()
//
// Owner: the tick thread; it has no lock.
type Discipline interface {
	// Pop takes the action of this tick, [dof] in robot units; nil: there is none. The slice is valid until the next
	// OnChunk. age is the action's age, counted from its observation's state or oldest picture, whichever is older. If
	// the action is older than maxAge (0: no limit), Pop drops it, perhaps with others, and returns tooOld = true.
	Pop(now rt.Instant, maxAge time.Duration) (action []float32, age time.Duration, tooOld bool)

	// Peek returns the action that the next Pop would take, valid until that Pop; nil: there is none. A caller that
	// calls Peek before and after OnChunk can measure the jump that a merge causes.
	Peek() []float32

	// OnChunk merges the answer to the request c.Key. It copies the rows. The parameter now is the end of the round
	// trip.
	OnChunk(now rt.Instant, c *Chunk) Result

	// OnTick reports whether an observation leaves now, and writes its request to a. The parameter state is the arm's
	// state at the instant now, [dof] in robot units. Call it once on each tick on which an observation could leave,
	// otherwise call OnTickWithoutObservation.
	OnTick(now rt.Instant, state []float32, a *Ask) bool
	OnTickWithoutObservation()

	// SetSource stores source, the instant of the oldest picture in the request with this key. If the picture is older
	// than the state, the age of the answer's actions counts from the picture.
	SetSource(key int64, source rt.Instant)

	// RequestNow marks the requests under way as lost, such as after a lost session; the next OnTick may then request.
	// Resume does the same after a break in which no request could be sent; the original programs' disciplines ignore
	// Resume. Reset begins an episode: it does the same as RequestNow and drops every action that has not run.
	RequestNow()
	Resume()
	Reset()

	// Last returns the provenance of the action that ran last.
	Last() Provenance

	// View returns the gauges of this instant.
	View() View
}

// Ask is a request: the part of an observation that is neither state nor pictures. NewAsk allocates the memory of
// Robot, Model and Spans.
type Ask struct {
	Key       int64 // the request's number, from 1
	Step      int64 // action step of row 0 of the answer
	Delay     int   // rows that will have run when the answer arrives
	PrefixEnd int   // row at which conditioning ends
	Runway    int   // actions left

	// The prefix: the actions that run next, beginning with row 0 of the answer. The first Rows rows of Robot have them
	// in robot units, the first ModelRows rows of Model in the policy's units, and Spans name them for a server that
	// keeps its chunks.
	Rows         int
	ModelRows    int       // valid rows of Model; fewer than Rows if an answer had no model rows
	BothRows     bool      // send Model too, even to a server that conditions on Robot
	Robot, Model []float32 // [horizon*dof]
	Spans        []Span    // if not empty, Spans replace the rows
}

// NewAsk returns an Ask with room for a prefix of horizon rows.
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

// Span is a series of consecutive actions from one chunk: rows [Start, End) of the answer to request Key.
type Span struct {
	Key        int64
	Start, End int
}

// View has the figures that describe a discipline's state.
type View struct {
	N        int64         // action step that ran last, -1 before the first
	Size     int           // actions left
	Estimate int           // estimated round trip in ticks; 0: no estimate
	Cooldown int           // ticks until a request may be sent; 0: now
	SMin     int           // fewest actions that run from each chunk; 0: the discipline has no such bound
	Buffer   time.Duration // a request is sent when the actions left last at most this long; 0: no such rule
}
