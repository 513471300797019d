package edge

import (
	"strconv"
	"time"

	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/recording"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/systemd/notify"
)

const (
	statusEvery = 200 * time.Millisecond
	warmUp      = 5 * time.Second // time from the arming until allocations are counted
)

// housekeeping is the state of the housekeeping. Owner: the housekeeping goroutine.
type housekeeping struct {
	line     statusLine
	nextLine rt.Instant
	granted  bool // the kernel's answer to the request for real-time priority is logged
	hang     tickWatch

	telemetry telemetry
}

// look does the housekeeping of a run.
func (e *Edge) look(now rt.Instant) {
	w := &e.housekeeping
	if e.drive.Leaving() {
		e.closeCounters()
	}
	if !w.granted && e.drive.Stats().Ticks > 0 {
		w.granted = true
		if g := e.drive.Grant(); !g.Granted && e.cfg.RT != rt.ModeOff {
			e.log.Warn("the tick runs without real-time priority", "why", g.Why)
		}
	}
	e.openHeapWindow(now)
	e.notify(now, e.drive.Leaving())
	w.hang.look(e, now, e.drive.Stats().Ticks)
	e.control.events.Drain(e.report)
	e.reporter.ReportCameras(now, e.cameras)
	w.telemetry.look(now)
	led := robot.Joints(0)
	if e.control.holder() == correcting {
		led = robot.Joints(e.control.stats.led.Load())
	}
	e.remotes.Drives(e.robot, led)
	if e.cfg.Status != nil && now >= w.nextLine {
		e.cfg.Status.Write(w.line.format(e, now))
		w.nextLine = now.Add(statusEvery)
	}
}

// notify reports the state of the run to the service manager.
//
//rt:noalloc
func (e *Edge) notify(now rt.Instant, leaving bool) {
	ticks := e.drive.Stats().Ticks
	e.notifier.Update(now, notify.State{
		Ready:    ticks > 0,
		Stopping: leaving,
		Status:   state(e.control.stats.state.Load()).String(),
		Progress: ticks,
	})
}

// tickWatch detects a tick that hangs, and saves the record of the time before the hang, since the
// watchdog soon kills the process. Owner: the housekeeping goroutine.
type tickWatch struct {
	ticks   uint64
	last    rt.Instant    // time of the last look
	missing time.Duration // time without a tick, less the time in which this goroutine did not run
	told    time.Duration
}

const (
	tickMissing = 500 * time.Millisecond // time without a tick before the first report, and between two reports
	tickPeriods = 4                      // the same in periods of the tick; the longer applies
)

func (w *tickWatch) look(e *Edge, now rt.Instant, ticks uint64) {
	gap := min(now.Sub(w.last), 2*drive.Housekeeping) // while the process was stopped, it could not count ticks
	if w.last = now; ticks != w.ticks || ticks == 0 {
		w.ticks = ticks
		w.missing = 0
		w.told = 0
		return
	}
	if w.missing += gap; w.missing-w.told >= max(tickMissing, tickPeriods*e.cfg.period()) {
		w.told = w.missing
		e.recording.Note(event.TickMissing, record.LevelError, int64(w.missing), 0,
			"the tick hangs: no tick has ended for "+w.missing.Round(time.Millisecond).String())
		e.record.Save(&recording.SavedFault, true)
	}
}

func (e *Edge) openHeapWindow(now rt.Instant) {
	h := &e.heap
	switch {
	case h.open || h.closed || !e.control.stats.armed.Load():
	case h.armedAt == 0:
		h.armedAt = now
	case now.Sub(h.armedAt) >= warmUp:
		h.open = true
		h.from = rt.CountHeap()
		h.first = e.drive.Stats().Ticks
	}
}

// closeCounters ends the counters that must not include the parking.
func (e *Edge) closeCounters() {
	if h := &e.heap; h.open && !h.closed {
		h.closed = true
		h.to = rt.CountHeap()
		h.last = e.drive.Stats().Ticks
	}
	if e.scores == nil {
		e.scores = e.sims.Scores()
	}
}

func (e *Edge) endWatch() {
	e.closeCounters()
	e.notify(e.clock.Now(), true)
	e.control.events.Drain(e.report)
	if e.cfg.Status != nil {
		e.cfg.Status.Clear()
	}
	e.heap.gc.Release()
}

// statusLine formats the terminal's line without allocations. Owner: the housekeeping goroutine.
type statusLine struct {
	buf []byte
}

//rt:noalloc
func (l *statusLine) format(e *Edge, now rt.Instant) []byte {
	st := e.control.stats
	loop := e.drive.Stats()
	b := append(l.buf[:0], state(st.state.Load()).String()...)
	b = appendField(b, "  t ", int64(now.Sub(e.started)/time.Second), " s")
	b = appendField(b, "  ticks ", int64(loop.Ticks), "")
	b = appendField(b, "  late p99 ", int64(loop.Lateness.Quantile(0.99)/time.Microsecond), " us")
	b = appendField(b, "  overruns ", int64(loop.OverrunsOwn), "")
	b = appendField(b, "+", int64(loop.OverrunsHost), "")
	b = appendField(b, "  queue ", st.size.Load(), "")
	b = appendField(b, "  rtt p50 ", int64(st.rtt.Quantile(0.5)/time.Millisecond), " ms")
	b = appendField(b, "  age p99 ", int64(st.age.Quantile(0.99)/time.Millisecond), " ms")
	b = appendField(b, "  starved ", int64(st.starved.Load()), "")
	if e.remotes != nil {
		b = appendField(b, "  leader rtt ", int64(e.remotes.RTT()/time.Millisecond), " ms")
	}
	b = e.episodes.AppendLine(b, now)
	if e.sims.Len() > 0 {
		score := e.sims.Score()
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
