package chunk

import (
	"math"
	"slices"
	"testing"
	"time"
)

const ms = time.Millisecond

func TestPopRunsStepsInOrder(t *testing.T) {
	s := NewSchedule(4, 1)
	if _, _, v := s.Pop(0, 0); v != Empty || s.N() != -1 {
		t.Fatalf("Pop() of an empty schedule = %v with n %d, want empty with -1", v, s.N())
	}
	s.Merge(ramp(1, 0, 4, 10))
	for i := range 4 {
		action, _, v := s.Pop(0, 0)
		if v != Ready || action[0] != 10+float32(i) || s.N() != int64(i) {
			t.Errorf("Pop() %d = %v %v with n %d, want ready %d", i, action, v, s.N(), 10+i)
		}
	}
	if _, _, v := s.Pop(0, 0); v != Empty || s.N() != 3 {
		t.Errorf("Pop() past the end = %v with n %d, want empty with 3", v, s.N())
	}
}

// An idle start wastes no row: the first chunk was asked for at n = -1 and its
// row 0 runs, however late it comes.
func TestLateFirstChunkLosesNothing(t *testing.T) {
	s := NewSchedule(4, 1)
	step := s.NextStep()
	for range 30 {
		s.Pop(0, 0)
	}
	if r := s.Merge(ramp(1, step, 4, 0)); r.Outcome != Joined || r.Stored != 4 || r.Delay != 0 {
		t.Errorf("Merge of the first chunk = %+v, want 4 rows stored at delay 0", r)
	}
}

func TestExecutedRowsFallAwayByIndex(t *testing.T) {
	s := NewSchedule(8, 1)
	s.Merge(ramp(1, 0, 8, 0))
	s.Pop(0, 0)
	step := s.NextStep() // 1
	for range 3 {
		s.Pop(0, 0) // 1, 2, 3 run while the request is under way
	}
	r := s.Merge(ramp(2, step, 8, 100))
	if r.Outcome != Joined || r.Delay != 3 || r.Stored != 5 || r.Overlap != 4 || r.MaxL2 != 99 {
		t.Errorf("Merge = %+v, want delay 3, 5 stored, 4 overlapping by 99", r)
	}
	action, _, _ := s.Pop(0, 0)
	want := Provenance{Seq: 2, Index: 3, Delay: 3}
	if action[0] != 103 || s.Last() != want {
		t.Errorf("next action %v of %+v, want 103 of %+v", action[0], s.Last(), want)
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
		{"a negative step", bad(func(c *Chunk) { c.Step = -1 }), Ahead},
		{"the last step of the ring", bad(func(c *Chunk) { c.Step = 1 + 16 - 3 }), Joined},
		{"one step beyond the ring", bad(func(c *Chunk) { c.Step = 1 + 16 - 2 }), Ahead},
		{"the last step there is", bad(func(c *Chunk) { c.Step = math.MaxInt64 }), Ahead},
		{"NaN in the last robot row", bad(func(c *Chunk) { c.Robot[3] = float32(math.NaN()) }), NotFinite},
		{"infinity in a row that has run", bad(func(c *Chunk) { c.Step, c.Robot[0] = 0, float32(math.Inf(-1)) }), NotFinite},
		{"infinity in the model chunk", bad(func(c *Chunk) {
			c.Model = slices.Clone(c.Robot)
			c.Model[2] = float32(math.Inf(1))
		}), NotFinite},
		{"every row has run", bad(func(c *Chunk) { c.Rows, c.Robot, c.Step = 2, c.Robot[:2], 0 }), Late},
		{"the same request again", ramp(5, 0, 4, 7), Duplicate},
		{"an older request", ramp(4, 2, 4, 7), Older},
		{"a chunk as it should be", ramp(6, 2, 4, 7), Joined},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := NewSchedule(4, 1)
			s.Merge(ramp(5, 0, 4, 0))
			s.Pop(0, 0)
			s.Pop(0, 0)
			before := content(s)
			if got := s.Merge(tt.c).Outcome; got != tt.want {
				t.Errorf("Merge() = %v, want %v", got, tt.want)
			}
			if changed := !slices.Equal(content(s), before); changed != (tt.want == Joined) {
				t.Errorf("schedule changed: %v, want %v", changed, tt.want == Joined)
			}
			if want := map[bool]uint64{true: 2, false: 1}[tt.want == Joined]; s.Count(tt.want) != want {
				t.Errorf("Count(%v) = %d, want %d", tt.want, s.Count(tt.want), want)
			}
		})
	}
}

