// Package record keeps one line for each action that ran, with where it came from.
// The tick writes fixed-size records into a ring; an action without room is counted
// as lost. Another thread drains the ring into JSON lines. Neither allocates.
package record

import (
	"fmt"
	"io"
	"strconv"
	"sync/atomic"

	"edgert/rt"
)

// maxJoints is the widest row that a record holds.
const maxJoints = 32

// slots is the ring's size: 34 s at 60 Hz, longer than a slow disk blocks.
const slots = 2048

// lineMax bounds one line: three rows of numbers and some hundred characters.
const lineMax = 64<<10 - 1

// Session is the session in which an action's chunk was requested. It never changes,
// so that records may point to it.
type Session struct {
	ID       string
	Epoch    uint32
	Model    string
	Revision string
	SHA256   string // the model's; empty where the server does not say
}

// Action is one action that ran.
type Action struct {
	At      rt.Instant // the tick's instant
	Source  rt.Instant // older of the state and the oldest picture that it was computed from
	Step    int64      // action step
	Seq     uint64     // request
	Epoch   uint32
	Episode uint32
	Index   int32 // row of the chunk
	Delay   int32 // rows that were announced to run before the chunk came
	Dropped int32 // rows that had run when it was merged
	Session *Session

	Joints              int
	Action, Goal, State [maxJoints]float32 // as the policy said, as it was written, as it was read; robot units
}

// Log is a ring of actions and the file behind it.
type Log struct {
	ring    *rt.Ring[Action]
	w       io.Writer
	buf     []byte
	lost    atomic.Uint64
	written atomic.Uint64

	// Owner: the goroutine that opens the log.
	names []string
	begun bool // the header is whole

	// Owner: Drain's thread.
	buffered uint64 // actions in buf
	broken   bool   // the file could not be written: every further action is lost
}

// Header is the first line of a file.
type Header struct {
	ID       string
	Robot    string
	Schedule string
	FPS      float64  // 0: not known yet, see Begin
	Names    []string // the joints' names, as in LeRobot's datasets
}

// NewLog returns a log that writes to w, beginning with the header, or while FPS is
// not known with the part of it before FPS. It fails when that cannot be written or
// the rows are too wide.
func NewLog(w io.Writer, h Header) (*Log, error) {
	if len(h.Names) > maxJoints {
		return nil, fmt.Errorf("record: %d joints, at most %d", len(h.Names), maxJoints)
	}
	line := []byte(`{"record":1`)
	line = appendText(line, "id", h.ID)
	line = appendText(line, "robot", h.Robot)
	line = appendText(line, "schedule", h.Schedule)
	if _, err := w.Write(line); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	l := &Log{ring: rt.NewRing[Action](slots), w: w, buf: make([]byte, 0, 2*lineMax), names: h.Names}
	if h.FPS == 0 {
		return l, nil
	}
	return l, l.Begin(h.FPS)
}

// Begin writes the rest of the header, once.
func (l *Log) Begin(fps float64) error {
	if l.begun {
		return nil
	}
	l.begun = true
	line := append([]byte(nil), `,"fps":`...)
	line = strconv.AppendFloat(line, fps, 'g', -1, 64)
	line = append(line, `,"names":[`...)
	for i, name := range l.names {
		if i > 0 {
			line = append(line, ',')
		}
		line = appendQuoted(line, name)
	}
	if _, err := l.w.Write(append(line, "]}\n"...)); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return nil
}

// Reserve lends the next record to fill, nil when the ring is full: that action is
// lost and counted.
//
// Owner: the tick thread, like Commit.
//
//rt:noalloc
func (l *Log) Reserve() *Action {
	a := l.ring.Reserve()
	if a == nil {
		l.lost.Add(1)
	}
	return a
}

// Commit hands the record last lent over.
//
//rt:noalloc
func (l *Log) Commit() { l.ring.Commit() }

// Lost returns how many actions found the ring full or the file broken, Written how
// many are in the file.
func (l *Log) Lost() uint64    { return l.lost.Load() }
func (l *Log) Written() uint64 { return l.written.Load() }

// Drain writes the actions in the ring. The error is the file's and is returned
// once: from then on every action is counted as lost.
//
// Owner: one thread beside the tick.
//
//rt:noalloc
func (l *Log) Drain() error {
	l.buf, l.buffered = l.buf[:0], 0
	for a := l.ring.Peek(); a != nil; a = l.ring.Peek() {
		l.buf = appendAction(l.buf, a)
		l.ring.Release()
		l.buffered++
		if len(l.buf) > lineMax {
			if err := l.flush(); err != nil {
				return err
			}
		}
	}
	return l.flush()
}

//rt:noalloc
func (l *Log) flush() error {
	if len(l.buf) == 0 {
		return nil
	}
	var err error
	if !l.broken {
		_, err = l.w.Write(l.buf)
	}
	if l.broken = l.broken || err != nil; l.broken {
		l.lost.Add(l.buffered)
	} else {
		l.written.Add(l.buffered)
	}
	l.buf, l.buffered = l.buf[:0], 0
	return err
}

//rt:noalloc
func appendAction(b []byte, a *Action) []byte {
	b = append(b, `{"t_ns":`...)
	b = strconv.AppendInt(b, int64(a.At), 10)
	b = appendInt(b, "step", a.Step)
	b = appendInt(b, "epoch", int64(a.Epoch))
	b = appendInt(b, "episode", int64(a.Episode))
	b = append(b, `,"seq":`...)
	b = strconv.AppendUint(b, a.Seq, 10)
	b = appendInt(b, "chunk_index", int64(a.Index))
	b = appendInt(b, "delay", int64(a.Delay))
	b = appendInt(b, "dropped", int64(a.Dropped))
	b = appendInt(b, "source_ns", int64(a.Source))
	if s := a.Session; s != nil {
		b = appendText(b, "session", s.ID)
		b = appendText(b, "model", s.Model)
		b = appendText(b, "revision", s.Revision)
		b = appendText(b, "model_sha256", s.SHA256)
	}
	b = appendRow(b, "action", a.Action[:a.Joints])
	b = appendRow(b, "goal", a.Goal[:a.Joints])
	b = appendRow(b, "state", a.State[:a.Joints])
	return append(b, "}\n"...)
}

//rt:noalloc
func appendInt(b []byte, key string, v int64) []byte {
	b = append(b, `,"`...)
	b = append(b, key...)
	b = append(b, `":`...)
	return strconv.AppendInt(b, v, 10)
}

//rt:noalloc
func appendText(b []byte, key, v string) []byte {
	b = append(b, `,"`...)
	b = append(b, key...)
	b = append(b, `":`...)
	return appendQuoted(b, v)
}

// appendQuoted quotes as JSON does, unlike strconv.
//
//rt:noalloc
func appendQuoted(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ':
			b = append(b, `\u00`...)
			b = append(b, hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// appendRow writes numbers; NaN and infinity become null.
//
//rt:noalloc
func appendRow(b []byte, key string, row []float32) []byte {
	b = append(b, `,"`...)
	b = append(b, key...)
	b = append(b, `":[`...)
	for j, v := range row {
		if j > 0 {
			b = append(b, ',')
		}
		if v-v != 0 {
			b = append(b, "null"...)
			continue
		}
		b = strconv.AppendFloat(b, float64(v), 'g', -1, 32)
	}
	return append(b, ']')
}
