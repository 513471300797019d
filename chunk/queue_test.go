package chunk

import (
	"math"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/edge-rt/edge-rt/rt"
)

// rowsFrom returns a chunk of n rows of dof joints: joint j of row i is value + i + j/10, the
// model's rows are negated.
func rowsFrom(n, dof int, value float32, seq uint64) *Chunk {
	c := &Chunk{Key: int64(seq), Rows: n, DOF: dof, Prov: Provenance{Seq: seq}}
	for i := range n * dof {
		v := value + float32(i/dof) + float32(i%dof)/10
		c.Robot, c.Model = append(c.Robot, v), append(c.Model, -v)
	}
	return c
}

func take(q *actionQueue, n int) (firsts []float32) {
	for range n {
		if a := q.get(); a != nil {
			firsts = append(firsts, a[0])
		}
	}
	return firsts
}

// The claims of LeRobot's tests/policies/rtc/test_action_queue.py, in their order, each after the
// name of its test; the tests below cover the others. Three are omitted, since they hold by type
// here: queue_handles_gpu_tensors, queue_handles_different_dtypes, and
// get_with_task_fails_loudly_when_task_labels_desync (a row and its provenance are one value). The
// three tests of a log line about a delay that differs from the rows taken check the queue's
// content only: the caller writes the line itself, from index.
func TestActionQueueClaims(t *testing.T) {
	const room = 100
	type step func(q *actionQueue) (got, want any)
	length := func(want int) step { return func(q *actionQueue) (any, any) { return q.size(), want } }
	index := func(want int) step { return func(q *actionQueue) (any, any) { return q.index, want } }
	first := func(want float32) step { return func(q *actionQueue) (any, any) { return q.get()[0], want } }
	gone := func(q *actionQueue) (any, any) { return q.get() == nil, true }
	replace := func(n, delay int) step {
		return func(q *actionQueue) (any, any) { q.replace(rowsFrom(n, 6, 0, 1), delay); return nil, nil }
	}
	follow := func(n int) step {
		return func(q *actionQueue) (any, any) { return q.append(rowsFrom(n, 6, 100, 2)), true }
	}
	late := func(q *actionQueue) (any, any) {
		c := rowsFrom(50, 6, 0, 1)
		c.Prov.Delay = 10
		return q.append(c), true
	}
	empty := func(want bool) step { return func(q *actionQueue) (any, any) { return q.size() == 0, want } }
	get := func(n int) step { return func(q *actionQueue) (any, any) { return len(take(q, n)), n } }
	left := func(rows int, ok bool, first float32) step {
		return func(q *actionQueue) (any, any) {
			robot, model, is := q.leftOver()
			value := float32(0)
			if len(model) > 0 {
				value = -model[0]
			}
			return []any{len(robot) / 6, len(model) / 6, is, value}, []any{rows, rows, ok, first}
		}
	}
	for name, steps := range map[string][]step{
		"action_queue_initialization (with and without RTC), empty_with_none_queue, qsize_with_none_queue": {length(0),
			index(0), left(0, false, 0)},
		"get_returns_none_when_empty":       {gone},
		"get_returns_actions_sequentially":  {replace(10, 0), first(0), first(1), first(2)},
		"get_returns_none_after_exhaustion": {replace(10, 0), get(10), gone, gone},
		"get_increments_last_index": {replace(10, 0), index(0), get(1), index(1), get(1),
			index(2)},
		"qsize_returns_zero_when_empty": {length(0)},
		"qsize_returns_correct_size": {replace(10, 0), length(10), get(1), length(9), get(1),
			length(8)},
		"qsize_after_exhaustion":             {replace(10, 0), get(10), length(0)},
		"empty_returns_true_when_empty":      {empty(true)},
		"empty_returns_false_when_not_empty": {replace(10, 0), empty(false)},
		"empty_after_partial_consumption":    {replace(10, 0), get(2), empty(false)},
		"empty_after_full_consumption":       {replace(10, 0), get(10), empty(true)},
		"get_action_index_initial_value":     {index(0)},
		"get_action_index_after_consumption": {replace(10, 0), index(0), get(1), index(1), get(2),
			index(3)},
		"get_left_over_returns_none_when_empty":             {left(0, false, 0)},
		"get_left_over_returns_all_when_unconsumed":         {replace(10, 0), left(10, true, 0)},
		"get_left_over_returns_remaining_after_consumption": {replace(10, 0), get(3), left(7, true, 3)},
		"get_left_over_returns_empty_after_exhaustion":      {replace(10, 0), get(10), left(0, true, 0)},
		"merge_replaces_queue_when_rtc_enabled": {replace(10, 0), get(2), replace(50, 5), length(45),
			index(0)},
		"merge_respects_real_delay": {replace(50, 10), first(10)},
		"merge_resets_last_index_when_rtc_enabled": {replace(10, 0), get(5), index(5), replace(10, 2),
			index(0)},
		"merge_with_zero_delay":                         {replace(50, 0), length(50)},
		"merge_with_large_delay":                        {replace(10, 100), length(0), gone},
		"merge_appends_when_rtc_disabled":               {follow(10), follow(10), length(20)},
		"merge_removes_consumed_actions_when_appending": {follow(10), get(3), follow(10), length(17)},
		"merge_resets_last_index_after_append":          {follow(10), get(5), follow(10), index(0)},
		"merge_ignores_delay_when_rtc_disabled":         {late, length(50), first(0)},
		"merge_first_call_with_rtc_disabled":            {follow(50), length(50), index(0)},
		"merge_with_different_lengths":                  {follow(10), follow(25), length(35)},
		"merge_validates_delay_consistency": {replace(10, 0), get(5), index(5), replace(50, 3),
			length(47), first(3)},
		"merge_no_log_when_delays_match": {replace(10, 0), get(5), index(5), replace(50, 5),
			length(45), first(5)},
		"merge_skips_validation_when_action_index_none": {replace(10, 0), get(5), replace(50, 999), length(0),
			gone},
		"queue_with_single_action": {replace(1, 0), length(1), get(1), length(0)},
		"queue_behavior_after_multiple_merge_cycles": {replace(50, 5), get(10), replace(50, 3), get(20),
			replace(50, 7), length(43)},
		"typical_rtc_workflow": {replace(50, 0), get(10), replace(50, 5), length(45),
			index(0)},
		"typical_non_rtc_workflow":       {follow(50), get(40), follow(50), length(60)},
		"a negative delay drops nothing": {replace(10, -3), length(10), first(0)},
	} {
		t.Run(name, func(t *testing.T) {
			q := newActionQueue(room, 6)
			for i, s := range steps {
				if got, want := s(q); !equal(got, want) {
					t.Fatalf("step %d: got %v, want %v", i, got, want)
				}
			}
		})
	}
}

