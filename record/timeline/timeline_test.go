package timeline

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

const ms = rt.Instant(time.Millisecond)

func small(columns int) *Timeline {
	return New(Config{
		Width:   100 * time.Millisecond,
		Columns: columns,
		Zero:    1000 * ms,
		Period:  20 * time.Millisecond,
		Joints:  []string{"pan.pos", "</script>"},
		Units:   []string{"degrees", "%"},
	})
}

// receive returns the JSON object as a browser sees it.
func (t *Timeline) receive(test *testing.T, since Since) (a decoded) {
	test.Helper()
	text := t.AppendJSON(nil, since, 2000*ms, 7_000_000_000)
	if err := json.Unmarshal(text, &a); err != nil {
		test.Fatalf("%v: %s", err, text)
	}
	return a
}

func tickAt(at rt.Instant, state, goal float32) *record.Tick {
	m := &record.Tick{At: at, Lateness: 12_345, Queue: 10}
	m.State.Set([]float32{state, 1})
	m.Goal.Set([]float32{goal, 2})
	return m
}

// A column keeps the extremes: the shortest runway, the oldest action, the slowest answer, the
// latest tick, and the last, the least and the largest position of a joint.
func TestAColumnKeepsTheWorst(t *testing.T) {
	line := small(10)
	v := line.Visitor()
	m := tickAt(1000*ms, 5, 6)
	m.Source, m.Action.N = 900*ms, 2
	v.Tick(m)
	m = tickAt(1050*ms, -3, 7)
	m.Lateness = 99_000
	m.Queue = 4
	m.Source = 1020 * ms
	m.Action.N = 2
	v.Tick(m)
	m = tickAt(1099*ms, 4, 8)
	m.Queue = 7
	m.Starved = true
	m.Paused = true
	v.Tick(m)
	v.Chunk(&record.Chunk{At: 1010 * ms, Outcome: record.Joined, RTT: 80_000_000})
	v.Chunk(&record.Chunk{At: 1020 * ms, Outcome: record.Joined, RTT: 60_000_000})
	a := line.receive(t, Since{})
	if a.Zero != 8000 || a.Now != 9000 || a.Width != 100 || a.From != 0 || len(a.Rows) != 1 ||
		a.Joints[1] != "</script>" {
		t.Fatalf("%+v", a)
	}
	for i, want := range []float64{80, 100, 80, 99, 1, flagPaused, 4, -3, 5, 8, 1, 1, 1, 2} {
		if got := a.Rows[0][i]; got == nil || math.Abs(*got-want) > 0.05 {
			t.Errorf("number %d is %v, want %v", i, got, want)
		}
	}
}

// A missing value is null, and so is a value that is not finite.
func TestAMissingValueIsNull(t *testing.T) {
	line := small(10)
	v := line.Visitor()
	v.Chunk(&record.Chunk{At: 1000 * ms, Outcome: record.Joined, RTT: 5_000_000})
	v.Tick(tickAt(1200*ms, float32(math.NaN()), float32(math.Inf(1))))
	a := line.receive(t, Since{})
	if len(a.Rows) != 3 || a.Rows[1] != nil {
		t.Fatalf("%d rows, the second %v; want 3, and none", len(a.Rows), a.Rows[1])
	}
	for i, row := range [][]bool{{false, false, true, false, true, true, false, false, false, false},
		2: {true, false, false, true, true, true, false, false, false, false}} {
		for k, is := range row {
			if (a.Rows[i][k] != nil) != is {
				t.Errorf("row %d, number %d: %v", i, k, a.Rows[i][k])
			}
		}
	}
}

