package chunk

import (
	"math"
	"slices"
	"testing"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"pgregory.net/rapid"
)

// rowsFrom returns a chunk of n rows of dof joints. Joint j of row i is the parameter value plus i + j/10. The model
// rows are the negated robot rows.
func rowsFrom(n, dof int, value float32, seq uint64) *Chunk {
	c := &Chunk{Key: int64(seq), Rows: n, DOF: dof, Prov: Provenance{Seq: seq}}
	for i := range n * dof {
		v := value + float32(i/dof) + float32(i%dof)/10
		c.Robot, c.Model = append(c.Robot, v), append(c.Model, -v)
	}
	return c
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

// plain is a queue of plain slices, like LeRobot's tensors. The tests compare actionQueue with it.
type plain struct {
	robot, model []float32
	source       []rt.Instant
}

// Property: after any sequence of replacing, appending, blending, taking and
// clearing, the queue with its cursor equals the plain arrays.
func TestActionQueueEqualsOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const horizon = 5
		q, o := newActionQueue(4*horizon, 1), plain{}
		for range rapid.IntRange(1, 100).Draw(t, "ops") {
			c := rowsFrom(rapid.IntRange(1, horizon).Draw(t, "rows"), 1, rapid.Float32Range(-100, 100).Draw(t, "value"),
				1)
			c.source = rt.Instant(rapid.IntRange(0, 1000).Draw(t, "source"))
			k := rapid.IntRange(-1, horizon+1).Draw(t, "skip")
			f := rttest.Must(parseAggregate(rapid.SampledFrom(append(Aggregates, "weighted:0.25")).Draw(t, "f")))(t)
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
				if _, _, filled := q.leftOver(); filled {
					t.Fatal("a cleared queue is not None")
				}
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

// blend returns the new rows, each blended with the old row at the same position if there is one.
func (o plain) blend(p plain, f *aggregate) plain {
	for i := range min(len(o.robot), len(p.robot)) {
		p.robot[i] = float32(f.old*o.robot[i]) + float32(f.new*p.robot[i])
		p.model[i] = float32(f.old*o.model[i]) + float32(f.new*p.model[i])
		if f.old != 0 {
			p.source[i] = min(p.source[i], o.source[i])
		}
	}
	return p
}

func TestBlendOfZeroKeepsItsSign(t *testing.T) {
	old := []float32{5}
	blendRow(old, []float32{float32(math.Copysign(0, -1))}, 0, 1)
	if !math.Signbit(float64(old[0])) {
		t.Error("latest_only made 0 of -0")
	}
}

// Goal: with temporal weights, the action of a step is the weighted mean of all its predictions, where row i of a chunk
// has the weight exp(-decay*i).
func TestTemporalWeights(t *testing.T) {
	const decay, rows = 0.5, 4
	f := rttest.Must(parseAggregate("temporal:0.5"))(t)
	q := newActionQueue(3*rows, 1)
	var sum, weights [2 * rows]float64 // sums by step
	for step := range rows {           // chunk k predicts the steps from k on
		c := rowsFrom(rows, 1, float32(10*step*step), 1)
		for row := range rows {
			w := math.Exp(-decay * float64(row))
			sum[step+row] += w * float64(c.Robot[row])
			weights[step+row] += w
		}
		q.blend(c, 0, f)
		if got, want := q.get()[0], sum[step]/weights[step]; math.Abs(float64(got)-want) > 1e-5*want {
			t.Errorf("step %d is %v, want %v", step, got, want)
		}
	}
}

func TestAggregatesByName(t *testing.T) {
	for _, text := range []string{"", "weighted:0", "weighted:1", "weighted:0.3", "temporal:-0.01", "temporal:10"} {
		rttest.Do(t, CheckAggregate(text))
	}
	for _, text := range []string{"median", "weighted", "weighted:", "weighted:1.1", "weighted:-0.1", "weighted:NaN",
		"temporal:0", "temporal:-1.1", "temporal:11", "temporal:NaN", "temporal:x"} {
		if CheckAggregate(text) == nil {
			t.Errorf("%q is accepted", text)
		}
	}
	named, _ := parseAggregate("weighted_average")
	shared, _ := parseAggregate("weighted:0.3")
	if *named != *shared {
		t.Errorf("weighted_average is %v, weighted:0.3 %v", *named, *shared)
	}
}
