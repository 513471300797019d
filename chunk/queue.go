package chunk

import (
	"time"

	"edgert/rt"
)

// ActionQueue is LeRobot's: a line of actions with a cursor. A chunk replaces
// what is left, goes behind it, or is blended into it. Positions know nothing of
// steps: whoever replaces says how many rows have passed.
//
// Buffer, cursor and provenance change together, and rows are copied in and out.
//
// Owner: the tick thread; it has no lock.
//
// Source: lerobot policies/rtc/action_queue.py, async_inference/robot_client.py.
type ActionQueue struct {
	dof          int
	robot, model []float32
	rows         []queued
	index, end   int  // the actions left are rows [index, end)
	filled       bool // LeRobot's queue is not None
}

// queued is what the queue knows of a row beside its values.
type queued struct {
	source   rt.Instant
	prov     Provenance
	hasModel bool
}

// NewActionQueue returns an empty queue with room for that many rows of dof joints.
func NewActionQueue(rows, dof int) *ActionQueue {
	return &ActionQueue{
		dof: dof, rows: make([]queued, rows),
		robot: make([]float32, rows*dof), model: make([]float32, rows*dof),
	}
}

// Len returns how many actions are left.
//
//rt:noalloc
func (q *ActionQueue) Len() int { return q.end - q.index }

// Room returns how many rows Append can take.
//
//rt:noalloc
func (q *ActionQueue) Room() int { return len(q.rows) - q.Len() }

// Index returns how many actions were taken since the last chunk.
//
//rt:noalloc
func (q *ActionQueue) Index() int { return q.index }

// Get takes the next action, [dof], nil when there is none. It is lent until the
// next chunk.
//
//rt:noalloc
func (q *ActionQueue) Get() []float32 {
	row := q.Peek()
	if row != nil {
		q.index++
	}
	return row
}

// Peek lends the next action without taking it.
//
//rt:noalloc
func (q *ActionQueue) Peek() []float32 {
	if q.index == q.end {
		return nil
	}
	i := q.index * q.dof
	return q.robot[i : i+q.dof : i+q.dof]
}

// LeftOver lends the actions left, as the arm and as the model knows them,
// [Len*dof] each. ok is false when there never was a chunk, or since Clear: that
// is not the same as a queue that ran dry.
//
//rt:noalloc
func (q *ActionQueue) LeftOver() (robot, model []float32, ok bool) {
	return q.robot[q.index*q.dof : q.end*q.dof], q.model[q.index*q.dof : q.end*q.dof], q.filled
}

// Clear forgets every action.
//
//rt:noalloc
func (q *ActionQueue) Clear() { q.index, q.end, q.filled = 0, 0, false }

// Replace puts the rows of c from delay on where the queue was. A delay below 0
// counts as 0, one beyond the chunk leaves nothing.
//
//rt:noalloc
func (q *ActionQueue) Replace(c *Chunk, delay int) {
	delay = max(0, min(delay, c.Rows))
	q.index, q.end, q.filled = 0, c.Rows-delay, true
	for i := range q.end {
		q.store(i, c, delay+i, delay)
	}
}

// Append puts all rows of c behind the actions left. It reports false, and
// changes nothing, when there is no room.
//
//rt:noalloc
func (q *ActionQueue) Append(c *Chunk) bool {
	if c.Rows > q.Room() {
		return false
	}
	q.compact()
	for row := range c.Rows {
		q.store(q.end+row, c, row, 0)
	}
	q.end += c.Rows
	q.filled = true
	return true
}

// Blend makes the rows of c from skip on the queue; where it already had an
// action, f says what becomes of both. A blended action is as old as the older
// of the two.
//
//rt:noalloc
func (q *ActionQueue) Blend(c *Chunk, skip int, f Aggregate) {
	skip = max(0, min(skip, c.Rows))
	q.compact()
	held := q.end
	q.end, q.filled = c.Rows-skip, true
	for i := range q.end {
		row := skip + i
		if i >= held {
			q.store(i, c, row, skip)
			continue
		}
		f.blend(q.robot[i*q.dof:(i+1)*q.dof], c.Robot[row*q.dof:(row+1)*q.dof])
		older := min(q.rows[i].source, c.Source)
		hasModel := q.rows[i].hasModel && len(c.Model) != 0
		if hasModel {
			f.blend(q.model[i*q.dof:(i+1)*q.dof], c.Model[row*q.dof:(row+1)*q.dof])
		}
		q.describe(i, c, row, skip)
		q.rows[i].hasModel = hasModel
		if f != LatestOnly {
			q.rows[i].source = older
		}
	}
}

// compact moves the actions left to the front.
//
//rt:noalloc
func (q *ActionQueue) compact() {
	copy(q.robot, q.robot[q.index*q.dof:q.end*q.dof])
	copy(q.model, q.model[q.index*q.dof:q.end*q.dof])
	copy(q.rows, q.rows[q.index:q.end])
	q.index, q.end = 0, q.end-q.index
}

//rt:noalloc
func (q *ActionQueue) store(i int, c *Chunk, row, delay int) {
	q.describe(i, c, row, delay)
	copy(q.robot[i*q.dof:(i+1)*q.dof], c.Robot[row*q.dof:])
	if len(c.Model) != 0 {
		copy(q.model[i*q.dof:(i+1)*q.dof], c.Model[row*q.dof:])
	}
}

//rt:noalloc
func (q *ActionQueue) describe(i int, c *Chunk, row, delay int) {
	r := &q.rows[i]
	r.source, r.prov, r.hasModel = c.Source, c.Prov, len(c.Model) != 0
	r.prov.Index, r.prov.Delay = int32(row), int32(delay)
}

// head describes the next action; there must be one.
//
//rt:noalloc
func (q *ActionQueue) head() *queued { return &q.rows[q.index] }

// dropOlder drops the actions at the head that are older than maxAge, and
// returns how many.
//
//rt:noalloc
func (q *ActionQueue) dropOlder(now rt.Instant, maxAge time.Duration) (dropped int) {
	for q.index < q.end && now.Sub(q.rows[q.index].source) > maxAge {
		q.index++
		dropped++
	}
	return dropped
}

// copyLeft copies the actions left, at most rows, and returns how many, and how
// many of them the model knows.
//
//rt:noalloc
func (q *ActionQueue) copyLeft(robot, model []float32, rows int) (copied, known int) {
	rows = min(rows, q.Len(), len(robot)/q.dof, len(model)/q.dof)
	from := q.index * q.dof
	copy(robot[:rows*q.dof], q.robot[from:])
	copy(model[:rows*q.dof], q.model[from:])
	for known < rows && q.rows[q.index+known].hasModel {
		known++
	}
	return rows, known
}
