package edge

import (
	"io"
	"strconv"
	"time"

	"edgert/rt"
)

// StatusWriter is a terminal that shows one line in place. Write gets the line
// without its end; Clear takes the line away before something else is printed.
type StatusWriter interface {
	io.Writer
	Clear()
}

const statusEvery = 200 * time.Millisecond

// statusLine formats what a person watches during a run. It allocates nothing,
// so that watching does not change what is watched.
//
// Owner: the housekeeping goroutine.
type statusLine struct {
	buf []byte
}

//rt:noalloc
func (l *statusLine) format(e *Edge, now rt.Instant) []byte {
	st := e.control.stats
	loop := e.loop.Stats()
	b := append(l.buf[:0], State(st.state.Load()).String()...)
	b = appendField(b, "  t ", int64(now.Sub(e.started)/time.Second), " s")
	b = appendField(b, "  ticks ", int64(loop.Ticks), "")
	b = appendField(b, "  late p99 ", int64(loop.Lateness.Quantile(0.99)/time.Microsecond), " us")
	b = appendField(b, "  overruns ", int64(loop.OverrunsOwn), "")
	b = appendField(b, "+", int64(loop.OverrunsHost), "")
	b = appendField(b, "  queue ", st.size.Load(), "")
	b = appendField(b, "  rtt p50 ", int64(st.rtt.Quantile(0.5)/time.Millisecond), " ms")
	b = appendField(b, "  age p99 ", int64(st.age.Quantile(0.99)/time.Millisecond), " ms")
	b = appendField(b, "  starved ", int64(st.starved.Load()), "")
	if e.world != nil {
		score := e.world.Score()
		b = appendField(b, "  targets ", int64(score.Reached), "")
		b = appendField(b, "  collisions ", int64(score.Collided), "")
	}
	l.buf = b
	return b
}

//rt:noalloc
func appendField(b []byte, name string, v int64, unit string) []byte {
	b = append(b, name...)
	b = strconv.AppendInt(b, v, 10)
	return append(b, unit...)
}