func TestOldActionsNeverRun(t *testing.T) {
	s := NewSchedule(4, 1)
	c := ramp(1, 0, 4, 0)
	c.Source = 1000
	s.Merge(c)
	if _, age, v := s.Pop(1000+100, 100); v != Ready || age != 100 {
		t.Errorf("Pop() at the limit = %v at age %v, want ready at 100", v, age)
	}
	if _, age, v := s.Pop(1000+101, 100); v != TooOld || age != 101 || s.N() != 0 {
		t.Errorf("Pop() past the limit = %v at age %v with n %d, want too_old at 101 with n 0", v, age, s.N())
	}
	if s.Size() != 0 || s.RowsTooOld() != 3 {
		t.Errorf("Size() = %d with %d rows too old, want 0 with 3", s.Size(), s.RowsTooOld())
	}
	// The trigger now sees an empty schedule and asks again.
	c = ramp(2, s.NextStep(), 4, 50)
	c.Source = 1090
	s.Merge(c)
	if action, _, v := s.Pop(1102, 100); v != Ready || action[0] != 50 || s.N() != 1 {
		t.Errorf("Pop() after a new chunk = %v %v with n %d, want ready 50 with n 1", v, action, s.N())
	}
}

// A gap starves the schedule until a chunk closes it.
func TestGapStarves(t *testing.T) {
	s := NewSchedule(4, 1)
	s.Merge(ramp(1, 2, 3, 20))
	if _, _, v := s.Pop(0, 0); v != Empty || s.Size() != 0 {
		t.Fatalf("Pop() before a gap = %v with size %d, want empty with 0", v, s.Size())
	}
	s.Merge(ramp(2, 0, 2, 0))
	if s.Size() != 5 {
		t.Errorf("Size() with the gap closed = %d, want 5", s.Size())
	}
}

func TestCopyPrefix(t *testing.T) {
	s := NewSchedule(4, 2)
	c := &Chunk{Key: 1, Step: 0, Rows: 4, DOF: 2,
		Robot: []float32{0, 1, 10, 11, 20, 21, 30, 31},
		Model: []float32{.0, .1, .2, .3, .4, .5, .6, .7}}
	s.Merge(c)
	s.Pop(0, 0)
	robot, model := make([]float32, 6), make([]float32, 6)
	if rows := s.CopyPrefix(robot, model, 9); rows != 3 || !slices.Equal(robot, c.Robot[2:]) || !slices.Equal(model, c.Model[2:]) {
		t.Errorf("CopyPrefix = %d rows %v %v, want 3 rows %v %v", rows, robot, model, c.Robot[2:], c.Model[2:])
	}
	if rows := s.CopyPrefix(robot[:5], nil, 9); rows != 2 {
		t.Errorf("CopyPrefix into 5 values = %d rows, want 2", rows)
	}
	if rows := s.CopyPrefix(nil, model, 1); rows != 1 {
		t.Errorf("CopyPrefix of at most 1 row = %d rows, want 1", rows)
	}
	// A server that sends no model chunk: the robot rows still condition.
	s.Merge(&Chunk{Key: 2, Step: 3, Rows: 2, DOF: 2, Robot: []float32{1, 2, 3, 4}})
	if r, m := s.CopyPrefix(make([]float32, 8), nil, 4), s.CopyPrefix(nil, make([]float32, 8), 4); r != 4 || m != 2 {
		t.Errorf("CopyPrefix = %d robot rows, %d model rows, want 4, 2", r, m)
	}
	// Amended rows travel; executed and absent ones cannot be amended.
	if !s.Amend(1, []float32{-1, -2}) || s.Amend(0, []float32{-1, -2}) || s.Amend(5, []float32{-1, -2}) || s.Amend(1, []float32{-1}) {
		t.Errorf("Amend accepts the wrong steps")
	}
	if s.CopyPrefix(robot, nil, 1); robot[0] != -1 || robot[1] != -2 {
		t.Errorf("CopyPrefix after Amend = %v, want [-1 -2]", robot[:2])
	}
}

