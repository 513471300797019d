package chunk

import (
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edge-rt/edge-rt/rt"
)

// oracle is the schedule as the paper defines it: a map from step to register.
type oracle struct {
	n      int64
	newest int64
	cells  map[int64]cell
}

type cell struct {
	key    int64
	value  float32
	source rt.Instant
}

func (o *oracle) join(c *Chunk) (stored int) {
	for i := range c.Rows {
		step := c.step + int64(i)
		if old, held := o.cells[step]; step > o.n && (!held || c.Key > old.key) {
			o.cells[step] = cell{c.Key, c.Robot[i], c.source}
			stored++
		}
	}
	return stored
}

func (o *oracle) run() (value float32, source rt.Instant, ok bool) {
	c, ok := o.cells[o.n+1]
	return c.value, c.source, ok
}

func (o *oracle) size() (rows int) {
	for {
		if _, held := o.cells[o.n+1+int64(rows)]; !held {
			return rows
		}
		rows++
	}
}

const testHorizon = 6

// ringOf returns how many steps above n fit into the schedule's ring. The schedule refuses later steps, so the oracle
// does, too.
func ringOf(s *schedule) int64 { return int64(len(s.slots)) }

// drawChunk draws a chunk that a faulty or hostile server could send: short, far ahead or late, with any key.
func drawChunk(t *rapid.T, n int64) *Chunk {
	key := rapid.Int64Range(1, 12).Draw(t, "key")
	c := ramp(key, n+rapid.Int64Range(-8, 40).Draw(t, "step"), rapid.IntRange(1, testHorizon).Draw(t, "rows"),
		float32(key*1000))
	c.source = rt.Instant(key)
	return c
}

// Property: under any sequence of merges, pops and clearings the ring behaves like the map, n never
// decreases and no step runs twice.
func TestScheduleEqualsOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSchedule(testHorizon, 1)
		o := &oracle{n: -1, newest: noKey, cells: map[int64]cell{}}
		for range rapid.IntRange(1, 80).Draw(t, "ops") {
			before := s.n
			switch rapid.SampledFrom([]string{"merge", "merge", "pop", "pop", "pop", "old", "clear"}).Draw(t, "op") {
			case "merge":
				mergeBoth(t, s, o, drawChunk(t, s.n))
			case "pop":
				action, age, _ := s.pop(s.n+1, 100, 0)
				value, source, ok := o.run()
				if (action != nil) != ok || ok && (action[0] != value || age != rt.Instant(100).Sub(source)) {
					t.Fatalf("pop() = %v, %v, want value %v source %v, %v", action, age, value, source, ok)
				}
				if ok {
					o.n++
					delete(o.cells, o.n)
				}
			case "old":
				popOld(t, s, o)
			case "clear":
				s.clear()
				clear(o.cells)
			}
			if s.n != o.n || s.n < before || s.n > before+1 {
				t.Fatalf("n went from %d to %d, want %d", before, s.n, o.n)
			}
			if s.size() != o.size() || s.live != len(o.cells) {
				t.Fatalf("size() = %d of %d, want %d of %d", s.size(), s.live, o.size(), len(o.cells))
			}
			comparePrefix(t, s, o)
		}
	})
}

func mergeBoth(t *rapid.T, s *schedule, o *oracle, c *Chunk) {
	want := late
	switch {
	case c.step < 0 || c.step+int64(c.Rows)-1 > o.n+ringOf(s):
		want = ahead
	case c.Key == o.newest:
		want = duplicate
	case c.Key < o.newest:
		want = older
	default:
		o.newest = c.Key
		if o.join(c) > 0 {
			want = Joined
		}
	}
	if got := merge(s, c).Outcome; got != want {
		t.Fatalf("Merge(key %d step %d rows %d) at n %d = %v, want %v", c.Key, c.step, c.Rows, o.n, got, want)
	}
}

// popOld pops with an age limit below the age of some actions.
func popOld(t *rapid.T, s *schedule, o *oracle) {
	limit := rapid.Int64Range(1, 12).Draw(t, "limit")
	const now = 13
	_, source, ok := o.run()
	action, age, tooOld := s.pop(s.n+1, now, time.Duration(limit))
	switch {
	case !ok:
		if action != nil || tooOld {
			t.Fatalf("pop() = %v, too old %v, want neither", action, tooOld)
		}
	case now-int64(source) > limit:
		if !tooOld || int64(age) != now-int64(source) {
			t.Fatalf("pop() = too old %v at age %d, want true at %d", tooOld, age, now-int64(source))
		}
		for step, c := range o.cells {
			if now-int64(c.source) > limit {
				delete(o.cells, step)
			}
		}
	default:
		if action == nil {
			t.Fatal("pop() = nil, want an action")
		}
		o.n++
		delete(o.cells, o.n)
	}
}

