package edge

import (
	"io"
	"log/slog"
	"strconv"
	"time"

	"edgert/internal/notify"
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

// herald tells the service manager how the run goes: ready when the tick runs,
// alive for as long as it does, and in which State it is.
//
// Owner: the goroutine that opens, then runs the edge.
type herald struct {
	socket  *notify.Socket
	ready   bool
	leaving bool
	told    State
	ticks   uint64 // when the watchdog was last fed
	fed     rt.Instant
}

// openHerald returns a herald that nobody may be listening to.
func openHerald(log *slog.Logger) herald {
	socket, err := notify.Open()
	if err != nil {
		log.Warn("the service manager does not hear how the run goes", "why", err)
	}
	return herald{socket: socket, told: numStates}
}

// startSlack is what an attempt may take that began just before --max-offline is
// over, and the checks behind it.
const startSlack = 30 * time.Second

// waiting tells the manager, whose own patience with a start may be shorter, that
// something is waited for up to d from now.
func (h *herald) waiting(d time.Duration) { h.socket.Extend(d + startSlack) }

// look passes on what is new; what the manager had no room for is said again at
// the next look. The watchdog is fed for ticks that have ended, so a tick that
// hangs gets the process killed, whatever the rest of it does.
//
//rt:noalloc
func (h *herald) look(now rt.Instant, ticks uint64, state State, leaving bool) {
	if !h.ready {
		h.ready = ticks > 0 && h.socket.Ready()
	}
	if state != h.told && h.socket.Status(state.String()) {
		h.told = state
	}
	if leaving && !h.leaving {
		h.leaving = h.socket.Stopping()
	}
	every := h.socket.Interval()
	if every > 0 && ticks != h.ticks && now.Sub(h.fed) >= every && h.socket.Watchdog() {
		h.ticks, h.fed = ticks, now
	}
}