// Spans go behind what the caller has, and never grow into it.
func TestAppendSpans(t *testing.T) {
	s := NewSchedule(4, 1)
	s.Merge(ramp(7, 0, 3, 0))
	got := s.AppendSpans([]Span{{7, -2, 0}}, 2)
	if want := []Span{{7, -2, 0}, {7, 0, 2}}; !slices.Equal(got, want) {
		t.Errorf("AppendSpans = %v, want %v", got, want)
	}
}

func TestClearKeepsStepAndRequest(t *testing.T) {
	s := NewSchedule(4, 1)
	s.Merge(ramp(3, 0, 4, 0))
	s.Pop(0, 0)
	s.Clear()
	if s.Size() != 0 || s.N() != 0 || s.NextStep() != 1 {
		t.Errorf("after Clear size %d, n %d, next %d, want 0, 0, 1", s.Size(), s.N(), s.NextStep())
	}
	if got := s.Merge(ramp(2, 0, 4, 0)).Outcome; got != Older {
		t.Errorf("Merge of an older request after Clear = %v, want older", got)
	}
}

func TestRequests(t *testing.T) {
	var q Requests
	for key := int64(1); key <= requestSlots+1; key++ {
		q.Put(Request{Key: key, Step: 10 * key})
	}
	for _, tt := range []struct {
		name string
		key  int64
		want Outcome
	}{
		{"forgotten", 1, Unknown},
		{"the oldest remembered", 2, Joined},
		{"answered before", 2, Duplicate},
		{"the newest", requestSlots + 1, Joined},
		{"never sent", requestSlots + 2, Unknown},
		{"negative", -1, Unknown},
	} {
		if r, o := q.Take(tt.key); o != tt.want || o == Joined && r.Step != 10*tt.key {
			t.Errorf("%s: Take(%d) = %+v, %v, want %v", tt.name, tt.key, r, o, tt.want)
		}
	}
}

func TestChunkNoAlloc(t *testing.T) {
	s, q := NewSchedule(50, 6), &Requests{}
	d := NewTrigger(TriggerConfig{Horizon: 50, Epsilon: 1, FPS: 60, Estimator: NewJK(0.1, DefaultAlpha, DefaultBeta, DefaultK), PrefixEnd: 24})
	c := &Chunk{Rows: 50, DOF: 6, Robot: make([]float32, 300), Model: make([]float32, 300)}
	prefix, spans := make([]float32, 300), make([]Span, 0, 50)
	row := make([]float32, 6)
	if n := testing.AllocsPerRun(1000, func() {
		s.Pop(0, time.Second)
		if fire, delay := d.OnTick(s.Size()); fire {
			c.Key++
			c.Step = s.NextStep()
			s.CopyPrefix(prefix, prefix, d.PrefixEnd(delay))
			q.Put(Request{Key: c.Key, Step: c.Step})
			q.Take(c.Key)
			s.Merge(c)
			d.OnChunk(50 * ms)
		}
		s.Amend(s.NextStep(), row)
		spans = s.AppendSpans(spans[:0], 50)
	}); n != 0 {
		t.Errorf("a tick allocates %v times, want 0", n)
	}
	if s.Count(Joined) < 10 {
		t.Errorf("%d chunks merged, want at least 10", s.Count(Joined))
	}
}
