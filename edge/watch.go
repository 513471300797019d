package edge

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"edgert/edge/capture"
	"edgert/edge/event"
	"edgert/edge/follow"
	"edgert/edge/hotplug"
	"edgert/internal/notify"
	"edgert/rt"
	"edgert/servo"
	"edgert/servo/robot"
)

const (
	housekeeping = 20 * time.Millisecond
	warmUp       = 5 * time.Second // after arming, before allocations are counted
	leaveLimit   = follow.ParkLimit + 2*time.Second
)

// errStuck ends a run whose arm was let go, or is held as it was asked to be, when
// a thread is stuck in a file, a driver or the network and cannot be ended.
var errStuck = fmt.Errorf("a thread did not end within %v of the arm: the file of --record, a camera or the network hangs", stuckLimit)

const (
	stuckLimit = 5 * time.Second
	joinPoll   = 2 * time.Millisecond
)

// heapWindow counts allocations from the end of the warm-up to the stop.
//
// Owner: the housekeeping goroutine.
type heapWindow struct {
	gc          *rt.Hold
	armedAt     rt.Instant
	open        bool
	closed      bool
	from, to    rt.HeapStat
	first, last uint64 // ticks
}

func (h *heapWindow) hold() {
	h.gc = rt.HoldGC(0)
	rt.PrefillRuntime()
}

// scoreAtStop is the simulated world's score before the arm parks.
type scoreAtStop struct {
	taken                       bool
	reached, collided, timeouts int
}

// watch is the housekeeping of a run: duration, status line, events, the window
// in which allocations are counted. It returns when the tick has ended.
func (e *Edge) watch(ctx context.Context, ticked <-chan error) error {
	var line statusLine
	end := rt.Instant(1<<63 - 1)
	if e.cfg.Duration > 0 {
		end = e.started.Add(e.cfg.Duration)
	}
	nextLine, leaveBy, told := e.started, rt.Instant(0), false
	away := reason{what: "the arm to come back"}
	for {
		select {
		case err := <-ticked:
			e.tidy()
			return err
		default:
		}
		now := e.clock.Now()
		if leaveBy == 0 && (ctx.Err() != nil || now >= end) {
			e.ran = ctx.Err() == nil
			e.control.operator.leave.Store(true)
		}
		if leaveBy == 0 && e.control.operator.leave.Load() {
			leaveBy = now.Add(leaveLimit)
			e.tally()
		}
		if leaveBy != 0 && now >= leaveBy {
			e.stop.Store(true)
		}
		if !told && e.loop.Stats().Ticks > 0 {
			told = true
			if g := e.loop.Grant(); !g.Granted && e.cfg.RT != rt.ModeOff {
				e.log.Warn("the tick runs without real-time priority", "why", g.Why)
			}
		}
		e.count(now)
		e.notify(now, leaveBy != 0)
		e.control.events.Drain(e.report)
		if err := e.arm.OpenError(); err != nil {
			away.tell(e, err)
		} else {
			away.said = ""
		}
		e.lookAtCameras()
		if e.cfg.Status != nil && now >= nextLine {
			e.cfg.Status.Write(line.format(e, now))
			nextLine = now.Add(statusEvery)
		}
		e.clock.SleepUntil(now.Add(housekeeping))
	}
}

// notify tells the service manager how the run goes: ready once the tick runs,
// alive while it does, and in which State it is.
//
//rt:noalloc
func (e *Edge) notify(now rt.Instant, leaving bool) {
	ticks := e.loop.Stats().Ticks
	e.notifier.Update(now, notify.State{
		Ready: ticks > 0, Stopping: leaving, Status: State(e.control.stats.state.Load()).String(), Progress: ticks,
	})
}

// startSlack is what an attempt may take that began just before --max-offline is
// over, and the checks behind it.
const startSlack = 30 * time.Second

// waitFor tells the service manager, whose own timeout of a start may be shorter,
// that what is waited for may take --max-offline to appear.
func (e *Edge) waitFor(what string) {
	e.notifier.Extend(e.cfg.MaxOffline + startSlack)
	e.notifier.Status("looking for " + what)
}

// count opens the allocation window once the run is warm.
func (e *Edge) count(now rt.Instant) {
	h := &e.heap
	switch {
	case h.open || h.closed || !e.control.stats.armed.Load():
	case h.armedAt == 0:
		h.armedAt = now
	case now.Sub(h.armedAt) >= warmUp:
		h.open, h.from, h.first = true, rt.ReadHeap(), e.loop.Stats().Ticks
	}
}

