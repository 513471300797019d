// Package timeline is what a run did over time, as lines and marks: the last minute of one
// that goes on, for its page (live.go), or all of a record, as a page of its own (view.go,
// show.go). Both are made of the messages of the record, and drawn by the same script
// (draw.js).
//
// A Timeline is columns of one width, each of which keeps of its ticks what a person would
// look for: the shortest runway, the oldest action, the slowest answer, the latest tick,
// and where the joints were last. What happened once is a mark.
package timeline

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"edgert/record"
	"edgert/rt"
)

// Bounds of what is kept and sent.
const (
	maxMarks = 256         // of a run that goes on; the newest are kept
	sameMark = time.Second // what happens again within it is counted with the mark before
	lookBack = 8           // marks that are looked at for it
)

// Flags of a column.
const (
	flagPaused       = 1 << iota // by an operator
	flagIntervention             // a person drove the arm, at a leader
	flagBusSilent                // so many joints did not answer that nothing moved
)

// Config is one time line.
type Config struct {
	Width   time.Duration // of a column
	Columns int           // that are kept, the newest
	Marks   int           // likewise; 0: as of a run that goes on
	Zero    rt.Instant    // where column 0 begins; what is before it is left out
	Period  time.Duration // of one action: what each that is left adds to the runway
	Joints  []string      // at most record.MaxJoints
	Units   []string      // of the joints
}

// Timeline is lines and marks. Any goroutine may call its functions.
type Timeline struct {
	cfg Config // constant after New

	mu      sync.Mutex // guards what follows; held while an answer is written
	columns []column   // column n is at n modulo their number
	last    int64      // the newest column; -1: there is none yet
	marks   []mark     // a ring
	made    uint64     // marks so far
	changes uint64     // of marks, so far
	hand    bool       // the last action was a person's
	ran     bool       // there was one
}

// column is what happened within one width. What is not a number did not happen.
type column struct {
	number                 int64 // which it is; others of the ring are old
	runway, age, rtt, late float32
	starved                uint32 // ticks without an action though one was due
	flags                  uint8
	measured               bool
	state, goal            [record.MaxJoints]float32
	stateLow, stateHigh    [record.MaxJoints]float32
	_                      [0]func() // not comparable: NaN is not NaN
}

// mark is something that happened once, or again and again.
type mark struct {
	id, change uint64 // its number; when it was changed last
	at, until  rt.Instant
	count      uint32
	kind       string
	level      uint32
	text       record.Text
}

// New allocates all that a time line will need.
func New(cfg Config) *Timeline {
	cfg.Joints = cfg.Joints[:min(len(cfg.Joints), record.MaxJoints)]
	t := &Timeline{cfg: cfg, columns: make([]column, cfg.Columns), marks: make([]mark, cmp.Or(cfg.Marks, maxMarks)), last: -1}
	for i := range t.columns {
		t.columns[i].number = -1
	}
	return t
}

// Visitor gets a run's messages into the time line, live ones or those of a record.
func (t *Timeline) Visitor() record.Visitor {
	return record.Visitor{Tick: t.tick, Chunk: t.chunk, Event: t.event, Episode: t.episode}
}

// at returns the column of an instant; nil: it is too old.
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
		*c = column{number: n, runway: none, age: none, rtt: none, late: none}
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
		t.mark(m.At, "starved", record.LevelWarning, "an action was due and none ran")
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

// mark notes what has happened. The same again, with a text, is one mark that lasts.
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
	*m = mark{id: t.made, change: t.changes, at: at, until: at, count: 1, kind: kind, level: level}
	m.text.Set(text)
	t.made++
	return m
}

// larger is the larger of two numbers, the second where the first is none.
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

// Names are a record's joints, or units, as its metadata has them: with commas.
func Names(text string) []string {
	if text == "" {
		return nil
	}
	names := strings.Split(text, ",")
	return slices.Clip(names[:min(len(names), record.MaxJoints)])
}
