package chunk

import (
	"fmt"
	"time"

	"edgert/rt"
)

// Discipline is one way to run an arm on chunks: which action runs, how an
// answer joins the ones that are left, when to ask for the next, and what to
// tell the policy then.
//
// It is a pure step machine: no clock, no I/O, no allocation after New; instants
// are the caller's. The robot, the tests and the simulation run the same one,
// each tick in this order:
//
//	action, age, verdict := d.Pop(now, maxAge) // when an action is due
//	result := d.OnChunk(now, &chunk)           // at most one answer
//	if d.OnTick(now, state, &ask) { ... }      // send it; or d.OnIdleTick()
//
// Owner: the tick thread; it has no lock.
type Discipline interface {
	// Pop takes the action of this tick, shape [dof] in robot units, and its age:
	// now less the older of the state and the pictures it was computed from. The
	// slice is lent until the next OnChunk. An action older than maxAge never
	// runs (0: no limit): it and its like are dropped.
	Pop(now rt.Instant, maxAge time.Duration) (action []float32, age time.Duration, v Verdict)

	// Peek lends the action that the next Pop would take, nil when there is none:
	// before and after OnChunk it shows the jump that a merge causes.
	Peek() []float32

	// OnChunk takes the answer to the request c.Key. The caller fills in Key,
	// Rows, DOF, Robot, Model and Prov; Step and Source are the request's. The
	// rows are copied. The round trip ends at now.
	OnChunk(now rt.Instant, c *Chunk) MergeResult

	// OnTick says whether an observation leaves now, and fills in what it says.
	// state is the one just read, [dof] in robot units. Call it once a tick on
	// which an observation could leave, else OnIdleTick.
	OnTick(now rt.Instant, state []float32, a *Ask) bool
	OnIdleTick()

	// Pictured tells that the oldest picture of request key is from source.
	Pictured(key int64, source rt.Instant)

	// Rearm says that no request under way will be answered, as when its session
	// is lost: the next OnTick may ask. Reset begins an episode: it also drops
	// every action that has not run.
	Rearm()
	Reset()

	// Last returns the provenance of the action that ran last.
	Last() Provenance

	// View returns the gauges of this instant, Count how many answers had an
	// outcome.
	View() View
	Count(o Outcome) uint64
}

// Ask is what an observation says beside state and pictures. Robot, Model and
// Spans are the caller's memory, from NewAsk.
type Ask struct {
	Key       int64 // of the request, from 1
	Step      int64 // action step of row 0 of the answer
	Delay     int   // rows that will have run when the answer comes
	PrefixEnd int   // row at which conditioning ends
	Runway    int   // actions left

	// The actions that run next, row 0 is Step: the first Rows rows of Robot in
	// robot units and of Model in the policy's, or the same as Spans.
	Rows         int
	ModelRows    int       // rows of Model that are there; fewer than Rows when answers came without
	Robot, Model []float32 // [horizon*dof]
	Spans        []Span    // empty: the rows travel
}

// NewAsk returns room for the prefix of a horizon.
func NewAsk(horizon, dof int) Ask {
	return Ask{
		Robot: make([]float32, horizon*dof), Model: make([]float32, horizon*dof),
		Spans: make([]Span, 0, horizon),
	}
}

// View is the state of a discipline in figures.
type View struct {
	N        int64 // action step that ran last, -1 before the first
	Size     int   // actions left
	Estimate int   // of the round trip, in ticks; 0: none
	Cooldown int   // ticks until a request may leave; 0: now
	SMin     int   // fewest actions that run from each chunk; 0: the discipline has no such bound
}

// ScheduleDRTC asks early, again without waiting for an answer, and conditions
// each chunk on what will run meanwhile.
const ScheduleDRTC = "drtc"

// Schedules lists what New knows, the default first.
var Schedules = []string{ScheduleDRTC}

// Config says which discipline, for chunks of which size.
type Config struct {
	Schedule  string  // of Schedules
	Horizon   int     // rows of a chunk
	DOF       int     // joints
	FPS       float64 // actions per second
	PrefixEnd int     // row at which the bundle's conditioning ends; 0: no limit
	MaxDelay  int     // longest delay to announce; 0: no limit

	SMin      int           // fewest actions to run from each chunk; 0: DefaultSMin
	Epsilon   int           // ticks added to the latency estimate, see DefaultEpsilon
	Estimator string        // of EstimatorNames; empty: the schedule's own
	Fixed     time.Duration // what the estimator fixed predicts; 0: DefaultFixed
}

// New returns the discipline that c names, or one line that says what is wrong.
func New(c Config) (Discipline, error) {
	if c.Horizon < 2 || c.DOF < 1 || !(c.FPS > 0) || c.Epsilon < 0 {
		return nil, fmt.Errorf("chunk: horizon %d, %d joints, %v fps, epsilon %d: want at least 2, 1, more than 0, and 0", c.Horizon, c.DOF, c.FPS, c.Epsilon)
	}
	if c.SMin == 0 {
		c.SMin = DefaultSMin(c.Horizon)
	}
	if c.SMin < 1 || c.SMin >= c.Horizon {
		return nil, fmt.Errorf("chunk: s_min is %d, want 1 to %d: the chunks have %d actions", c.SMin, c.Horizon-1, c.Horizon)
	}
	switch c.Schedule {
	case ScheduleDRTC:
		return newDRTC(c)
	}
	return nil, fmt.Errorf("chunk: no schedule %q, want one of %v", c.Schedule, Schedules)
}

// estimator returns the one asked for, else the schedule's own.
func (c *Config) estimator(own string) (Estimator, error) {
	name := c.Estimator
	if name == "" {
		name = own
	}
	if name == "fixed" && c.Fixed > 0 {
		return Fixed(c.Fixed.Seconds()), nil
	}
	return NewEstimator(name, float64(c.SMin)/c.FPS)
}