func comparePrefix(t *rapid.T, s *schedule, o *oracle) {
	var want []float32
	for i := range o.size() {
		want = append(want, o.cells[o.n+1+int64(i)].value)
	}
	got := make([]float32, ringOf(s))
	rows, _ := s.copyPrefix(got, nil, len(got))
	if !reflect.DeepEqual(append([]float32(nil), got[:rows]...), want) {
		t.Fatalf("copyPrefix = %v, want %v", got[:rows], want)
	}
}

// Property: the join is commutative, associative and idempotent: chunks with distinct keys give the same schedule in
// any order and with any repetition. The test joins without the watermark, as with Compat.
func TestJoinIsALattice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(-1, 10).Draw(t, "n")
		var chunks []*Chunk
		for key := range rapid.Int64Range(1, 6).Draw(t, "chunks") {
			c := drawChunk(t, 8)
			c.Key, c.Robot = key, ramp(key, 0, c.Rows, float32(key*1000)).Robot
			chunks = append(chunks, c)
		}
		fill := func(order []*Chunk) [][4]float64 {
			d := newOriginalDRTC(Config{Horizon: testHorizon, DOF: 1}, fixed(0))
			jump(d.schedule, n)
			for _, c := range order {
				d.merge(c, Result{})
			}
			return content(d.schedule)
		}
		want := fill(chunks)
		other := rapid.Permutation(chunks).Draw(t, "order")
		again := rapid.SliceOf(rapid.SampledFrom(chunks)).Draw(t, "duplicates")
		if got := fill(append(other, again...)); !reflect.DeepEqual(got, want) {
			t.Fatalf("another order gives %v, want %v", got, want)
		}
	})
}

// Property: every action is from the newest answer that has arrived, for answers in any order, lost or doubled. merge
// may refuse answers to older requests, because the actions are the same as if it joined them.
func TestNewestOnlyEqualsJoin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSchedule(testHorizon, 1)
		o := &oracle{n: -1, cells: map[int64]cell{}}
		var sent []*Chunk
		for range rapid.IntRange(1, 60).Draw(t, "ops") {
			switch rapid.SampledFrom([]string{"ask", "arrive", "arrive", "pop", "pop"}).Draw(t, "op") {
			case "ask":
				key := int64(len(sent) + 1)
				sent = append(sent, ramp(key, s.n+1, testHorizon, float32(key*1000)))
			case "arrive":
				if len(sent) > 0 {
					c := rapid.SampledFrom(sent).Draw(t, "answer")
					merge(s, c)
					o.join(c)
				}
			case "pop":
				action := pop(s)
				value, _, ok := o.run()
				if (action != nil) != ok || ok && action[0] != value {
					t.Fatalf("step %d: pop() = %v, want %v %v", o.n+1, action, value, ok)
				}
				if ok {
					o.n++
				}
			}
		}
	})
}

// Property: after a request without an answer the trigger fires again exactly estimate + epsilon + 1 ticks later, in
// any state of the schedule. It never fires twice within the cooldown.
func TestTriggerPeriod(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		horizon := rapid.IntRange(4, 60).Draw(t, "horizon")
		c := Config{
			Horizon: horizon,
			SMin:    rapid.IntRange(1, horizon-1).Draw(t, "s_min"),
			Epsilon: rapid.IntRange(0, 3).Draw(t, "epsilon"),
			FPS:     60,
		}
		d := trigger{c: c, latency: fixed(rapid.Float64Range(0, 1).Draw(t, "latency"))}
		last := -1
		for tick := range 200 {
			size := rapid.IntRange(0, horizon).Draw(t, "size")
			fire, delay := d.onTick(size)
			free := last < 0 || tick-last > d.estimate()+c.Epsilon
			if want := free && size <= horizon-c.SMin; fire != want {
				t.Fatalf("tick %d: onTick(%d) = %v, want %v (last request at %d)", tick, size, fire, want, last)
			}
			if fire {
				last = tick
				if delay > size || delay > d.estimate() || delay < min(size, d.estimate()) {
					t.Fatalf("delay %d, want min(%d rows, %d steps)", delay, size, d.estimate())
				}
				if end := c.prefixEnd(delay); end < 0 || end > horizon-max(c.SMin, delay) {
					t.Fatalf("prefixEnd(%d) = %d of %d", delay, end, horizon)
				}
			}
		}
	})
}
