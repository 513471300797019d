package edge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/edge/recording"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
)

// errStuck ends a run when a thread hangs in a file, a driver or the network.
var errStuck = fmt.Errorf("a thread did not end within %v of the arm: a camera or the network hangs", stuckLimit)

const (
	stuckLimit = 5 * time.Second
)

// Run ticks until ctx ends, the duration is over or the run fails, and lets the arm go.
func (e *Edge) Run(ctx context.Context) (*Summary, error) {
	defer e.release()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := rt.LockMemory(); err != nil {
		e.log.Info("memory is not locked", "why", err)
	}
	e.heap.gc = rt.HoldGC(0)
	rt.PrefillRuntime()
	e.started, e.steal = e.clock.Now(), rt.StealTime()
	linked := make(chan error, 1)
	for _, cam := range e.cameras {
		e.spawn(func() error { cam.Run(e.clock, &e.ending, &e.missing); return nil })
	}
	e.spawn(func() error { return e.sender.Run(&e.ending) })
	e.recording.Start()
	e.threads.Go(func() { linked <- e.link.Maintain(ctx) })
	e.spawn(func() error {
		operator.Serve(e.operator, func(line string) operator.Reply { return e.commands.Command(ctx, line) })
		return nil
	})
	e.spawn(func() error { e.stepEpisodes(ctx); return nil })
	e.spawn(func() error { e.arm.KeepOpen(&e.ending); return nil })
	if e.leader != nil {
		e.spawn(func() error { e.leaderArm.KeepOpen(&e.ending); return nil })
		e.spawn(func() error { return e.leader.Run(&e.ending, e.control.operator.hurry.Load) })
	}
	ticked := make(chan error, 1)
	go func() { ticked <- e.tickThread() }()

	tickErr := e.watch(ctx, ticked)
	off := e.torqueOff(tickErr) // before the other threads end, which may take long
	if e.held && e.control.stats.touched.Load() && e.cfg.Bus != device.Sim {
		e.log.Warn("the arm stays under torque, since --on-exit is hold",
			"next", device.TorqueOff(e.cfg.Bus, e.robot)+" lets it go")
	}
	cancel()
	e.ending.Store(true)
	e.control.waker.Wake()
	e.operator.Close()
	linkErr, other := e.join(linked)
	verdict := e.verdict(tickErr, linkErr)
	if verdict != nil && off != nil {
		off = exit.With(exit.Of(verdict), errors.Join(verdict, off))
	}
	err := e.EndError(cmp.Or(off, verdict), other)
	e.episodes.Close()
	err = e.endRecord(err)
	return e.summarize(err), err
}

// tickThread runs the loop. It turns a panic into an error, so that Run takes the torque.
func (e *Edge) tickThread() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("tick: panic: %v", p)
		}
	}()
	return e.loop.Run(&e.stop, e.control.tick)
}

// spawn starts a helper thread whose failure ends the run.
func (e *Edge) spawn(run func() error) {
	e.threads.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				e.control.giveUp(fmt.Errorf("panic: %v", p))
			}
		}()
		if err := run(); err != nil {
			e.control.giveUp(err)
		}
	})
}

// Hurry makes an ending run skip the parking: the second Ctrl-C.
func (e *Edge) Hurry() { e.control.operator.hurry.Store(true) }

// join waits for the threads. Resources that a stuck thread may use stay open until the process
// ends.
func (e *Edge) join(linked <-chan error) (linkErr, other error) {
	if e.stuck = !e.joined(); e.stuck {
		return nil, errStuck
	}
	return <-linked, nil
}

func (e *Edge) joined() bool { return device.Within(e.clock, stuckLimit, &e.threads) }

// torqueOff takes the torque, unless --on-exit is hold and exit.Held has the error's code. The tick
// has ended.
func (e *Edge) torqueOff(err error) error {
	if failed := e.control.failed.Load(); err == nil && failed != nil {
		err = *failed
	}
	e.held = follow.ExitModes[e.cfg.OnExit] == follow.ExitHold && slices.Contains(exit.Held, exit.Of(err)) &&
		!e.control.operator.limp.Load()
	if e.held || !e.control.stats.touched.Load() {
		return nil
	}
	if err := e.arm.RetryTorqueOff(e.control.operator.hurry.Load); err != nil {
		return fmt.Errorf("torque may still be on: %w; hold on to the arm: %s lets it go once its motors answer", err,
			device.TorqueOff(e.cfg.Bus, e.robot))
	}
	return nil
}