func equal(a, b any) bool {
	x, isList := a.([]any)
	if !isList {
		return a == b
	}
	return slices.Equal(x, b.([]any))
}

// get_with_task_preserves_provenance_when_non_rtc_queue_drains and
// get_with_task_tracks_replacement_chunk_provenance: a row keeps the label of its chunk, here the
// chunk's request.
func TestActionQueueKeepsProvenance(t *testing.T) {
	seqs := func(q *actionQueue, n int) (got []uint64) {
		for range n {
			got = append(got, q.head().prov.Seq)
			q.get()
		}
		return got
	}
	q := newActionQueue(10, 1)
	q.append(rowsFrom(2, 1, 0, 1))
	got := seqs(q, 1)
	q.append(rowsFrom(2, 1, 0, 2))
	if got = append(got, seqs(q, 3)...); !slices.Equal(got, []uint64{1, 1, 2, 2}) {
		t.Errorf("appended rows are of requests %v, want 1 1 2 2", got)
	}
	q.replace(rowsFrom(4, 1, 0, 3), 1)
	if p := q.head().prov; p.Seq != 3 || p.Index != 1 || p.Delay != 1 {
		t.Errorf("after replacing %+v, want row 1 of request 3 after 1 row", p)
	}
}

// merge_with_different_action_dims: a queue has the width of its robot.
func TestActionQueueOfAnotherWidth(t *testing.T) {
	q := newActionQueue(20, 4)
	q.replace(rowsFrom(20, 4, 0, 1), 5)
	if a := q.get(); len(a) != 4 || a[0] != 5 || a[3] != 5.3 || q.size() != 14 {
		t.Errorf("get() = %v, %d left, want row 5 of 4 joints and 14", a, q.size())
	}
}

// queue_clones_input_tensors and queue_with_all_zeros_actions.
func TestActionQueueCopies(t *testing.T) {
	q := newActionQueue(4, 1)
	c := &Chunk{Rows: 4, DOF: 1, Robot: []float32{0, 0, 0, 0}, Model: []float32{0, 0, 0, 0}}
	q.replace(c, 0)
	c.Robot[0], c.Model[0] = 7, 7
	if robot, model, _ := q.leftOver(); robot[0] != 0 || model[0] != 0 {
		t.Errorf("the queue changed with its input: %v %v", robot, model)
	}
	if a := q.get(); a == nil || a[0] != 0 {
		t.Errorf("get() = %v, want 0", a)
	}
}

// get_is_thread_safe, merge_is_thread_safe, concurrent_get_and_merge and
// get_left_over_is_thread_safe: the queue has one owner instead of a lock; other threads pass their
// chunks through rt.Latest, and the owner must never see half of one.
func TestActionQueueIsFedByOtherThreads(t *testing.T) {
	const chunks = 2000
	inbox := rt.NewLatest(func(c *Chunk) { c.Robot = make([]float32, 8) })
	var feed sync.WaitGroup
	feed.Add(1)
	go func() {
		defer feed.Done()
		for key := int64(1); key <= chunks; key++ {
			c := inbox.Back()
			c.Rows = 8
			c.DOF = 1
			c.Key = key
			for i := range c.Robot {
				c.Robot[i] = float32(key)
			}
			inbox.Publish(key)
		}
	}()
	q := newActionQueue(8, 1)
	taken := 0
	newest := int64(0)
	for newest < chunks {
		if c, key, fresh := inbox.Front(); fresh {
			q.replace(c, 2)
			newest = key
			robot, _, _ := q.leftOver()
			if len(robot) != 6 || slices.Min(robot) != float32(key) || slices.Max(robot) != float32(key) {
				t.Fatalf("chunk %d arrived as %v", key, robot)
			}
		}
		taken += len(take(q, 3))
	}
	feed.Wait()
	if taken == 0 {
		t.Error("nothing was taken")
	}
}

