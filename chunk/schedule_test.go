package chunk

import (
	"math"
	"slices"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestMergeRefuses(t *testing.T) {
	bad := func(change func(*Chunk)) *Chunk {
		c := ramp(9, 2, 4, 0)
		change(c)
		return c
	}
	for _, tt := range []struct {
		name string
		c    *Chunk
		want Outcome
	}{
		{"no rows", bad(func(c *Chunk) { c.Rows, c.Robot = 0, nil }), BadShape},
		{"negative rows", bad(func(c *Chunk) { c.Rows = -1 }), BadShape},
		{"more rows than the horizon", ramp(9, 2, 5, 0), BadShape},
		{"another number of joints", bad(func(c *Chunk) { c.DOF, c.Rows = 2, 2 }), BadShape},
		{"fewer values than rows", bad(func(c *Chunk) { c.Robot = c.Robot[:3] }), BadShape},
		{"a model chunk of another size", bad(func(c *Chunk) { c.Model = c.Robot[:3] }), BadShape},
		{"a negative step", bad(func(c *Chunk) { c.step = -1 }), ahead},
		{"the last step of the ring", bad(func(c *Chunk) { c.step = 1 + 16 - 3 }), Joined},
		{"one step beyond the ring", bad(func(c *Chunk) { c.step = 1 + 16 - 2 }), ahead},
		{"the last step there is", bad(func(c *Chunk) { c.step = math.MaxInt64 }), ahead},
		{"NaN in the last robot row", bad(func(c *Chunk) { c.Robot[3] = float32(math.NaN()) }), NotFinite},
		{"infinity in a row that has run", bad(func(c *Chunk) {
			c.step, c.Robot[0] = 0, float32(math.Inf(-1))
		}), NotFinite},
		{"infinity in the model chunk", bad(func(c *Chunk) {
			c.Model = slices.Clone(c.Robot)
			c.Model[2] = float32(math.Inf(1))
		}), NotFinite},
		{"every row has run", bad(func(c *Chunk) { c.Rows, c.Robot, c.step = 2, c.Robot[:2], 0 }), late},
		{"the same request again", ramp(5, 0, 4, 7), duplicate},
		{"an older request", ramp(4, 2, 4, 7), older},
		{"a chunk as it should be", ramp(6, 2, 4, 7), Joined},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSchedule(4, 1)
			merge(s, ramp(5, 0, 4, 0))
			pop(s)
			pop(s)
			before := content(s)
			rttest.Want(t, merge(s, tt.c).Outcome, tt.want, "Merge()")
			if changed := !slices.Equal(content(s), before); changed != (tt.want == Joined) {
				t.Errorf("schedule changed: %v, want %v", changed, tt.want == Joined)
			}
		})
	}
}

func TestCopyPrefix(t *testing.T) {
	s := newSchedule(4, 2)
	c := &Chunk{Key: 1, Rows: 4, DOF: 2,
		Robot: []float32{0, 1, 10, 11, 20, 21, 30, 31},
		Model: []float32{.0, .1, .2, .3, .4, .5, .6, .7}}
	merge(s, c)
	pop(s)
	robot, model := make([]float32, 8), make([]float32, 8)
	if rows, known := s.copyPrefix(robot, model, 9); rows != 3 || known != 3 || !slices.Equal(robot[:6], c.Robot[2:]) ||
		!slices.Equal(model[:6], c.Model[2:]) {
		t.Errorf("copyPrefix = %d rows %v, %d %v, want 3 rows %v %v", rows, robot, known, model, c.Robot[2:],
			c.Model[2:])
	}
	if rows, known := s.copyPrefix(robot, model, 1); rows != 1 || known != 1 {
		t.Errorf("copyPrefix of at most 1 row = %d, %d, want 1, 1", rows, known)
	}
	// When a server sends no model rows, the robot rows still condition the next chunk.
	merge(s, &Chunk{Key: 2, step: 3, Rows: 2, DOF: 2, Robot: []float32{1, 2, 3, 4}})
	if rows, known := s.copyPrefix(robot, model, 4); rows != 4 || known != 2 {
		t.Errorf("copyPrefix = %d robot rows, %d model rows, want 4, 2", rows, known)
	}
	// copyPrefix does not copy a model row after a step without a model row.
	merge(s, &Chunk{Key: 3, step: 4, Rows: 1, DOF: 2, Robot: []float32{5, 6}, Model: []float32{.5, .6}})
	if rows, known := s.copyPrefix(robot, model, 4); rows != 4 || known != 2 {
		t.Errorf("copyPrefix = %d robot rows, %d model rows with a gap, want 4, 2", rows, known)
	}
}

func TestRequests(t *testing.T) {
	var q requests
	if _, r := q.answer(0, &Chunk{}); r.Outcome != Unknown {
		t.Errorf("an answer without a key = %v, want %v", r.Outcome, Unknown)
	}
	for key := int64(1); key <= requestSlots+1; key++ {
		q.put(request{key: key, step: 10 * key, delay: 3})
	}
	for _, tt := range []struct {
		name string
		key  int64
		want Outcome
	}{
		{"forgotten", 1, Unknown},
		{"the oldest remembered", 2, Joined},
		{"answered before", 2, duplicate},
		{"the newest", requestSlots + 1, Joined},
		{"never sent", requestSlots + 2, Unknown},
		{"negative", -1, Unknown},
	} {
		c := Chunk{Key: tt.key}
		if _, r := q.answer(0, &c); r.Outcome != tt.want || r.Outcome == Joined &&
			(c.step != 10*tt.key || c.Prov.Asked != 3) {
			t.Errorf("%s: answer to %d = %v with %+v, want %v", tt.name, tt.key, r.Outcome, c, tt.want)
		}
	}
}
