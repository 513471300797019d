package chunk

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Recordings of LeRobot's own code; testdata/golden/lerobot.md describes them.
const (
	lerobotGoldens = "../testdata/golden/lerobot.json"
	lerobotTraces  = "../testdata/golden/lerobot_scheduling.json"
)

func TestLatencyTrackerGolden(t *testing.T) {
	var e longest
	rttest.Want(t, e.seconds(), 0, "without samples")
	for i, c := range rttest.Cases[struct{ Add, Max float64 }](t, lerobotGoldens, "latency_tracker_maxlen5") {
		e.observe(c.Add)
		rttest.Want(t, e.seconds(), c.Max, "sample %d", i)
	}
}

// lerobotSteps computes ceil(latency / (1/fps)) in Python's order of operations: for a latency of k/fps the result may
// be k or k+1.
func TestLeRobotSteps(t *testing.T) {
	for _, c := range []struct {
		seconds, fps float64
		want         int
	}{{0, 30, 0}, {0.1, 30, 3}, {0.1001, 30, 4}, {0.001, 30, 1}, {4.9, 30, 147}, {1e12, 60, stepsMax}} {
		rttest.Want(t, lerobotSteps(c.seconds, c.fps), c.want, "lerobotSteps(%v, %v)", c.seconds, c.fps)
	}
}

func TestAggregateGolden(t *testing.T) {
	type golden struct {
		Name          string
		Old, New, Out []float32
	}
	cases := rttest.Cases[golden](t, lerobotTraces, "aggregate")
	if len(cases) != len(Aggregates) {
		t.Fatalf("%d functions recorded, want %d", len(cases), len(Aggregates))
	}
	for _, c := range cases {
		f := rttest.Must(parseAggregate(c.Name))(t)
		blendRow(c.Old, c.New, f.old, f.new)
		rttest.Equal(t, c.Old, c.Out, "%s", c.Name)
	}
	rttest.Fails(t, rttest.Err(parseAggregate("median")))
}

func TestSimilarityGolden(t *testing.T) {
	type golden struct {
		A, B    []float32
		Similar bool
	}
	for i, c := range rttest.Cases[golden](t, lerobotTraces, "similarity") {
		f := stateFilter{distance: defaultSimilarity, earlier: c.A, active: true}
		rttest.Want(t, f.similar(c.B), c.Similar, "case %d: at distance %v similar", i, distance(c.A, c.B))
	}
}

type queueCase struct {
	Name  string
	RTC   bool
	Trace []struct {
		Op           string
		Rows         [][2]float32
		Row          *[2]float32
		Delay        int
		QSize, Index int
		Empty        bool
	}
}

func TestActionQueueGolden(t *testing.T) {
	for _, c := range rttest.Cases[queueCase](t, lerobotTraces, "action_queue") {
		t.Run(c.Name, func(t *testing.T) {
			q := newActionQueue(64, 2) // room for the whole recording
			for i, op := range c.Trace {
				switch op.Op {
				case "merge":
					chunk := queueChunk(op.Rows)
					if c.RTC {
						q.replace(chunk, op.Delay)
					} else if !q.append(chunk) {
						t.Fatalf("op %d: no room", i)
					}
				case "get":
					if got := q.get(); (got == nil) != (op.Row == nil) || got != nil && [2]float32(got) != *op.Row {
						t.Errorf("op %d: Get() = %v, want %v", i, got, op.Row)
					}
				case "left":
					_, model, ok := q.leftOver()
					var want []float32
					for _, row := range op.Rows {
						want = append(want, row[:]...)
					}
					if ok != (op.Rows != nil) || !slices.Equal(model, want) {
						t.Errorf("op %d: LeftOver() = %v, %v, want %v", i, model, ok, op.Rows)
					}
				}
				if q.size() != op.QSize || (q.size() == 0) != op.Empty || q.index != op.Index {
					t.Errorf("op %d (%s): %d left at index %d, want %d at %d", i, op.Op, q.size(), q.index, op.QSize,
						op.Index)
				}
			}
		})
	}
}

// queueChunk returns a recorded chunk. Its model rows are the robot's rows, negated.
func queueChunk(rows [][2]float32) *Chunk {
	c := &Chunk{Rows: len(rows), DOF: 2}
	for _, row := range rows {
		c.Robot = append(c.Robot, row[:]...)
		c.Model = append(c.Model, -row[0], -row[1])
	}
	return c
}

