package timeline

import (
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/edge-rt/edge-rt/rt"
)

// Resolution and length of the live timeline: the last minute of a run.
const (
	LiveWidth   = 100 * time.Millisecond
	LiveColumns = 600
)

// Since is the state of a client's previous answer.
type Since struct {
	Column int64  // newest column, which may have changed since; 0: no answer yet
	Change uint64 // Change of the previous answer
}

// AppendJSON appends the changes since an answer as a JSON object; for a zero Since, everything.
// now is the instant of the answer, and wall the ns from an instant to the time of day.
//
// A row holds the runway, the age, the round trip (ms), the lateness (us), the starved ticks and
// the flags, and for each joint the last, the least and the largest measured position and the goal.
// null means no value.
func (t *Timeline) AppendJSON(b []byte, since Since, now rt.Instant, wall int64) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	cfg := &t.cfg
	b = append(b, `{"width_ms":`...)
	b = appendMillis(b, int64(cfg.Width))
	b = appendMillis(append(b, `,"zero_ms":`...), int64(cfg.Zero)+wall)
	b = appendMillis(append(b, `,"now_ms":`...), int64(now)+wall)
	b = strconv.AppendInt(append(b, `,"columns":`...), int64(cfg.Columns), 10)
	b = appendTexts(append(b, `,"joints":`...), cfg.Joints)
	b = appendTexts(append(b, `,"units":`...), cfg.Units)
	first := max(since.Column, t.last-int64(len(t.columns))+1, 0)
	b = strconv.AppendInt(append(b, `,"from":`...), first, 10)
	b = append(b, `,"rows":[`...)
	for n := first; n <= t.last; n++ {
		if n > first {
			b = append(b, ',')
		}
		b = t.appendRow(b, n)
	}
	b = strconv.AppendUint(append(b, `],"change":`...), t.changes, 10)
	b = append(b, `,"marks":[`...)
	b = t.appendMarks(b, since.Change, wall)
	return append(b, "]}"...)
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

func (t *Timeline) appendMarks(b []byte, since uint64, wall int64) []byte {
	comma := false
	size := uint64(len(t.marks))
	for i := t.made - min(t.made, size); i < t.made; i++ {
		m := &t.marks[i%size]
		if m.change <= since {
			continue
		}
		if comma {
			b = append(b, ',')
		}
		comma = true
		b = strconv.AppendUint(append(b, `{"id":`...), m.id, 10)
		b = appendMillis(append(b, `,"at_ms":`...), int64(m.at)+wall)
		b = appendMillis(append(b, `,"until_ms":`...), int64(m.until)+wall)
		b = strconv.AppendUint(append(b, `,"count":`...), uint64(m.count), 10)
		b = strconv.AppendUint(append(b, `,"level":`...), uint64(m.level), 10)
		b = appendText(append(b, `,"kind":`...), m.kind)
		b = appendText(append(b, `,"text":`...), m.text.String())
		b = append(b, '}')
	}
	return b
}

func appendMillis(b []byte, ns int64) []byte { return strconv.AppendInt(b, ns/1e6, 10) }

// appendNumber appends a number, and null for NaN and the infinities, which JSON does not have.
func appendNumber(b []byte, v float32, digits int) []byte {
	if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
		return append(b, "null"...)
	}
	return strconv.AppendFloat(b, float64(v), 'f', digits, 32)
}

func appendTexts(b []byte, texts []string) []byte {
	b = append(b, '[')
	for i, text := range texts {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(b, text)
	}
	return append(b, ']')
}

// appendText appends a text as a JSON string that is safe inside a page: no text of a stranger can
// end a script.
func appendText(b []byte, text string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for _, r := range text {
		switch {
		case r == utf8.RuneError:
			b = append(b, `\ufffd`...)
		case r < ' ' || r == '"' || r == '\\' || r == '<' || r == '>' || r == '&' || r == '\'' || r == 0x7f ||
			r == 0x2028 || r == 0x2029:
			b = append(b, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}