// NotOpenedError joins the error of Open with that of a file that could not be written. The
// previous run may have left the arm under torque, so under --on-exit hold it never returns
// exit.Failure, after which the unit takes the torque.
func NotOpenedError(onExit string, end, other error) error {
	err := errors.Join(end, other)
	switch {
	case follow.ExitModes[onExit] != follow.ExitHold || exit.Of(err) != exit.Failure:
		return err
	case end == nil:
		return exit.With(exit.Clean, err)
	}
	return exit.With(exit.Absent, err)
}

// EndError joins the error of Run with an error that does not concern the arm, such as that of a
// file. The latter turns a clean end into a failure, unless the arm is held: exit code 1 would let
// it fall.
func (e *Edge) EndError(end, other error) error {
	switch {
	case other == nil:
		return end
	case e.held:
		return exit.Keep(end, other)
	}
	return errors.Join(end, other)
}

// verdict returns the error that explains the end.
func (e *Edge) verdict(tickErr, linkErr error) error {
	failed := e.control.failed.Load()
	switch {
	case errors.Is(tickErr, rt.ErrRealTimeRefused):
		return exit.With(exit.RealTime, tickErr)
	case tickErr != nil:
		return tickErr
	case linkErr != nil:
		return linkErr
	case failed != nil:
		return *failed
	case state(e.control.stats.state.Load()) == stateDead:
		return e.offlineError()
	}
	return nil
}

// offlineError explains why no chunk arrived for max_offline, by the longest lack. The tick has
// ended.
func (e *Edge) offlineError() error {
	lacks := &e.control.run.gaveUp
	lack := lacks.Longest()
	text := fmt.Sprintf("no chunk for %v: gave up", e.cfg.MaxOffline)
	switch lack {
	case event.LackJoints:
		text = fmt.Sprintf("joints were silent for %s: gave up; check the arm's cables and power", e.lasted(lack))
	case event.LackPictures:
		text += fmt.Sprintf("; a camera gave no picture for %s%s", e.lasted(lack), e.cameraErrors())
	case event.LackSession:
		text += fmt.Sprintf("; no session: %s; start lean-server, or check --connect and --id", e.sessionError())
	case event.LackAnswers:
		if e.control.in.Unheard.Load() {
			text += fmt.Sprintf("; the server does not answer: %s; check that lean-server runs, or check --connect",
				e.sessionError())
			break
		}
		text += e.cameraErrors()
	default:
		text += e.cameraErrors()
	}
	for k := event.LackJoints; k <= event.LackSession; k++ {
		if k != lack && 2*lacks.Lasted(k) >= lacks.Lasted(lack) && lacks.Lasted(k) > 0 {
			text += fmt.Sprintf("; besides, %s for %s", besides[k], e.lasted(k))
			if k == event.LackSession && !e.control.in.Unheard.Load() {
				text += ": " + e.sessionError()
			}
		}
	}
	return exit.With(exit.Absent, recording.GaveUp(lack, text))
}

var besides = map[event.Lack]string{
	event.LackJoints: "joints were silent", event.LackPictures: "a camera gave no picture",
	event.LackSession: "there was no session",
}

// lasted returns the duration of a lack since the last chunk, as text, and for joints their names.
func (e *Edge) lasted(k event.Lack) string {
	lacks := &e.control.run.gaveUp
	text := lacks.Lasted(k).Round(100 * time.Millisecond).String()
	if limit := e.cfg.MaxOffline; lacks.Lasted(k) < limit-limit/10 {
		text += fmt.Sprintf(" of %v", limit)
	}
	if joints := e.robot.Joints(lacks.Joints()); k == event.LackJoints && joints != "" {
		text += " (" + joints + ")"
	}
	return text
}

// sessionError returns the reason for having had no session, even if one is open now.
func (e *Edge) sessionError() string {
	if why := e.control.in.NoSession.Load(); why != nil {
		return *why
	}
	return "it was lost"
}