type clientCase struct {
	Name             string
	Threshold, Speed float64
	Aggregate        string
	Chunk            int
	Ticks            []struct {
		Ran    *float32
		Latest int64
		Came   *int64
		Size   int
		Sent   *struct {
			Label    int64
			MustGo   bool `json:"must_go"`
			Enqueued bool
		}
	}
}

// async with Compat behaves like LeRobot's real client and server. If the answers arrive at their recorded ticks, each
// tick has the recorded action, number of actions left and requests.
func TestAsyncClientGolden(t *testing.T) {
	for _, c := range rttest.Cases[clientCase](t, lerobotTraces, "client") {
		t.Run(c.Name, func(t *testing.T) { replayClient(t, c) })
	}
}

func replayClient(t *testing.T, c clientCase) {
	d := rttest.Must(New(Config{
		Schedule:  scheduleAsync,
		Horizon:   c.Chunk,
		DOF:       1,
		FPS:       30,
		Threshold: c.Threshold,
		Aggregate: c.Aggregate,
		Compat:    true,
	}))(t)
	ask, keys := NewAsk(c.Chunk, 1), map[int64]int64{} // newest key of a label
	state, answers := []float32{0}, 0
	var asked, enqueued []int64 // labels, each once
	for i, want := range c.Ticks {
		now := rt.Instant(i) * rt.Instant(33*time.Millisecond)
		action, _, _ := d.Pop(now, 0)
		if (action != nil) != (want.Ran != nil) || action != nil && action[0] != *want.Ran {
			t.Fatalf("tick %d: Pop() = %v, want %v", i, action, want.Ran)
		}
		if action != nil {
			state[0] += float32(c.Speed)
		}
		if want.Came != nil {
			answers++
			chunk := &Chunk{Key: keys[*want.Came], Rows: c.Chunk, DOF: 1}
			for row := range c.Chunk {
				chunk.Robot = append(chunk.Robot, float32(float32(float32(*want.Came)+
					float32(float32(0.01)*float32(row)))+float32(answers)))
			}
			d.OnChunk(now, chunk)
		}
		if d.OnTick(now, state, &ask) {
			keys[ask.Step] = ask.Key
			asked = addLabel(asked, ask.Step)
			if want.Sent == nil || !want.Sent.Enqueued || want.Sent.Label != ask.Step {
				t.Fatalf("tick %d: asks for step %d, want %+v", i, ask.Step, want.Sent)
			}
		}
		if want.Sent != nil && want.Sent.Enqueued {
			enqueued = addLabel(enqueued, want.Sent.Label)
		}
		if got := d.View(); got.N != want.Latest || got.Size != want.Size {
			t.Fatalf("tick %d: n %d, %d left, want %d, %d", i, got.N, got.Size, want.Latest, want.Size)
		}
	}
	rttest.Equal(t, asked, enqueued, "asked for steps")
	if len(asked) < 3 && c.Speed > 0 {
		t.Errorf("%d requests: the recording says nothing", len(asked))
	}
}

func addLabel(labels []int64, label int64) []int64 {
	if n := len(labels); n > 0 && labels[n-1] == label {
		return labels
	}
	return append(labels, label)
}

// Goal: an ACT policy moves the arm as with LeRobot's temporal ensemble, if DECAY is minus LeRobot's coefficient.
func TestTemporalEnsembleGolden(t *testing.T) {
	type golden struct {
		Coeff       float64
		Chunk, A    int
		Chunks, Out [][]float32
	}
	for _, c := range rttest.Cases[golden](t, lerobotGoldens, "act_temporal_ensembler") {
		f := rttest.Must(parseAggregate(fmt.Sprint(temporal, -c.Coeff)))(t)
		q := newActionQueue(c.Chunk, c.A)
		for step, actions := range c.Chunks {
			q.blend(&Chunk{Robot: actions, Rows: c.Chunk, DOF: c.A}, 0, f)
			for j, got := range q.get() {
				if want := c.Out[step][j]; math.Abs(float64(got-want)) > 1e-6 {
					t.Errorf("step %d, joint %d: %v, want %v", step, j, got, want)
				}
			}
		}
	}
}
