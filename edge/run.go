package edge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/edge/recording"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
)

// Run ticks until ctx ends, the duration is over or the run fails. Then it releases the arm, or holds it under
// --on-exit hold.
func (e *Edge) Run(ctx context.Context) (*Summary, error) {
	defer e.release()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := rt.LockMemory(); err != nil {
		e.log.Info("memory is not locked", "why", err)
	}
	e.heap.gc = rt.HoldGC(0)
	rt.PrefillRuntime()
	e.started = e.clock.Now()
	linked, ending := make(chan error, 1), e.drive.Ending()
	for _, cam := range e.cameras {
		e.drive.Go(func() error { cam.Run(e.clock, ending, &e.missing); return nil })
	}
	e.drive.Go(func() error { return e.sender.Run(ending) })
	e.recording.Start()
	e.drive.Go(func() error { linked <- e.link.Maintain(ctx); return nil })
	operator.Serve(e.operator, e.drive.Go, func(line string) operator.Reply { return e.commands.Command(ctx, line) })
	e.drive.Go(func() error { e.stepEpisodes(ctx); return nil })
	slices.Concat(e.arms, e.leaderArms).KeepOpen(ending, e.drive.Go, e.log)
	for _, l := range e.leaders {
		e.drive.Go(func() error { return l.Run(ending, e.drive.Hurried) })
	}
	for _, r := range e.remotes {
		e.drive.Go(func() error { return r.Run(ending) })
	}
	tickErr := e.drive.Loop(ctx, e.control.tick, e.look)
	e.endWatch()
	e.drive.LetGo(tickErr) // the other threads end later, which may take long
	cancel()
	linkErr, other := e.join(linked, func() {
		e.control.waker.Wake()
		e.operator.Close()
	})
	err := e.EndError(e.drive.Outcome(e.verdict(tickErr, linkErr)), other)
	e.episodes.Close()
	err = e.endRecord(err)
	return e.summarize(err), err
}

// Hurry makes an ending run skip the parking. The second Ctrl-C calls it.
func (e *Edge) Hurry() { e.drive.Hurry() }

// join ends the threads beside the tick. linkErr is the link's error, and other the error of a
// thread that is stuck and may still use the link.
func (e *Edge) join(linked <-chan error, wake func()) (linkErr, other error) {
	other = e.drive.Join(wake)
	if e.stuck = other != nil; e.stuck {
		return nil, other
	}
	select {
	case linkErr = <-linked:
	default: // the link's thread panicked
	}
	return linkErr, nil
}

// NotOpenedError joins end, the error of Open, with other, the error of a file that could not be written. After
// exit.Failure the systemd unit switches the torque off. Under --on-exit hold the previous run may have left the arm
// under torque, so the error then never has that code.
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

// EndError joins two errors: end is the error of Run, and other does not concern the arm, such as the error of a file.
// other turns a clean end into a failure, unless the arm is held. After exit code 1 the systemd unit switches the
// torque off, and a held arm would fall.
func (e *Edge) EndError(end, other error) error { return e.drive.Aside(end, other) }

// verdict returns the error that explains the end.
func (e *Edge) verdict(tickErr, linkErr error) error {
	failed := e.drive.Failed()
	switch {
	case tickErr != nil:
		return tickErr
	case linkErr != nil:
		return linkErr
	case failed != nil:
		return failed
	case state(e.control.stats.state.Load()) == stateDead:
		return e.offlineError()
	}
	return nil
}

// offlineError returns the error of a run that gave up after max_offline without a chunk, with the
// longest lack as its reason. Call it after the tick has ended.
func (e *Edge) offlineError() error {
	lacks := &e.control.run.gaveUp
	lack := lacks.Longest()
	text := fmt.Sprintf("no chunk for %v: gave up", e.cfg.MaxOffline)
	switch lack {
	case event.LackJoints:
		text = fmt.Sprintf("joints were silent for %s: gave up; check the arm's cables and power", e.lasted(lack))
	case event.LackPictures:
		text += fmt.Sprintf("; a camera gave no picture for %s%s", e.lasted(lack), capture.Failing(e.cameras))
	case event.LackSession:
		text += fmt.Sprintf("; no session: %s; start lean-server, or check --connect and --id", e.sessionError())
	case event.LackAnswers:
		if e.control.in.Unheard.Load() {
			text += fmt.Sprintf("; the server does not answer: %s; check that lean-server runs, or check --connect",
				e.sessionError())
			break
		}
		text += capture.Failing(e.cameras)
	default:
		text += capture.Failing(e.cameras)
	}
	for _, o := range []chunk.Outcome{chunk.BadShape, chunk.NotFinite} {
		if n := e.control.stats.dropped[dropOutcome+int(o)].Load(); n > 0 && lack == event.LackAnswers {
			text += fmt.Sprintf("; %d chunks of this run were not used (%v): check the policy", n, o)
		}
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

// lasted returns, as text, how long lack k had lasted when the run gave up. For silent joints the text has their names.
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

// sessionError returns the reason why there was no session, even if one is open now.
func (e *Edge) sessionError() string {
	if why := e.control.in.NoSession.Load(); why != nil {
		return *why
	}
	return "it was lost"
}
