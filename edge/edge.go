// Package edge is the robot's process: it ticks one arm on the action chunks of
// a policy that runs elsewhere.
//
// Open (edge.go) checks the configuration (config.go), opens the robot's id
// (identity.go), arm (arm.go), session (link.go, service.go, contract.go) and cameras
// (cameras.go), and allocates all. Run allocates nothing on its paths, and does not fail
// but changes State (state.go).
//
// One observation and its chunk take this way:
//
//	control.go   the tick: read, act, merge at most one chunk, ask; a snapshot leaves
//	sender.go    newest pictures (package capture), encoded: the observation leaves
//	receiver.go  chunks are checked as they come; the newest waits for the tick
//
// The threads meet the tick only in rt.Latest, rt.Ring and atomic flags. What the
// tick decides is package tick, what the arm may do package follow.
//
// Meanwhile watch.go does the housekeeping, record.go writes the actions that ran, and
// operator.go and page.go answer edge-rt ctl and browsers, with what stats.go counts and
// status.go reads. end.go takes the arm's torque on every way out; summary.go is the
// run's summary.
package edge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"edgert/chunk"
	"edgert/chunk/stage"
	"edgert/edge/capture"
	"edgert/edge/device"
	"edgert/edge/event"
	"edgert/edge/follow"
	"edgert/edge/hotplug"
	"edgert/edge/page"
	"edgert/edge/tick"
	"edgert/internal/exit"
	"edgert/internal/network"
	"edgert/internal/notify"
	"edgert/record"
	"edgert/rt"
	"edgert/servo/robot"
	"edgert/servo/servosim"
	"edgert/sim"
	"edgert/wire"
)

// errOffline is the cause of a connect context that ran into max_offline.
var errOffline = errors.New("gave up after --max-offline")

// How often the transport dials a server that is gone; the arm holds meanwhile.
const (
	dialMin = 100 * time.Millisecond
	dialMax = time.Second
)

// Edge is one robot, open and ready to run.
type Edge struct {
	// Constant after Open.
	cfg      Config
	clock    rt.Clock
	log      *slog.Logger
	robot    robot.Robot
	joints   []string // robot.Joints of each bit set, for the log
	resume   string   // what an operator has to do once a motor has restarted
	identity *identity
	notifier *notify.Notifier
	operator net.Listener
	page     *page.Page  // nil: none
	record   *record.Log // nil: none
	closers  []func()    // of what was opened, in that order

	devices
	net      wire.Session
	receiver *receiver
	link     *link
	control  *control
	sender   *sender
	loop     *rt.Loop

	stop    atomic.Bool // ends the tick
	ending  atomic.Bool // ends every other thread
	threads sync.WaitGroup
	stuck   bool // a thread did not end: what it may use is not closed
	outcome
}

// devices are the arm and the cameras.
type devices struct {
	arm         *hotplug.Arm
	simBus      *servosim.Bus // nil on hardware
	world       *sim.Live     // nil on hardware
	still       *sim.Live     // what simulated cameras see on a real bus
	files       []openedFile  // of the cameras, those that play files
	cameras     []*capture.Camera
	encoders    []*capture.Encoder // of each
	cameraWaits []waitLog          // of each; owner: the housekeeping goroutine
}

// outcome is what the summary needs beside the counters.
type outcome struct {
	armOpen  rt.Instant // when the arm was
	started  rt.Instant
	steal    time.Duration // of the host, at the start
	heap     heapWindow
	score    sim.Score // of the simulated world, before the arm parks
	scored   bool
	ran      bool  // for all of --duration
	held     bool  // the arm stays under torque, as --on-exit asks
	recorded error // why the record stopped; read after the thread that writes it
}

// onClose has release call f, before what was opened earlier is closed.
func (e *Edge) onClose(f func()) { e.closers = append(e.closers, f) }

// onCloseUnlessStuck is onClose for what a thread that did not end may use.
func (e *Edge) onCloseUnlessStuck(f func()) {
	e.onClose(func() {
		if !e.stuck {
			f()
		}
	})
}

func (e *Edge) release() {
	for i := len(e.closers) - 1; i >= 0; i-- {
		e.closers[i]()
	}
	e.closers = nil
}

// Open opens the arm, a session and the cameras, and retries until max_offline.
func Open(ctx context.Context, cfg Config) (e *Edge, err error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	e = &Edge{cfg: cfg, clock: rt.KernelClock(), log: cfg.Log}
	if e.notifier, err = notify.Open(); err != nil {
		e.log.Warn("the service manager is not told how the run goes", "why", err)
	}
	e.onClose(func() { e.notifier.Close() })
	defer func() {
		if err != nil {
			e.release()
			e = nil
		}
	}()
	if e.robot, err = device.Robot(cfg.Robot); err != nil {
		return e, err
	}
	e.joints = jointLists(e.robot)
	if e.robot.Leader {
		return e, exit.Errorf(exit.Usage, "--robot %s is a leader, which a person moves and no policy: give the follower's, or run edge-rt teleop", e.robot.Name)
	}
	cameras := make([]capture.Config, len(cfg.Cameras)) // by the policy's names
	for i, c := range cfg.Cameras {
		c.Name = e.robot.CameraName(c.Name)
		cameras[i] = c
	}
	e.cfg.Cameras, e.cfg.Robot = cameras, e.robot.Name
	runtime.GOMAXPROCS(runtime.NumCPU() + 2)    // a waking tick never queues for a P
	if err := rt.NiceProcess(-10); err != nil { // threads to come inherit it
		e.log.Info("the other threads keep their nice value", "why", err)
	}
	for _, step := range []func(context.Context) error{
		e.openCameraFiles, e.openPage, e.claimID, e.openRecord, e.openArm, e.connect, e.takePolicyRate, e.openCameras, e.build, e.listenOperator,
	} {
		if err = step(ctx); err != nil {
			return e, err
		}
	}
	return e, nil
}

