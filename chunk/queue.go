package chunk

import (
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

// actionQueue is LeRobot's ActionQueue: actions in a row with a cursor. A chunk replaces the actions left, is appended
// to them, or is blended into them. A position in the queue is not a step: the caller of replace passes the number of
// rows to leave out. The queue copies rows.
//
// Owner: the tick thread; it has no lock.
//
// Source: lerobot policies/rtc/action_queue.py, async_inference/robot_client.py.
type actionQueue struct {
	dof          int
	robot, model []float32
	rows         []queued
	index, end   int  // the actions left are rows [index, end); the rows before index were taken
	filled       bool // LeRobot's queue would not be None
}

// queued describes a row of the queue.
type queued struct {
	source   rt.Instant
	prov     Provenance
	weight   float32 // total weight of the step's predictions so far, for temporal weights
	hasModel bool
}

func newActionQueue(rows, dof int) *actionQueue {
	return &actionQueue{
		dof:   dof,
		rows:  make([]queued, rows),
		robot: make([]float32, rows*dof),
		model: make([]float32, rows*dof),
	}
}

//rt:noalloc
func (q *actionQueue) size() int { return q.end - q.index }

// get takes the next action, [dof]; nil: there is none. The slice is valid until the next chunk.
//
//rt:noalloc
func (q *actionQueue) get() []float32 {
	row := q.peek()
	if row != nil {
		q.index++
	}
	return row
}

//rt:noalloc
func (q *actionQueue) peek() []float32 {
	if q.index == q.end {
		return nil
	}
	i := q.index * q.dof
	return q.robot[i : i+q.dof : i+q.dof]
}

// leftOver lends the actions left, in the robot's and in the model's units, [size*dof] each. ok is false before the
// first chunk and after clear. It remains true when all actions have run.
//
//rt:noalloc
func (q *actionQueue) leftOver() (robot, model []float32, ok bool) {
	return q.robot[q.index*q.dof : q.end*q.dof], q.model[q.index*q.dof : q.end*q.dof], q.filled
}

//rt:noalloc
func (q *actionQueue) clear() { q.index, q.end, q.filled = 0, 0, false }

// replace replaces the queue's actions by the rows >= delay of c. A delay below 0 counts as 0; a delay beyond the chunk
// empties the queue.
//
//rt:noalloc
func (q *actionQueue) replace(c *Chunk, delay int) {
	delay = max(0, min(delay, c.Rows))
	q.index = 0
	q.end = c.Rows - delay
	q.filled = true
	for i := range q.end {
		q.store(i, c, delay+i, delay)
	}
}

// append appends all rows of c to the actions left. It returns false if there is no room.
//
//rt:noalloc
func (q *actionQueue) append(c *Chunk) bool {
	if q.size()+c.Rows > len(q.rows) {
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

// blend replaces the queue's actions by the rows >= skip of c. If the queue has an action for a row, f blends the two,
// and the result has the age of the older one.
//
//rt:noalloc
func (q *actionQueue) blend(c *Chunk, skip int, f *aggregate) {
	skip = max(0, min(skip, c.Rows))
	q.compact()
	held := q.end
	q.end, q.filled = c.Rows-skip, true
	for i := range q.end {
		row := skip + i
		if i >= held {
			q.store(i, c, row, skip)
			q.rows[i].weight = f.weight(row, c.Rows)
			continue
		}
		old, fresh, sum := f.shares(q.rows[i].weight, row, c.Rows)
		blendRow(q.robot[i*q.dof:(i+1)*q.dof], c.Robot[row*q.dof:(row+1)*q.dof], old, fresh)
		older := min(q.rows[i].source, c.source)
		hasModel := q.rows[i].hasModel && len(c.Model) != 0
		if hasModel {
			blendRow(q.model[i*q.dof:(i+1)*q.dof], c.Model[row*q.dof:(row+1)*q.dof], old, fresh)
		}
		q.describe(i, c, row, skip)
		q.rows[i].hasModel, q.rows[i].weight = hasModel, sum
		if old != 0 {
			q.rows[i].source = older
		}
	}
}

//rt:noalloc
func (q *actionQueue) compact() {
	copy(q.robot, q.robot[q.index*q.dof:q.end*q.dof])
	copy(q.model, q.model[q.index*q.dof:q.end*q.dof])
	copy(q.rows, q.rows[q.index:q.end])
	q.index, q.end = 0, q.end-q.index
}

//rt:noalloc
func (q *actionQueue) store(i int, c *Chunk, row, delay int) {
	q.describe(i, c, row, delay)
	copy(q.robot[i*q.dof:(i+1)*q.dof], c.Robot[row*q.dof:])
	if len(c.Model) != 0 {
		copy(q.model[i*q.dof:(i+1)*q.dof], c.Model[row*q.dof:])
	}
}

//rt:noalloc
func (q *actionQueue) describe(i int, c *Chunk, row, delay int) {
	r := &q.rows[i]
	r.source = c.source
	r.prov = c.Prov
	r.weight = 0
	r.hasModel = len(c.Model) != 0
	r.prov.Index, r.prov.Delay = int32(row), int32(delay)
}

//rt:noalloc
func (q *actionQueue) head() *queued { return &q.rows[q.index] }

//rt:noalloc
func (q *actionQueue) dropOlder(now rt.Instant, maxAge time.Duration) {
	for q.index < q.end && now.Sub(q.rows[q.index].source) > maxAge {
		q.index++
	}
}

// copyLeft copies the actions left, at most as many as the parameter rows. It returns copied, the number of copied
// actions, and known, the number of leading actions with a model row.
//
//rt:noalloc
func (q *actionQueue) copyLeft(robot, model []float32, rows int) (copied, known int) {
	rows = min(rows, q.size(), len(robot)/q.dof, len(model)/q.dof)
	from := q.index * q.dof
	copy(robot[:rows*q.dof], q.robot[from:])
	copy(model[:rows*q.dof], q.model[from:])
	for known < rows && q.rows[q.index+known].hasModel {
		known++
	}
	return rows, known
}
