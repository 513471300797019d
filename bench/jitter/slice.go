package jitter

import (
	"context"
	"errors"
	"os"
	"runtime"
	"time"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/stage"
)

const (
	// alignLead is how much longer a subject runs with cyclictest beside it, because cyclictest
	// begins at a full second after the phase is known.
	alignLead = 1500 * time.Millisecond

	// startTries bounds the attempts to start a subject: edge-rt refuses a bus that is too slow,
	// which the simulated bus may be on a busy machine.
	startTries = 3
)

// notStarted is the error of a subject that ended before it ticked.
type notStarted struct{ error }

func (n notStarted) Unwrap() error { return n.error }

func (j *jitter) slice(ctx context.Context, k kind, length time.Duration) (s Slice, err error) {
	s = Slice{Subject: k.subject, Form: k.form, Began: time.Since(j.began).Seconds()}
	host := stage.ReadHost()
	if k.subject == Cyclictest {
		s.Run, err = j.alone(ctx, length)
	} else {
		s.Run, s.Reference, err = j.subject(ctx, k, length)
	}
	s.StealShare = stage.ReadHost().StealShare(host)
	return s, err
}

// alone runs cyclictest without a subject. The CPUs may sleep as deeply as with the subjects.
func (j *jitter) alone(ctx context.Context, length time.Duration) (*Run, error) {
	c, err := j.reference.start(j.period, -1, j.pinned(), false)
	if err != nil {
		return nil, err
	}
	tid, err := c.child.waitTick(ctx, tickLimit)
	if err == nil && j.pinned() < 0 {
		err = shareCPUs(os.Getpid(), tid) // cyclictest binds its thread to a CPU, and the subjects do not
	}
	if err == nil {
		stage.Sleep(ctx, length)
	}
	run, finishErr := c.finish()
	return run, errors.Join(err, finishErr)
}

// subject runs a subject, and cyclictest beside it if the form is Beside.
func (j *jitter) subject(ctx context.Context, k kind, length time.Duration) (run, reference *Run, err error) {
	if k.form == Beside {
		length += alignLead
	}
	for try := 1; ; try++ {
		run, reference, err = j.attempt(ctx, k, length)
		var failed notStarted
		if !errors.As(err, &failed) || ctx.Err() != nil || try == startTries {
			return run, reference, err
		}
		j.retried = append(j.retried, err.Error())
	}
}

// attempt tries once to run a subject as jitter.subject demands. The load pauses until the subject and, with the form
// Beside, cyclictest have begun to tick.
func (j *jitter) attempt(ctx context.Context, k kind, length time.Duration) (run, reference *Run, err error) {
	program := j.subjects[k.subject]
	j.load.Pause()
	defer j.load.Resume()
	c, err := program.start(length, k.form == Beside)
	if err != nil {
		return nil, nil, err
	}
	defer context.AfterFunc(ctx, c.Interrupt)()
	limit := tickLimit
	switch {
	case k.subject == leRobotLoop:
		limit = 0 // LeRobot has no real-time thread, and measures from its start on
	case j.reference.Missing != "":
		limit = min(limit, length) // if the kernel refuses real time, the wait takes all of limit without a load
	}
	tid, tickErr := c.waitTick(ctx, limit)
	switch {
	case tickErr != nil && k.form == Beside:
		err = tickErr
	case k.form == Beside:
		reference, err = j.beside(ctx, c, tid, length)
	default: // a subject apart from cyclictest is measured even if it is not real-time
		j.load.Resume()
		c.waitExit(ctx, length/2)
		if classes := bench.ClassesOf(bench.ThreadsOf(c.PID())); classes != "" {
			c.threads = classes
		}
	}
	if err != nil {
		c.Interrupt()
	}
	if waitErr := c.Wait(length + stage.ServerLimit); waitErr != nil && tickErr != nil {
		return nil, nil, notStarted{waitErr}
	} else if waitErr != nil {
		return nil, nil, waitErr // if cyclictest failed, too, this error is the cause
	}
	if err == nil {
		run, err = program.result(c)
	}
	if err == nil {
		run.Threads = c.threads
	}
	return run, reference, err
}

// beside runs cyclictest half a period out of phase with the subject until the subject ends.
func (j *jitter) beside(ctx context.Context, c *process, tid int, length time.Duration) (*Run, error) {
	idle, err := idleInstant(j.clock, j.period, func() (uint64, error) { return bench.SleepsOf(tid) })
	if err != nil {
		return nil, err
	}
	second := nextSecond(j.clock)
	r, err := j.reference.start(j.period, alignment(idle, second, j.period, intervalOf(j.period)), j.pinned(), true)
	if err != nil {
		return nil, err
	}
	own, err := r.child.waitTick(ctx, tickLimit)
	if err == nil {
		err = shareCPUs(tid, own)
	}
	j.load.Resume()
	c.threads = bench.ClassesOf(bench.ThreadsOf(c.PID()))
	c.waitExit(ctx, length+stage.ServerLimit)
	run, finishErr := r.finish()
	return run, errors.Join(err, finishErr)
}

// pinned returns the CPU to which the subjects pin themselves, or -1 if they do not pin themselves.
func (j *jitter) pinned() int { return pinnedBy(j.cfg.CPU, runtime.NumCPU()) }