func (e *Edge) connect(ctx context.Context) error {
	wait, cancel := context.WithTimeoutCause(ctx, e.cfg.MaxOffline, errOffline)
	defer cancel()
	e.armOpen = e.clock.Now()
	e.waitFor("a server")
	e.receiver = newReceiver(func(ev wire.Event) {
		e.log.Warn("server: "+ev.Text, "code", ev.Code, "seq", ev.Seq)
	})
	e.link = &link{
		cfg: &e.cfg, identity: e.identity, names: e.robot.ActionNames(), units: unitsOf(e.robot), log: e.log, clock: e.clock,
		flags: e.receiver.link, uplink: new(atomic.Pointer[uplink]), receive: e.receiver.deposit,
	}
	var err error
	transport := e.cfg.transport()
	transport.Log = func(line string) { e.log.Info(line) }
	e.net, err = network.Open(wait, transport)
	if err == nil && e.cfg.Wrap != nil {
		e.net = e.cfg.Wrap(e.net)
	}
	if err == nil {
		e.onClose(func() { e.net.Close() })
		e.onClose(e.link.close)
		e.link.net = e.net
		err = e.link.connect(wait)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case wait.Err() != nil && errors.As(err, new(*temporaryError)):
		return exit.Errorf(exit.Absent, "no session for %v: %w", e.cfg.MaxOffline, err)
	case wait.Err() != nil:
		return exit.Errorf(exit.Absent, "no server for %v: %w; start lean-server, or check --connect", e.cfg.MaxOffline, err)
	}
	return err
}

func unitsOf(r robot.Robot) (units []string) {
	for _, m := range r.Motors {
		units = append(units, m.Norm.String())
	}
	return units
}

// build allocates what the session's sizes need.
func (e *Edge) build(context.Context) error {
	contract, period, events := e.link.contract, e.cfg.period(), event.NewQueue(eventSlots)
	settings := e.cfg.Schedule
	settings.Horizon, settings.DOF, settings.FPS = contract.horizon, len(e.robot.Motors), e.cfg.FPS
	settings.PrefixEnd, settings.RequestTimeout = contract.prefixEnd, e.cfg.RequestTimeout
	schedule, err := chunk.New(settings)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	stages, err := stage.NewChain(e.cfg.Stages, e.cfg.FPS, settings.DOF)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	waker, err := rt.NewWaker()
	if err != nil {
		return err
	}
	e.onCloseUnlessStuck(func() { waker.Close() })
	e.arm.SetPeriod(period)
	e.control = newControl(controlConfig{
		clock: e.clock, period: period, degradedAfter: e.cfg.DegradedAfter, maxOffline: e.cfg.MaxOffline,
		arm: follow.New(e.arm, follow.Config{
			Period: period, Safety: e.robot.Safety, Gate: follow.NewGate(e.arm.Arm(), period), Exit: follow.ExitModes[e.cfg.OnExit],
			Rescue: e.cfg.Rescue, Events: events, Clock: e.clock,
		}, settings.DOF),
		bus: e.arm, record: e.record, events: events, waker: waker, stop: &e.stop,
		link: e.receiver.link, inbox: e.receiver.inbox, stats: e.receiver.stats,
	}, tick.Core{Schedule: schedule, Stages: stages, MaxAge: e.cfg.MaxActionAge}, contract.horizon)
	e.resume = "nothing moves until an operator says so: look at the arm, then edge-rt ctl resume --id " + e.identity.ID
	e.control.stats.inState[stateConnecting].Add(int64(e.clock.Now().Sub(e.armOpen)))
	e.control.link.missingCameras.Store(int32(len(e.cameras)))
	e.sender = newSender(e.control, e.link.uplink, e.cameras, e.encoders, e.cfg.Task)
	e.loop = rt.NewLoop(rt.LoopConfig{Clock: e.clock, Period: period, Mode: e.cfg.RT, CPU: e.cfg.CPU})
	return e.showPage()
}

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
		e.spawn(func() error { cam.Run(e.clock, &e.ending, &e.control.link.missingCameras); return nil })
	}
	e.spawn(func() error { return e.sender.run(&e.ending) })
	if e.control.record != nil {
		e.spawn(e.writeRecord)
	}
	e.threads.Go(func() { linked <- e.link.maintain(ctx) })
	e.spawn(func() error { return e.serveOperator(ctx) })
	e.spawn(func() error { e.arm.KeepOpen(&e.ending); return nil })
	ticked := make(chan error, 1)
	go func() { ticked <- e.tickThread() }()

	tickErr := e.watch(ctx, ticked)
	off := e.torqueOff(tickErr) // before other threads end, which may take long
	if e.held && e.control.stats.touched.Load() && e.cfg.Bus != device.Sim {
		e.log.Warn("the arm is held, as --on-exit hold says", "next", "edge-rt torque off --bus "+e.cfg.Bus+" lets it go")
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
	return e.summarize(err), err
}

// tickThread runs the loop. A panic becomes an error, so that torque is taken.
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

// Hurry makes a run that is ending skip the parking: the second Ctrl-C.
func (e *Edge) Hurry() { e.control.operator.hurry.Store(true) }