func TestActionQueueRefusesWhatDoesNotFit(t *testing.T) {
	q := newActionQueue(16, 1)
	for q.append(rowsFrom(4, 1, 0, 1)) {
	}
	if q.size() != 16 || len(q.rows)-q.size() != 0 {
		t.Errorf("%d rows with room for %d, want it full", q.size(), len(q.rows)-q.size())
	}
	before := q.size()
	if q.append(rowsFrom(1, 1, 9, 2)); q.size() != before || q.get()[0] != 0 {
		t.Error("a chunk that does not fit changed the queue")
	}
}

// plain is the queue as arrays that only grow, like LeRobot's tensors.
type plain struct {
	robot, model []float32
	source       []rt.Instant
}

// Property: under any sequence of replacing, appending, blending, taking and
// clearing the queue with its cursor equals the plain arrays.
func TestActionQueueEqualsOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const horizon = 5
		q, o := newActionQueue(4*horizon, 1), plain{}
		for range rapid.IntRange(1, 100).Draw(t, "ops") {
			c := rowsFrom(rapid.IntRange(1, horizon).Draw(t, "rows"), 1, rapid.Float32Range(-100, 100).Draw(t, "value"),
				1)
			c.source = rt.Instant(rapid.IntRange(0, 1000).Draw(t, "source"))
			k := rapid.IntRange(-1, horizon+1).Draw(t, "skip")
			f := aggregate(rapid.IntRange(0, len(aggregates)-1).Draw(t, "f"))
			switch rapid.SampledFrom([]string{"get", "get", "get", "replace", "append", "blend", "clear"}).Draw(t,
				"op") {
			case "get":
				o.get(t, q)
			case "replace":
				q.replace(c, k)
				o = cut(c, k)
			case "append":
				if fits := len(o.robot)+c.Rows <= 4*horizon; q.append(c) != fits {
					t.Fatalf("append of %d to %d = %v", c.Rows, len(o.robot), !fits)
				} else if fits {
					o.add(cut(c, 0))
				}
			case "blend":
				q.blend(c, k, f)
				o = o.blend(cut(c, k), f)
			case "clear":
				q.clear()
				o = plain{}
			}
			robot, model, _ := q.leftOver()
			if !slices.Equal(robot, o.robot) || !slices.Equal(model, o.model) || q.size() != len(o.robot) {
				t.Fatalf("left %v %v, want %v %v", robot, model, o.robot, o.model)
			}
			for i, s := range o.source {
				if q.rows[q.index+i].source != s {
					t.Fatalf("row %d is from %v, want %v", i, q.rows[q.index+i].source, s)
				}
			}
		}
	})
}

func (o *plain) get(t *rapid.T, q *actionQueue) {
	a := q.get()
	if (a == nil) != (len(o.robot) == 0) || a != nil && a[0] != o.robot[0] {
		t.Fatalf("get() = %v of %v", a, o.robot)
	}
	if a != nil {
		o.robot = o.robot[1:]
		o.model = o.model[1:]
		o.source = o.source[1:]
	}
}

func (o *plain) add(p plain) {
	o.robot = slices.Concat(o.robot, p.robot)
	o.model = slices.Concat(o.model, p.model)
	o.source = slices.Concat(o.source, p.source)
}

func cut(c *Chunk, k int) (p plain) {
	for i := max(k, 0); i < c.Rows; i++ {
		p.robot = append(p.robot, c.Robot[i])
		p.model = append(p.model, c.Model[i])
		p.source = append(p.source, c.source)
	}
	return p
}

// blend is the aggregation written out: new rows, mixed where both have one.
func (o plain) blend(p plain, f aggregate) plain {
	w := [][2]float32{{0.3, 0.7}, {0, 1}, {0.5, 0.5}, {0.7, 0.3}}[f]
	for i := range min(len(o.robot), len(p.robot)) {
		p.robot[i] = float32(w[0]*o.robot[i]) + float32(w[1]*p.robot[i])
		p.model[i] = float32(w[0]*o.model[i]) + float32(w[1]*p.model[i])
		if f != latestOnly {
			p.source[i] = min(p.source[i], o.source[i])
		}
	}
	return p
}

func TestBlendOfZeroKeepsItsSign(t *testing.T) {
	old := []float32{5}
	latestOnly.blend(old, []float32{float32(math.Copysign(0, -1))})
	if !math.Signbit(float64(old[0])) {
		t.Error("latest_only made 0 of -0")
	}
}
