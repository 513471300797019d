package chunk

import (
	"math"
	"slices"
	"testing"
)

func TestPopRunsStepsInOrder(t *testing.T) {
	s := newSchedule(4, 1)
	if action := pop(s); action != nil || s.n != -1 {
		t.Fatalf("pop() of an empty schedule = %v with n %d, want nil with -1", action, s.n)
	}
	merge(s, ramp(1, 0, 4, 10))
	for i := range 4 {
		action := pop(s)
		if action == nil || action[0] != 10+float32(i) || s.n != int64(i) {
			t.Errorf("pop() %d = %v with n %d, want %d", i, action, s.n, 10+i)
		}
	}
	if action := pop(s); action != nil || s.n != 3 {
		t.Errorf("pop() past the end = %v with n %d, want nil with 3", action, s.n)
	}
}

// An idle start wastes no row: the first chunk was asked for at n = -1 and its row 0 runs, however
// late it comes.
func TestLateFirstChunkLosesNothing(t *testing.T) {
	s := newSchedule(4, 1)
	step := s.n + 1
	for range 30 {
		pop(s)
	}
	if r := merge(s, ramp(1, step, 4, 0)); r.Outcome != Joined || r.stored != 4 || r.Delay != 0 {
		t.Errorf("Merge of the first chunk = %+v, want 4 rows stored at delay 0", r)
	}
}

func TestExecutedRowsFallAwayByIndex(t *testing.T) {
	s := newSchedule(8, 1)
	merge(s, ramp(1, 0, 8, 0))
	pop(s)
	step := s.n + 1 // 1
	for range 3 {
		pop(s) // 1, 2, 3 run while the request is under way
	}
	r := merge(s, ramp(2, step, 8, 100))
	if r.Outcome != Joined || r.Delay != 3 || r.stored != 5 || r.Overlap != 4 || r.MaxL2 != 99 {
		t.Errorf("Merge = %+v, want delay 3, 5 stored, 4 overlapping by 99", r)
	}
	action := pop(s)
	want := Provenance{Seq: 2, Index: 3, Delay: 3}
	if action[0] != 103 || s.last != want {
		t.Errorf("next action %v of %+v, want 103 of %+v", action[0], s.last, want)
	}
}

func TestMergeRefuses(t *testing.T) {
	bad := func(change func(*Chunk)) *Chunk {
		c := ramp(9, 2, 4, 0)
		change(c)
		return c
	}
	tests := []struct {
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
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSchedule(4, 1)
			merge(s, ramp(5, 0, 4, 0))
			pop(s)
			pop(s)
			before := content(s)
			if got := merge(s, tt.c).Outcome; got != tt.want {
				t.Errorf("Merge() = %v, want %v", got, tt.want)
			}
			if changed := !slices.Equal(content(s), before); changed != (tt.want == Joined) {
				t.Errorf("schedule changed: %v, want %v", changed, tt.want == Joined)
			}
		})
	}
}

func TestOldActionsNeverRun(t *testing.T) {
	s := newSchedule(4, 1)
	c := ramp(1, 0, 4, 0)
	c.source = 1000
	merge(s, c)
	if action, age, tooOld := s.pop(0, 1000+100, 100); action == nil || tooOld || age != 100 {
		t.Errorf("pop() at the limit = %v, too old %v at age %v, want an action at 100", action, tooOld, age)
	}
	if action, age, tooOld := s.pop(1, 1000+101, 100); action != nil || !tooOld || age != 101 || s.n != 0 {
		t.Errorf("pop() past the limit = %v, too old %v at age %v with n %d, want too old at 101 with n 0", action,
			tooOld, age, s.n)
	}
	if s.size() != 0 || s.live != 0 {
		t.Errorf("size() = %d of %d, want 0 of 0", s.size(), s.live)
	}
	// The trigger now sees an empty schedule and asks again.
	c = ramp(2, s.n+1, 4, 50)
	c.source = 1090
	merge(s, c)
	if action, _, _ := s.pop(1, 1102, 100); action == nil || action[0] != 50 || s.n != 1 {
		t.Errorf("pop() after a new chunk = %v with n %d, want 50 with n 1", action, s.n)
	}
}

// A gap starves the arm until a chunk closes it.
func TestGapStarves(t *testing.T) {
	s := newSchedule(4, 1)
	merge(s, ramp(1, 2, 3, 20))
	if action := pop(s); action != nil || s.size() != 0 {
		t.Fatalf("pop() before a gap = %v with size %d, want nil with 0", action, s.size())
	}
	merge(s, ramp(2, 0, 2, 0))
	if s.size() != 5 {
		t.Errorf("size() with the gap closed = %d, want 5", s.size())
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
	// When a server sends no model chunk, the robot rows still condition.
	merge(s, &Chunk{Key: 2, step: 3, Rows: 2, DOF: 2, Robot: []float32{1, 2, 3, 4}})
	if rows, known := s.copyPrefix(robot, model, 4); rows != 4 || known != 2 {
		t.Errorf("copyPrefix = %d robot rows, %d model rows, want 4, 2", rows, known)
	}
	// A model row after a missing one is not sent.
	merge(s, &Chunk{Key: 3, step: 4, Rows: 1, DOF: 2, Robot: []float32{5, 6}, Model: []float32{.5, .6}})
	if rows, known := s.copyPrefix(robot, model, 4); rows != 4 || known != 2 {
		t.Errorf("copyPrefix = %d robot rows, %d model rows with a gap, want 4, 2", rows, known)
	}
}

func TestClearKeepsStepAndRequest(t *testing.T) {
	s := newSchedule(4, 1)
	merge(s, ramp(3, 0, 4, 0))
	pop(s)
	s.clear()
	if s.size() != 0 || s.n != 0 || s.n+1 != 1 {
		t.Errorf("after clear size %d, n %d, next %d, want 0, 0, 1", s.size(), s.n, s.n+1)
	}
	if got := merge(s, ramp(2, 0, 4, 0)).Outcome; got != older {
		t.Errorf("Merge of an older request after clear = %v, want older", got)
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