// A timeline keeps a bounded number of columns and marks. A client with an earlier answer gets the changes since this
// answer, and the newest column again.
func TestWhatIsKeptIsBounded(t *testing.T) {
	line := small(5)
	v := line.Visitor()
	for i := range rt.Instant(12) {
		v.Tick(tickAt((1000+100*i)*ms, float32(i), 0))
	}
	v.Tick(tickAt(1000*ms, 99, 0)) // too old for the timeline
	v.Tick(tickAt(-5*ms, 99, 0))   // before Config.Zero
	a := line.receive(t, Since{})
	if a.From != 7 || len(a.Rows) != 5 || *a.Rows[0][6] != 7 || *a.Rows[4][6] != 11 {
		t.Errorf("from %d: %v, want the last 5 of 12", a.From, a.Rows)
	}
	if a = line.receive(t, Since{Column: 11}); a.From != 11 || len(a.Rows) != 1 {
		t.Errorf("from %d, %d rows, want the newest again", a.From, len(a.Rows))
	}
	v.Tick(tickAt(math.MaxInt64, 1, 0)) // a jump, as in an invented record
	if a = line.receive(t, Since{}); len(a.Rows) != 5 || a.Rows[0] != nil || a.Rows[4] == nil {
		t.Errorf("after a jump: %v", a.Rows)
	}
	for i := range maxMarks + 50 {
		e := record.Event{At: rt.Instant(2000+i) * ms, Kind: "state"}
		e.Text.Set(strings.Repeat("x", i%7))
		v.Event(&e)
	}
	a = line.receive(t, Since{})
	if len(a.Marks) != maxMarks || a.Marks[0].ID != 50 || a.Change != maxMarks+50 {
		t.Errorf("%d marks from %d on, %d changes", len(a.Marks), a.Marks[0].ID, a.Change)
	}
	if a = line.receive(t, Since{Change: a.Change - 2}); len(a.Marks) != 2 {
		t.Errorf("%d marks are new, want 2", len(a.Marks))
	}
}

// A repeated incident is one mark, whose end moves. After a pause it becomes a new mark.
func TestTheSameAgainIsOneMark(t *testing.T) {
	line := small(100)
	v := line.Visitor()
	starve := func(from, to int) {
		for i := from; i < to; i += 20 {
			m := tickAt(rt.Instant(i)*ms, 0, 0)
			m.Starved = true
			v.Tick(m)
		}
	}
	starve(1000, 3000)
	before := line.receive(t, Since{}).Change
	v.Chunk(&record.Chunk{At: 2500 * ms, Outcome: "late"})
	starve(3000, 3100)
	starve(5000, 5020)
	a := line.receive(t, Since{})
	if len(a.Marks) != 3 || a.Marks[0].Count != 105 || a.Marks[0].At != 8000 || a.Marks[0].Until != 10080 ||
		a.Marks[1].Kind != "chunk dropped" || a.Marks[1].Text != "late" || a.Marks[2].Count != 1 {
		t.Errorf("%+v, want one that lasts, a chunk, and one of its own", a.Marks)
	}
	if a = line.receive(t, Since{Change: before}); len(a.Marks) != 3 {
		t.Errorf("%d marks have changed, want also the one that lasts", len(a.Marks))
	}
}

func TestEpisodesAndHandsAreMarks(t *testing.T) {
	line := small(100)
	v := line.Visitor()
	e := record.Episode{At: 1000 * ms, Number: 1}
	e.Task.Set("pick <b>it</b> up")
	v.Episode(&e)
	for i, hand := range []bool{false, false, true, true, false} {
		m := tickAt(rt.Instant(1100+100*i)*ms, 0, 0)
		m.Action.N, m.Intervention = 2, hand
		v.Tick(m)
	}
	v.Episode(&record.Episode{At: 2000 * ms, Number: 1, Ended: true, Outcome: record.Success})
	var said []string
	for _, m := range line.receive(t, Since{}).Marks {
		said = append(said, m.Kind+": "+m.Text)
	}
	want := "episode begins: pick <b>it</b> up; operator: a person drives the arm; operator: the policy has the arm " +
		"again; episode ends: success"
	if got := strings.Join(said, "; "); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// The timeline allocates nothing on the recorder's thread.
func TestTimelineNoAlloc(t *testing.T) {
	line := New(Config{
		Width:   LiveWidth,
		Columns: LiveColumns,
		Period:  time.Second / 60,
		Joints:  make([]string, 6),
		Units:   make([]string, 6),
	})
	v := line.Visitor()
	m := tickAt(0, 1, 2)
	e := &record.Event{Kind: "state"}
	k := &record.Chunk{Outcome: "late"}
	m.Starved = true
	rttest.NoAllocs(t, "a tick, an event and a chunk allocate %v times", 1000, func() {
		m.At += 16 * ms
		e.At, k.At = m.At, m.At
		v.Tick(m)
		v.Event(e)
		v.Chunk(k)
	})
}
