package timeline

import (
	"encoding/json"
	"math"
	"strconv"
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

// Resolution and length of the live timeline: the last minute of a run.
const (
	LiveWidth   = 100 * time.Millisecond
	LiveColumns = 600
)

// Since is the state of a client after its previous answer.
type Since struct {
	Column int64  // newest column in the previous answer, which may have changed since; 0: there was no answer
	Change uint64 // Change of the previous answer
}

// answer is the JSON object of an answer.
type answer struct {
	Width   int64           `json:"width_ms"`
	Zero    int64           `json:"zero_ms"`
	Now     int64           `json:"now_ms"`
	Columns int             `json:"columns"`
	Joints  []string        `json:"joints"`
	Units   []string        `json:"units"`
	From    int64           `json:"from"`
	Rows    json.RawMessage `json:"rows"` // as written by appendRow
	Change  uint64          `json:"change"`
	Marks   []answerMark    `json:"marks"`
}

type answerMark struct {
	ID    uint64 `json:"id"`
	At    int64  `json:"at_ms"`
	Until int64  `json:"until_ms"`
	Count uint32 `json:"count"`
	Level uint32 `json:"level"`
	Kind  string `json:"kind"`
	Text  string `json:"text"`
}

// millis is the unit of an answer's times.
const millis = 1_000_000

// AppendJSON appends the changes since an answer as a JSON object. If since is zero, it appends the whole timeline.
// The parameter now is the instant of the answer, and wall is the Unix time of instant 0, in ns. The object is safe
// within a script element, since encoding/json escapes < and >.
//
// A row holds the runway, the age, the round trip (ms), the lateness (us), the starved ticks and
// the flags, and for each joint the last, the least and the largest measured position and the goal.
// null means no value.
func (t *Timeline) AppendJSON(b []byte, since Since, now rt.Instant, wall int64) []byte {
	text, _ := json.Marshal(t.answer(since, now, wall)) // all of its values can be encoded
	return append(b, text...)
}

func (t *Timeline) answer(since Since, now rt.Instant, wall int64) answer {
	t.mu.Lock()
	defer t.mu.Unlock()
	cfg := &t.cfg
	a := answer{
		Width:   int64(cfg.Width) / millis,
		Zero:    (int64(cfg.Zero) + wall) / millis,
		Now:     (int64(now) + wall) / millis,
		Columns: cfg.Columns,
		Joints:  append([]string{}, cfg.Joints...),
		Units:   append([]string{}, cfg.Units...),
		From:    max(since.Column, t.last-int64(len(t.columns))+1, 0),
		Change:  t.changes,
		Marks:   []answerMark{},
	}
	a.Rows = append(a.Rows, '[')
	for n := a.From; n <= t.last; n++ {
		if n > a.From {
			a.Rows = append(a.Rows, ',')
		}
		a.Rows = t.appendRow(a.Rows, n)
	}
	a.Rows = append(a.Rows, ']')
	size := uint64(len(t.marks))
	for i := t.made - min(t.made, size); i < t.made; i++ {
		m := &t.marks[i%size]
		if m.change <= since.Change {
			continue
		}
		a.Marks = append(a.Marks, answerMark{
			ID:    m.id,
			At:    (int64(m.at) + wall) / millis,
			Until: (int64(m.until) + wall) / millis,
			Count: m.count,
			Level: m.level,
			Kind:  m.kind,
			Text:  m.text.String(),
		})
	}
	return a
}

func (t *Timeline) appendRow(b []byte, n int64) []byte {
	c := &t.columns[n%int64(len(t.columns))]
	if c.number != n {
		return append(b, "null"...)
	}
	b = append(b, '[')
	for _, v := range []float32{c.runway, c.age, c.rtt, c.late} {
		b = append(appendNumber(b, v, 1), ',')
	}
	b = strconv.AppendUint(b, uint64(c.starved), 10)
	b = strconv.AppendUint(append(b, ','), uint64(c.flags), 10)
	for j := range t.cfg.Joints {
		if !c.measured {
			b = append(b, ",null,null,null,null"...)
			continue
		}
		for _, v := range []float32{c.state[j], c.stateLow[j], c.stateHigh[j], c.goal[j]} {
			b = appendNumber(append(b, ','), v, 2)
		}
	}
	return append(b, ']')
}

// appendNumber appends a number, and null for NaN and the infinities, which JSON does not have.
func appendNumber(b []byte, v float32, digits int) []byte {
	if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
		return append(b, "null"...)
	}
	return strconv.AppendFloat(b, float64(v), 'f', digits, 32)
}
