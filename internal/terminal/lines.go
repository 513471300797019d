package terminal

import (
	"context"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

// lineSize is large enough for the programs' lines, in bytes; a longer line allocates.
const lineSize = 1024

// timeOfDay omits the date: systemd's journal has it.
const timeOfDay = "15:04:05.000"

// Lines is a slog.Handler for lines.
type Lines struct {
	out    *output
	level  slog.Leveler
	prefix string // names of the groups, each followed by a dot
	attrs  []byte // the attributes of WithAttrs, as text
}

// output is shared by all handlers of one writer.
type output struct {
	mu   sync.Mutex
	w    io.Writer // Guarded by mu
	line []byte    // Guarded by mu
}

// NewLines returns a handler that writes lines of at least level to w, each with one
// call of Write.
func NewLines(w io.Writer, level slog.Leveler) *Lines {
	return &Lines{out: &output{w: w, line: make([]byte, 0, lineSize)}, level: level}
}

// Enabled implements slog.Handler.
func (h *Lines) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level.Level() }

// Handle implements slog.Handler.
func (h *Lines) Handle(_ context.Context, r slog.Record) error {
	h.out.mu.Lock()
	defer h.out.mu.Unlock()
	b := h.out.line[:0]
	if !r.Time.IsZero() {
		b = append(b, "t="...)
		b = r.Time.AppendFormat(b, timeOfDay)
		b = append(b, ' ')
	}
	b = append(b, "level="...)
	b = append(b, r.Level.String()...)
	b = append(b, " msg="...)
	b = appendText(b, r.Message)
	b = append(b, h.attrs...)
	r.Attrs(func(a slog.Attr) bool {
		b = appendAttr(b, h.prefix, a)
		return true
	})
	b = append(b, '\n')
	if cap(b) <= 4*lineSize { // a very long buffer is not kept
		h.out.line = b
	}
	_, err := h.out.w.Write(b)
	return err
}

// WithAttrs implements slog.Handler.
func (h *Lines) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	c.attrs = append([]byte(nil), h.attrs...)
	for _, a := range attrs {
		c.attrs = appendAttr(c.attrs, h.prefix, a)
	}
	return &c
}

// WithGroup implements slog.Handler.
func (h *Lines) WithGroup(name string) slog.Handler {
	c := *h
	if name != "" {
		c.prefix += name + "."
	}
	return &c
}

// appendAttr appends " prefix.key=value" to b, or each member if the attribute is a group.
func appendAttr(b []byte, prefix string, a slog.Attr) []byte {
	v := a.Value.Resolve()
	if a.Key == "" && v.Kind() != slog.KindGroup {
		return b
	}
	if v.Kind() == slog.KindGroup {
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, member := range v.Group() {
			b = appendAttr(b, prefix, member)
		}
		return b
	}
	b = append(b, ' ')
	b = appendText(b, prefix+a.Key)
	b = append(b, '=')
	switch v.Kind() {
	case slog.KindInt64:
		return strconv.AppendInt(b, v.Int64(), 10)
	case slog.KindUint64:
		return strconv.AppendUint(b, v.Uint64(), 10)
	case slog.KindFloat64:
		return strconv.AppendFloat(b, v.Float64(), 'g', -1, 64)
	case slog.KindBool:
		return strconv.AppendBool(b, v.Bool())
	case slog.KindDuration:
		return appendDuration(b, v.Duration())
	case slog.KindTime:
		return v.Time().AppendFormat(b, time.RFC3339Nano)
	}
	return appendText(b, v.String())
}

// appendDuration appends d in milliseconds if that is readable, and otherwise in the form of
// time.Duration.
func appendDuration(b []byte, d time.Duration) []byte {
	if d <= -time.Minute || d >= time.Minute {
		return append(b, d.String()...)
	}
	b = strconv.AppendFloat(b, float64(d.Round(time.Microsecond))/1e6, 'f', -1, 64)
	return append(b, "ms"...)
}

// appendText quotes text that is not one word.
func appendText(b []byte, s string) []byte {
	if s == "" || !plainAttr(s) {
		return strconv.AppendQuote(b, s)
	}
	return append(b, s...)
}

func plainAttr(s string) bool {
	for _, r := range s {
		if r == '"' || r == '=' || r == utf8.RuneError || unicode.IsSpace(r) || !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}
