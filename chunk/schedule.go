package chunk

import (
	"time"

	"edgert/rt"
)

// ringHorizons is the ring's size in chunks. Rows live at most one horizon
// ahead of n; the rest is room for a server that answers about later steps than
// it was asked for, before that counts as nonsense.
const ringHorizons = 4

// Verdict is the answer of Pop.
type Verdict uint8

// The answers of Pop.
const (
	Empty  Verdict = iota // no action for step n+1
	Ready                 // the action is lent, n has moved
	TooOld                // there was one, but its observation is too old
)

var verdictNames = [...]string{"empty", "ready", "too_old"}

func (v Verdict) String() string {
	if int(v) >= len(verdictNames) {
		return "unknown"
	}
	return verdictNames[v]
}

// noStep marks an empty slot; steps start at 0.
const noStep = -1

// slot is the register of one action step. Its rows lie in Schedule.robot and
// Schedule.model at the same index.
type slot struct {
	step     int64 // noStep, or the step the rows belong to; stale when <= n
	key      int64 // request that wrote the rows
	start    int64 // first step of that request's chunk
	source   rt.Instant
	prov     Provenance
	hasModel bool
}

// Schedule holds the actions still to run, keyed by step.
//
// Owner: the tick thread; it has no lock.
type Schedule struct {
	// Constant after New.
	horizon, dof int
	mask         int64
	compat       bool

	slots        []slot // len is a power of two
	robot, model []float32

	n      int64 // step executed last, -1 before the first
	end    int64 // first step above n whose slot is empty
	live   int   // occupied slots above n, contiguous or not
	newest Watermark
	last   Provenance
	counts [numOutcomes]uint64
	tooOld uint64
}

// NewSchedule returns an empty schedule for chunks of at most horizon rows of
// dof joints, with room for at least 4 horizons. It panics on sizes below 1.
func NewSchedule(horizon, dof int) *Schedule {
	if horizon < 1 || dof < 1 {
		panic("chunk: want a horizon and a number of joints of at least 1")
	}
	size := 1
	for size < ringHorizons*horizon {
		size *= 2
	}
	s := &Schedule{
		horizon: horizon,
		dof:     dof,
		mask:    int64(size - 1),
		slots:   make([]slot, size),
		robot:   make([]float32, size*dof),
		model:   make([]float32, size*dof),
		n:       noStep,
		newest:  NewWatermark(noKey),
	}
	s.Clear()
	return s
}

// N returns the step executed last, -1 before the first.
//
//rt:noalloc
func (s *Schedule) N() int64 { return s.n }

// NextStep returns the step of row 0 of a chunk asked for now: n+1, or in the
// paper's arithmetic max(n, 0).
//
//rt:noalloc
func (s *Schedule) NextStep() int64 {
	if s.compat {
		return max(s.n, 0)
	}
	return s.n + 1
}

// Size returns how many actions can run without another chunk: the occupied
// steps from n+1 on, up to the first gap.
//
//rt:noalloc
func (s *Schedule) Size() int {
	if s.compat {
		return s.live
	}
	return int(s.end - s.n - 1)
}

// Count returns how many chunks had this outcome.
//
//rt:noalloc
func (s *Schedule) Count(o Outcome) uint64 { return s.counts[o] }

// RowsTooOld returns how many rows Pop has thrown away for their age.
//
//rt:noalloc
func (s *Schedule) RowsTooOld() uint64 { return s.tooOld }

// Pop takes the action of step n+1, shape [dof] in robot units, and its age: now
// less the older of the state and the pictures it was computed from. n moves
// only when the verdict is Ready. The slice is lent until the next Merge.
//
// An action older than maxAge never runs (0 means no limit): it and every other
// row of that age are dropped, so that Size falls and the trigger asks again.
//
//rt:noalloc
func (s *Schedule) Pop(now rt.Instant, maxAge time.Duration) (action []float32, age time.Duration, v Verdict) {
	step := s.head()
	if step == noStep {
		return nil, 0, Empty
	}
	i := step & s.mask
	age = now.Sub(s.slots[i].source)
	if maxAge > 0 && age > maxAge {
		s.dropOlder(now, maxAge)
		return nil, age, TooOld
	}
	s.last = s.slots[i].prov
	s.n = step
	s.live--
	s.extend()
	return s.robot[int(i)*s.dof : (int(i)+1)*s.dof : (int(i)+1)*s.dof], age, Ready
}

