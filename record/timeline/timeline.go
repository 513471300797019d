// Package timeline shows a run over time, as lines and marks: the last minute of a run in progress,
// for its page (live.go), or a whole record, as a page of its own (view.go, show.go). Both come
// from the messages of the record, and the same script draws both (draw.js).
//
// A Timeline consists of columns of one width. Each column keeps the extremes of its ticks: the shortest runway, the
// oldest action, the slowest answer, the latest tick, and the last, least and largest positions of the joints. An
// incident is a mark.
package timeline

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
)

// Bounds of the data kept and sent.
const (
	maxMarks = 256         // largest number of kept marks of a run in progress; the newest are kept
	sameMark = time.Second // a repetition within this time is counted in the previous mark
	lookBack = 8           // number of previous marks that may count a repetition
)

// Flags of a column.
const (
	flagPaused       = 1 << iota // an operator has paused the run
	flagIntervention             // a person drove the arm with a leader
	flagBusSilent                // too few joints answered, so nothing moved
)

// Config configures one Timeline.
type Config struct {
	Width   time.Duration // width of a column
	Columns int           // number of columns; the newest are kept
	Marks   int           // number of marks; 0: maxMarks
	Zero    rt.Instant    // beginning of column 0; earlier messages are ignored
	Period  time.Duration // duration of one action in the runway
	Joints  []string      // at most record.MaxJoints
	Units   []string      // units of the joints
}

// Timeline holds the lines and marks. Any goroutine may call its methods.
type Timeline struct {
	cfg Config // constant after New

	mu      sync.Mutex // guards the fields below; held while an answer is made
	columns []column   // column n is at index n modulo their number
	last    int64      // number of the newest column; -1: no column yet
	marks   []mark     // a ring buffer
	made    uint64     // number of marks so far
	changes uint64     // number of changes to marks so far
	hand    bool       // the last action was a person's
	ran     bool       // an action has run
}

// column holds the extremes of the ticks of one width of time. NaN means no value.
type column struct {
	// if this number is not the wanted column's, the content of the slot is out of date
	number                 int64
	runway, age, rtt, late float32
	starved                uint32 // ticks on which an action was due and no action ran
	flags                  uint8
	measured               bool
	state, goal            [record.MaxJoints]float32
	stateLow, stateHigh    [record.MaxJoints]float32
	_                      [0]func() // makes column not comparable: two columns with NaN would never be equal
}

// mark is an incident, single or repeated.
type mark struct {
	id, change uint64 // id is the mark's number; change is the value of Timeline.changes when the mark changed last
	at, until  rt.Instant
	count      uint32
	kind       string
	level      uint32
	text       record.Text
}

// New allocates all memory of a Timeline.
func New(cfg Config) *Timeline {
	cfg.Joints = cfg.Joints[:min(len(cfg.Joints), record.MaxJoints)]
	t := &Timeline{
		cfg:     cfg,
		columns: make([]column, cfg.Columns),
		marks:   make([]mark, cmp.Or(cfg.Marks, maxMarks)),
		last:    -1,
	}
	for i := range t.columns {
		t.columns[i].number = -1
	}
	return t
}

// Visitor returns a visitor that adds messages to the timeline, live or from a record.
func (t *Timeline) Visitor() record.Visitor {
	return record.Visitor{
		Tick:    t.tick,
		Chunk:   t.chunk,
		Event:   t.event,
		Episode: t.episode,
	}
}

// at returns the column of an instant; nil if the instant is too old.
//
//rt:noalloc
func (t *Timeline) at(when rt.Instant) *column {
	if when < t.cfg.Zero {
		return nil
	}
	n := int64(uint64(when-t.cfg.Zero) / uint64(t.cfg.Width))
	size := int64(len(t.columns))
	if n <= t.last-size {
		return nil
	}
	c := &t.columns[n%size]
	if c.number != n {
		none := float32(math.NaN())
		*c = column{
			number: n,
			runway: none,
			age:    none,
			rtt:    none,
			late:   none,
		}
		t.last = max(t.last, n)
	}
	return c
}