// tally closes the books of the run proper: what follows is the way out.
func (e *Edge) tally() {
	if h := &e.heap; h.open && !h.closed {
		h.closed, h.to, h.last = true, rt.ReadHeap(), e.loop.Stats().Ticks
	}
	if e.world != nil && !e.score.taken {
		s := e.world.Score()
		e.score = scoreAtStop{true, s.Reached, s.Collided, s.Timeouts}
	}
}

// tidy ends what watch began.
func (e *Edge) tidy() {
	e.tally()
	e.notify(e.clock.Now(), true)
	e.control.events.Drain(e.report)
	if e.cfg.Status != nil {
		e.cfg.Status.Clear()
	}
	e.heap.gc.Release()
}

// join waits for the threads. One that is stuck may go on any time and use what
// it has: a camera's buffers, the encoders, the waker. release leaves that to the
// end of the process, which is near.
func (e *Edge) join(linked <-chan error) (linkErr, aside error) {
	if e.stuck = !e.joined(); e.stuck {
		return nil, errStuck
	}
	return <-linked, e.recorded
}

// joined waits for the other threads, but not for one that is stuck.
func (e *Edge) joined() bool {
	ended := make(chan struct{})
	go func() { e.threads.Wait(); close(ended) }()
	for limit := e.clock.Now().Add(stuckLimit); ; e.clock.SleepUntil(e.clock.Now().Add(joinPoll)) {
		select {
		case <-ended:
			return true
		default:
		}
		if e.clock.Now() > limit {
			return false
		}
	}
}

// jointListsOf is the largest arm whose bit sets of joints are put into words before
// the run.
const jointListsOf = 8

// jointLists puts every bit set of an arm's joints into words, so that the log
// makes no garbage for them.
func jointLists(r robot.Robot) []string {
	lists := make([]string, 1<<min(len(r.Motors), jointListsOf))
	for set := range lists {
		lists[set] = r.Joints(uint32(set))
	}
	return lists
}

func (e *Edge) joint(set int64) slog.Attr {
	if set >= 0 && set < int64(len(e.joints)) {
		return slog.String("joint", e.joints[set])
	}
	return slog.String("joint", e.robot.Joints(uint32(set)))
}

// silent names the joints that do not answer any more; the tick has ended.
func (e *Edge) silent() string {
	if who := e.robot.Joints(e.control.arm.Frozen()); who != "" {
		return " (" + who + ")"
	}
	return ""
}

// report turns the events that a person wants to know of into log lines, without
// making garbage: something went wrong, and the arm still moves.
func (e *Edge) report(ev event.Event) {
	level, attrs := slog.LevelInfo, [4]slog.Attr{}
	n := 0
	switch ev.Code {
	case event.StateChanged:
		attrs[0], attrs[1], n = slog.String("from", State(ev.A).String()), slog.String("to", State(ev.B).String()), 2
	case event.BusLost:
		level, attrs[0], n = slog.LevelWarn, slog.Int64("silent_joints", ev.A), 1
	case event.TickOverrun:
		level, n = slog.LevelWarn, 2
		attrs[0], attrs[1] = slog.Duration("took", time.Duration(ev.A)), slog.Duration("host_took", time.Duration(ev.B))
	case event.BusBack:
		level, attrs[0], n = slog.LevelWarn, slog.String("why", hotplug.Cause(ev.A).String()), 2
		attrs[1] = slog.String("next", "it is armed where it stands, with the next chunk")
		if ev.B&1 != 0 {
			attrs[1] = slog.String("next", e.resume)
		}
		if ev.B>>1 != 0 {
			attrs[2], n = e.joint(ev.B>>1), 3
		}
	case event.JointFrozen, event.JointHeld, event.JointOverloaded, event.JointBlind, event.JointLimp, event.JointStalled, event.JointMoved:
		level, n = slog.LevelWarn, 2
		attrs[0], attrs[1] = e.joint(ev.A), slog.Int64("joint_bits", ev.A)
	case event.Suspended:
		level, attrs[0], n = slog.LevelWarn, slog.Duration("for", time.Duration(ev.A)), 1
	case event.JointWarned:
		level, attrs[0], attrs[1], n = slog.LevelWarn, e.joint(ev.A), slog.Int64("joint_bits", ev.A), 4
		attrs[2], attrs[3] = slog.Int64("hottest_celsius", ev.B>>16), slog.Float64("lowest_volts", float64(ev.B&0xFFFF)/10)
	case event.TorqueOn:
	default:
		return
	}
	e.log.LogAttrs(context.Background(), level, ev.Code.String(), attrs[:n]...)
}

