package chunk

import (
	"math"
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

// ringHorizons is the ring's size in chunks. Requested rows are at most one horizon ahead of n. The other slots are for
// a server that answers with later steps than requested; merge refuses steps beyond the ring.
const ringHorizons = 4

// slot is the register of one action step. The step's rows are in schedule.robot and schedule.model at the slot's
// index.
type slot struct {
	step     int64 // step of the rows; the slot is empty if this is noStep, or not above schedule.n
	key      int64 // request that wrote the rows
	start    int64 // first step of that request's chunk
	source   rt.Instant
	prov     Provenance
	hasModel bool
}

// schedule holds the actions still to run, keyed by step.
//
// Owner: the tick thread; it has no lock.
type schedule struct {
	// Constant after newSchedule.
	horizon, dof int
	mask         int64

	slots        []slot // len is a power of two
	robot, model []float32

	n      int64 // step executed last, -1 before the first
	end    int64 // first step above n whose slot is empty
	live   int   // occupied slots above n, contiguous or not
	newest watermark
	last   Provenance
}

func newSchedule(horizon, dof int) *schedule {
	size := 1
	for size < ringHorizons*horizon {
		size *= 2
	}
	s := &schedule{
		horizon: horizon,
		dof:     dof,
		mask:    int64(size - 1),
		slots:   make([]slot, size),
		robot:   make([]float32, size*dof),
		model:   make([]float32, size*dof),
		n:       noStep,
		newest:  watermark(noKey),
	}
	s.clear()
	return s
}

// size returns the number of occupied steps from n+1 up to the first gap.
//
//rt:noalloc
func (s *schedule) size() int { return int(s.end - s.n - 1) }

// pop does the work of Discipline.Pop for a step above n. If it returns the action, it moves n to that step.
//
//rt:noalloc
func (s *schedule) pop(step int64, now rt.Instant, maxAge time.Duration) (action []float32, age time.Duration,
	tooOld bool) {
	action = s.peek(step)
	if action == nil {
		return nil, 0, false
	}
	c := &s.slots[step&s.mask]
	age = now.Sub(c.source)
	if maxAge > 0 && age > maxAge {
		s.dropOlder(now, maxAge)
		return nil, age, true
	}
	s.last = c.prov
	s.n = step
	s.live--
	s.extend()
	return action, age, false
}

// peek returns the action of a step above n, [dof]; nil: the step has none. The slice is the schedule's memory.
//
//rt:noalloc
func (s *schedule) peek(step int64) []float32 {
	if step <= s.n || !s.holds(step) {
		return nil
	}
	i := int(step&s.mask) * s.dof
	return s.robot[i : i+s.dof : i+s.dof]
}

// merge joins a copy of a chunk: for every step above n, the schedule keeps the row of the newer request. merge accepts
// only a chunk whose request is newer than those of all chunks that it has accepted. A chunk of the wrong shape, with
// values that are not finite, or with steps outside the ring changes nothing.
//
//rt:noalloc
func (s *schedule) merge(c *Chunk, r Result) Result {
	if r.Outcome = s.check(c); r.Outcome != Joined {
		return r
	}
	last := s.newest
	if !s.newest.accept(c.Key) {
		r.Outcome = older
		if c.Key == int64(last) {
			r.Outcome = duplicate
		}
		return r
	}
	return s.join(c, r)
}

//rt:noalloc
func (s *schedule) check(c *Chunk) Outcome {
	if o := checkShape(c, s.horizon, s.dof); o != Joined {
		return o
	}
	// The last row must fit into the ring above n. A chunk whose steps are all up to n is late, not wrong.
	if c.step < 0 || c.step > s.n+int64(len(s.slots)-c.Rows)+1 {
		return ahead
	}
	return Joined
}

// join keeps, for each step above n, the row of the newer request, and the existing row if the keys are equal. It is
// commutative, associative and idempotent in the chunks.
//
//rt:noalloc
func (s *schedule) join(c *Chunk, r Result) Result {
	r.Outcome = late
	r.Delay = int(min(max(s.n+1-c.step, 0), int64(c.Rows)))
	for row := r.Delay; row < c.Rows; row++ {
		step := c.step + int64(row)
		held := s.holds(step)
		if held {
			r.measureOverlap(s.robot[int(step&s.mask)*s.dof:][:s.dof], c.Robot[row*s.dof:(row+1)*s.dof])
		}
		if held && c.Key <= s.slots[step&s.mask].key {
			continue
		}
		if !held {
			s.live++
		}
		s.store(step, row, r.Delay, c)
		r.stored++
	}
	r.finishOverlap()
	if r.stored > 0 {
		r.Outcome = Joined
		s.extend()
	}
	return r
}

//rt:noalloc
func (s *schedule) store(step int64, row, delay int, c *Chunk) {
	i := int(step & s.mask)
	cell := &s.slots[i]
	cell.step = step
	cell.key = c.Key
	cell.start = c.step
	cell.source = c.source
	cell.prov = c.Prov
	cell.prov.Index, cell.prov.Delay = int32(row), int32(delay)
	cell.hasModel = len(c.Model) != 0
	copy(s.robot[i*s.dof:(i+1)*s.dof], c.Robot[row*s.dof:])
	if cell.hasModel {
		copy(s.model[i*s.dof:(i+1)*s.dof], c.Model[row*s.dof:])
	}
}

// copyPrefix copies the rows of the steps from n+1 up to the first gap, at most maxRows of them, and returns their
// number. modelRows is the number of leading steps with a model row.
//
//rt:noalloc
func (s *schedule) copyPrefix(robot, model []float32, maxRows int) (rows, modelRows int) {
	for ; rows < min(maxRows, s.size()); rows++ {
		i, to := int((s.n+1+int64(rows))&s.mask), rows*s.dof
		copy(robot[to:to+s.dof], s.robot[i*s.dof:])
		if s.slots[i].hasModel && modelRows == rows {
			copy(model[to:to+s.dof], s.model[i*s.dof:])
			modelRows++
		}
	}
	return rows, modelRows
}

//rt:noalloc
func (s *schedule) condition(a *Ask, c *Config, delay int) {
	a.unconditioned()
	a.PrefixEnd = c.prefixEnd(delay)
	if c.Prefix != prefixNone {
		a.Rows, a.ModelRows = s.copyPrefix(a.Robot, a.Model, a.PrefixEnd)
	}
	a.Delay = min(delay, a.Rows) // the model can be conditioned only on rows in the request
}

// appendSpans appends the spans of the next actions up to the first gap, at most maxRows actions, to dst. They are for
// a server that keeps its raw chunks.
//
//rt:noalloc
func (s *schedule) appendSpans(dst []Span, maxRows int) []Span {
	for row := range min(maxRows, s.size()) {
		dst = s.appendSpan(dst, s.n+1+int64(row))
	}
	return dst
}

//rt:noalloc
func (s *schedule) appendSpan(dst []Span, step int64) []Span {
	c := &s.slots[step&s.mask]
	index := int(step - c.start)
	if k := len(dst) - 1; k >= 0 && dst[k].Key == c.key && dst[k].End == index {
		dst[k].End++
		return dst
	}
	return append(dst, Span{Key: c.key, Start: index, End: index + 1})
}

// clear drops every action that has not run. It does not change n, because a step never runs twice, not even across
// episodes. merge still refuses an answer to an older request.
//
//rt:noalloc
func (s *schedule) clear() {
	for i := range s.slots {
		s.slots[i].step = noStep
	}
	s.live = 0
	s.end = s.n + 1
}

//rt:noalloc
func (s *schedule) holds(step int64) bool { return s.slots[step&s.mask].step == step }

// extend moves s.end past the occupied slots, after n has moved or slots were filled. It takes O(1) per action.
//
//rt:noalloc
func (s *schedule) extend() {
	s.end = max(s.end, s.n+1)
	for s.end <= s.n+int64(len(s.slots)) && s.holds(s.end) {
		s.end++
	}
}

//rt:noalloc
func (s *schedule) dropOlder(now rt.Instant, maxAge time.Duration) {
	for i := range s.slots {
		c := &s.slots[i]
		if c.step > s.n && now.Sub(c.source) > maxAge {
			c.step = noStep
			s.live--
		}
	}
	s.end = s.n + 1
	s.extend()
}

// watermark is the newest key that accept has accepted.
type watermark int64

// noKey is below every request key, so that accept accepts the first key.
const noKey = math.MinInt64

// accept reports whether key is newer than all keys before. If so, it stores the key.
//
//rt:noalloc
func (w *watermark) accept(key int64) bool {
	if key <= int64(*w) {
		return false
	}
	*w = watermark(key)
	return true
}