// Peek lends the action of step n+1, [dof], nil when there is none.
//
//rt:noalloc
func (s *Schedule) Peek() []float32 {
	step := s.head()
	if step == noStep {
		return nil
	}
	i := int(step & s.mask)
	return s.robot[i*s.dof : (i+1)*s.dof : (i+1)*s.dof]
}

// Last returns the provenance of the action executed last.
//
//rt:noalloc
func (s *Schedule) Last() Provenance { return s.last }

// CopyPrefix copies the rows that will run next, steps n+1, n+2 and so on up to
// the first gap, and returns how many: at most maxRows and what fits in the
// destinations, each [rows*dof]. Either may be nil. Rows that came without a
// model row end the prefix when dstModel is wanted.
//
//rt:noalloc
func (s *Schedule) CopyPrefix(dstRobot, dstModel []float32, maxRows int) (rows int) {
	if dstRobot != nil {
		maxRows = min(maxRows, len(dstRobot)/s.dof)
	}
	if dstModel != nil {
		maxRows = min(maxRows, len(dstModel)/s.dof)
	}
	maxRows = min(maxRows, int(s.end-s.n-1))
	for rows < maxRows {
		i := int((s.n + 1 + int64(rows)) & s.mask)
		if dstModel != nil {
			if !s.slots[i].hasModel {
				break
			}
			copy(dstModel[rows*s.dof:(rows+1)*s.dof], s.model[i*s.dof:])
		}
		if dstRobot != nil {
			copy(dstRobot[rows*s.dof:(rows+1)*s.dof], s.robot[i*s.dof:])
		}
		rows++
	}
	return rows
}

// Amend replaces the robot row of a step that is still to run, so that the next
// prefix says what the arm will really do after filter and limits. It reports
// whether the step was there.
//
//rt:noalloc
func (s *Schedule) Amend(step int64, row []float32) bool {
	if step <= s.n || len(row) != s.dof || !s.holds(step) {
		return false
	}
	copy(s.robot[int(step&s.mask)*s.dof:], row)
	return true
}

// Clear drops every action that has not run. n stays: a step never runs twice,
// not even across episodes, and an answer to an older request still loses.
//
//rt:noalloc
func (s *Schedule) Clear() {
	for i := range s.slots {
		s.slots[i].step = noStep
	}
	s.live = 0
	s.end = s.n + 1
}

// head returns the step to run next, or noStep.
//
//rt:noalloc
func (s *Schedule) head() int64 {
	if s.compat {
		return s.lowest()
	}
	if s.end == s.n+1 {
		return noStep
	}
	return s.n + 1
}

//rt:noalloc
func (s *Schedule) holds(step int64) bool { return s.slots[step&s.mask].step == step }

// extend restores end after n moved or slots were filled. Every step is passed
// once, so it costs O(1) per action.
//
//rt:noalloc
func (s *Schedule) extend() {
	s.end = max(s.end, s.n+1)
	for s.end <= s.n+int64(len(s.slots)) && s.holds(s.end) {
		s.end++
	}
}

// dropOlder empties every slot whose action is older than maxAge.
//
//rt:noalloc
func (s *Schedule) dropOlder(now rt.Instant, maxAge time.Duration) {
	for i := range s.slots {
		c := &s.slots[i]
		if c.step > s.n && now.Sub(c.source) > maxAge {
			c.step = noStep
			s.live--
			s.tooOld++
		}
	}
	s.end = s.n + 1
	s.extend()
}