// summarize reads every counter after the run.
func (e *Edge) summarize(err error) *Summary {
	c, st, loop := e.control, e.control.stats, e.loop.Stats()
	grant := e.loop.Grant()
	took := e.clock.Now().Sub(e.started)
	s := &Summary{
		Ticks: loop.Ticks, OverrunsOwn: loop.OverrunsOwn, OverrunsHost: loop.OverrunsHost, ExcusedMS: round3(loop.Excused.Seconds() * 1e3), Skipped: loop.Skipped,
		StarvedTicks: st.starved.Load(), LatenessUS: long(loop.Lateness, time.Microsecond),
		LatenessHist: histogram(loop.Lateness, time.Microsecond),
		Requests:     st.requests.Load(), Chunks: st.chunks.Load(), ChunksDropped: st.dropTotals(),
		RTTms: short(st.rtt, time.Millisecond), ActionAgeMS: short(st.age, time.Millisecond), NetworkMS: short(st.network, time.Millisecond),
		Bus:    busSummary(e.arm.Stats()),
		Frames: map[string]Frames{}, InState: st.seconds(), RT: Granted{grant.Granted, grant.Why},
		Targets: e.score.reached, Collisions: e.score.collided, Timeouts: e.score.timeouts,
		ID: e.identity.ID, Schedule: e.cfg.Plan.Schedule, Compat: e.cfg.Plan.Compat, Multiplier: c.core.Stages.Multiplier(), FPS: e.cfg.FPS, Horizon: e.link.terms.horizon, SMin: c.core.Plan.View().SMin,
		LatencySteps: c.core.Plan.View().Estimate, StarvedBus: st.starvedBus.Load(), Actions: st.actions.Load(), ActionsTooOld: st.tooOld.Load(),
		Replaced: st.replaced.Load(), SendErrors: st.sendErrors.Load(),
		RangeClips: c.arm.Gate().RangeClips, StepClips: c.arm.Gate().StepClips, Sessions: e.link.opened.Load(),
		StealMS: round3(float64(rt.StealTime()-e.steal) / 1e6), RSSMB: round3(float64(rt.ResidentSize()) / (1 << 20)), Seconds: round3(took.Seconds()),
		CPUShare: round3(loop.CPU.Seconds() / max(took.Seconds(), 1e-9)),
		Server:   &ServerSummary{e.link.terms.model, e.link.terms.revision, e.link.terms.sha256, e.link.terms.prefix},
	}
	if e.page != nil {
		stats := e.page.Stats()
		s.Page = &stats
	}
	if c.record != nil {
		s.Recorded, s.RecordLost = c.record.Written(), c.record.Lost()
	}
	if h := &e.heap; h.closed {
		s.PathMallocs, s.GCCycles = h.to.Allocs-h.from.Allocs, h.to.Cycles-h.from.Cycles
		s.ForcedGC, s.MallocWindow = h.to.Forced-h.from.Forced, h.last-h.first
		s.MallocBytes = h.to.Bytes - h.from.Bytes
	}
	for _, cam := range e.cameras {
		s.Frames[cam.Name] = framesOf(cam)
	}
	s.Phases = map[string]ShortQuantiles{"tick": short(c.phases.Whole(), time.Microsecond)}
	for i, name := range phaseNames {
		s.Phases[name] = short(c.phases.Part(i), time.Microsecond)
	}
	s.Exit = ending(err, e.describe())
	return s
}

// describe names the exit reason of an ordinary end.
func (e *Edge) describe() string {
	if e.ran {
		return fmt.Sprintf("ran for %v as asked", e.cfg.Duration)
	}
	return "stopped by signal"
}

func micros(h *rt.Hist, q float64) float64 {
	return round3(float64(h.Quantile(q)) / float64(time.Microsecond))
}

func busSummary(arm servo.Stats) BusSummary {
	return BusSummary{
		Cycles: arm.Cycles, Lost: arm.Lost, Corrupt: arm.Corrupt, Retries: arm.Retries,
		P50: micros(arm.Cycle, 0.5), P99: micros(arm.Cycle, 0.99),
		FastReads: arm.FastReads, Fallbacks: arm.Fallbacks, FastTries: arm.FastTries,
	}
}

func framesOf(cam *capture.Camera) Frames {
	t := cam.Stats()
	return Frames{
		Captured: t.Captured, Dropped: t.Dropped, Age: round3(float64(cam.Age.Quantile(0.99)) / 1e6), Errors: t.Errors,
		Missed: t.Source.Missed, Skipped: t.Source.Skipped, Broken: t.Source.Broken + t.Torn, Restarts: t.Source.Restarts, Stale: t.Stale,
		Warned: t.Warned, Undecoded: t.Undecoded,
	}
}