//rt:noalloc
func (t *Timeline) tick(m *record.Tick) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.at(m.At)
	if c == nil {
		return nil
	}
	c.late = larger(c.late, float32(m.Lateness)/1e3)
	runway := float32(m.Queue) * float32(t.cfg.Period) / 1e6
	if !(c.runway <= runway) {
		c.runway = runway
	}
	if m.Source != 0 {
		c.age = larger(c.age, float32(m.At-m.Source)/1e6)
	}
	for j := range t.cfg.Joints {
		state, goal := valueOf(&m.State, j), valueOf(&m.Goal, j)
		if !c.measured {
			c.stateLow[j], c.stateHigh[j] = state, state
		}
		c.state[j], c.goal[j] = state, goal
		c.stateLow[j], c.stateHigh[j] = min(c.stateLow[j], state), max(c.stateHigh[j], state)
	}
	c.measured = true
	if m.Paused {
		c.flags |= flagPaused
	}
	if m.Intervention {
		c.flags |= flagIntervention
	}
	if m.BusSilent {
		c.flags |= flagBusSilent
	}
	if m.Starved {
		c.starved++
		t.mark(m.At, "starved", record.LevelWarning, "an action was due, and no action ran")
	}
	if m.Action.N > 0 {
		if t.ran && m.Intervention != t.hand {
			text := "the policy has the arm again"
			if m.Intervention {
				text = "a person drives the arm"
			}
			t.mark(m.At, "operator", record.LevelInfo, text)
		}
		t.hand, t.ran = m.Intervention, true
	}
	return nil
}

//rt:noalloc
func (t *Timeline) chunk(m *record.Chunk) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.at(m.At); c != nil && m.Outcome == record.Joined {
		c.rtt = larger(c.rtt, float32(m.RTT)/1e6)
	}
	if m.Outcome != record.Joined {
		t.mark(m.At, "chunk dropped", record.LevelWarning, m.Outcome)
	}
	return nil
}

//rt:noalloc
func (t *Timeline) event(m *record.Event) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.mark(m.At, m.Kind, m.Level, ""); k != nil {
		k.text = m.Text
	}
	return nil
}

//rt:noalloc
func (t *Timeline) episode(m *record.Episode) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	kind, text := "episode begins", ""
	if m.Ended {
		kind, text = "episode ends", m.Outcome
	}
	if k := t.mark(m.At, kind, record.LevelInfo, text); k != nil && text == "" {
		m.Task.Text(&k.text)
	}
	return nil
}

// mark adds a mark. A repetition of a mark with the same text extends that mark.
//
//rt:noalloc
func (t *Timeline) mark(at rt.Instant, kind string, level uint32, text string) *mark {
	if at < t.cfg.Zero {
		return nil
	}
	t.changes++
	for i := t.made; text != "" && i > 0 && i+lookBack > t.made; i-- {
		m := &t.marks[(i-1)%uint64(len(t.marks))]
		if m.kind == kind && m.text.Is(text) && at.Sub(m.until) <= sameMark {
			m.until, m.change = max(m.until, at), t.changes
			m.count++
			return m
		}
	}
	m := &t.marks[t.made%uint64(len(t.marks))]
	*m = mark{
		id:     t.made,
		change: t.changes,
		at:     at,
		until:  at,
		count:  1,
		kind:   kind,
		level:  level,
	}
	m.text.Set(text)
	t.made++
	return m
}

// larger returns the larger of two numbers; b if a is NaN.
//
//rt:noalloc
func larger(a, b float32) float32 {
	if a >= b {
		return a
	}
	return b
}

//rt:noalloc
func valueOf(r *record.Row, j int) float32 {
	if j < r.N {
		return r.V[j]
	}
	return float32(math.NaN())
}

// names splits a list of joints or units from a record's metadata, which separates them with
// commas.
func names(text string) []string {
	if text == "" {
		return nil
	}
	names := strings.Split(text, ",")
	return slices.Clip(names[:min(len(names), record.MaxJoints)])
}
