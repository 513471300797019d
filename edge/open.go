package edge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/chunk/smoothing"
	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/episode"
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/edge/leader"
	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/edge/uplink"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/systemd/notify"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/network"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

// errOffline is the cause with which the context of connecting ends after --max-offline.
var errOffline = errors.New("gave up after --max-offline")

// Open opens the arm, a session and the cameras. It retries for --max-offline.
func Open(ctx context.Context, cfg Config) (e *Edge, err error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	e = &Edge{cfg: cfg, clock: rt.KernelClock(), log: cfg.Log}
	if e.notifier, err = notify.Open(); err != nil {
		e.log.Warn("the service manager gets no status of the run", "why", err)
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
	if e.robot.Leader {
		return e, exit.Errorf(exit.Usage,
			"--robot %s is a leader, which only a person moves: give the follower's, or run edge-rt teleop",
			e.robot.Name)
	}
	if cfg.Fallback == fallbackZero && e.robot.Wheels() == 0 {
		return e, exit.Errorf(exit.Usage,
			"--fallback is zero, which is for a base that is driven by velocity, and a %s has none: want hold or %s",
			e.robot.Name, fallbackRepeat)
	}
	e.cfg.Robot = e.robot.Name
	if e.cfg.Cameras, err = capture.Named(cfg.Cameras, e.robot.CameraName); err != nil {
		return e, err
	}
	runtime.GOMAXPROCS(runtime.NumCPU() + 2)    // a waking tick never waits for a P of Go's scheduler
	if err := rt.NiceProcess(-10); err != nil { // later threads inherit the nice value
		e.log.Info("the other threads keep their nice value", "why", err)
	}
	for _, step := range []func(context.Context) error{
		e.openCameraFiles, e.openPage, e.claimID, e.openRecord, e.openArms, e.openLeader, e.connect, e.takePolicyRate,
		e.openCameras, e.build, e.listenOperator,
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
	wait, deny := context.WithCancel(wait)
	defer deny()
	e.armOpen = e.clock.Now()
	e.waitFor("a server")
	settings := e.linkConfig()
	settings.Refusals = uplink.NewRefusals(len(slices.Compact(slices.Sorted(slices.Values(e.cfg.Connect)))), deny)
	e.link = uplink.New(settings)
	e.link.Out.Task.Store(&e.cfg.Task)
	var err error
	for _, text := range e.cfg.certificateWarnings(e.identity.ID) {
		e.log.Warn(text)
	}
	transport := e.cfg.transport()
	transport.Log = func(line string) { e.log.Info(line) }
	links := e.recording.Links()
	transport.Links = func(ev zenoh.LinkEvent) {
		settings.Refusals.Note(ev)
		links(ev)
	}
	e.net, err = network.Open(wait, transport)
	if err == nil && e.cfg.Wrap != nil {
		e.net = e.cfg.Wrap(e.net)
	}
	if err == nil {
		e.onClose(func() { e.net.Close() })
		e.onClose(e.link.Close)
		e.contract, err = e.link.Open(wait, e.net)
		e.model.Store(&e.contract)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case settings.Refusals.Err() != nil:
		return settings.Refusals.Err()
	case wait.Err() != nil && uplink.Temporary(err):
		return exit.Errorf(exit.Absent, "no session for %v: %w", e.cfg.MaxOffline, err)
	case wait.Err() != nil && zenoh.Reached(err):
		return exit.Errorf(exit.Absent, "no session for %v: %w", e.cfg.MaxOffline, err)
	case wait.Err() != nil:
		return exit.Errorf(exit.Absent, "no server for %v: %w; %s", e.cfg.MaxOffline, err, findServer(err))
	}
	return err
}

// findServer returns the operator's next step after err: a start found no server at the addresses of --connect.
func findServer(err error) string {
	var name *net.DNSError
	switch {
	case errors.Is(err, unix.ECONNREFUSED): // a machine answers, but no server listens
		return "start lean-server, or check --connect"
	case errors.As(err, &name) && name.IsNotFound:
		return fmt.Sprintf("no machine has the name %s: correct --connect, or give an address there", name.Name)
	case name != nil, errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH):
		return "check this machine's network, the other machine, and --connect"
	}
	return "start lean-server, or check --connect; a router's rules (lean-server acl) must name this robot"
}

// linkConfig returns the configuration of the session.
func (e *Edge) linkConfig() uplink.Config {
	c := &e.cfg
	return uplink.Config{
		Identity:    e.identity,
		Robot:       c.Robot,
		Names:       e.robot.ActionNames(),
		Units:       e.robot.Units(),
		Bus:         c.Bus,
		Cameras:     c.Cameras,
		Tags:        c.Tags,
		RealArm:     c.realArm,
		OtherRobot:  func() string { return c.otherRobot(e.identity.ID) },
		Service:     c.Service,
		ExpectModel: c.ExpectModel,
		FPS:         c.FPS,
		OtherFPS:    c.FPSMismatch == fpsAllow,
		Change:      e.modelChange(),

		StrictObservations: c.StrictObservations,
		Schedule:           c.Schedule,
		JPEGQuality:        c.JPEGQuality,
		Connect:            c.Connect,
		Limits: uplink.Limits{
			MaxActionAge:   c.MaxActionAge,
			DegradedAfter:  c.DegradedAfter,
			RequestTimeout: c.RequestTimeout,
			MaxOffline:     c.MaxOffline,
			Given:          c.Given,
		},
		ActionsPerChunk:         c.ActionsPerChunk,
		ReconnectInitialBackoff: c.ReconnectInitialBackoff,
		ReconnectMaxBackoff:     c.ReconnectMaxBackoff,
		Clock:                   e.clock,
		Log:                     e.log,
		Record:                  e.record,
		OnEvent: func(ev wire.Event) {
			e.log.Warn("server: "+ev.Text, "session", e.link.In.Sessions().ID(), "code", ev.Code, "seq", ev.Seq)
			e.recording.Notice(ev)
		},
	}
}

func (e *Edge) claimID(context.Context) (err error) {
	if e.identity, err = operator.Claim(e.cfg.ID); err != nil {
		return exit.With(exit.Config, err)
	}
	e.onClose(e.identity.Release)
	if e.identity.ID != e.identity.Asked {
		e.log.Warn("another edge on this host has this name, so this one has another", "name", e.identity.Asked,
			"now", e.identity.ID)
	}
	return nil
}

// build allocates everything that depends on the session's sizes.
func (e *Edge) build(context.Context) error {
	period := e.cfg.period()
	events := event.NewQueue(eventSlots)
	settings := e.cfg.Schedule
	settings.Horizon = e.contract.Horizon
	settings.DOF = len(e.robot.Motors)
	settings.FPS = e.cfg.FPS
	settings.PrefixEnd, settings.RequestTimeout = e.prefixEnd(), e.cfg.RequestTimeout
	schedule, err := chunk.New(settings)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	stages, err := smoothing.NewChain(e.cfg.Stages, e.cfg.FPS, settings.DOF)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	waker, err := rt.NewWaker()
	if err != nil {
		return err
	}
	e.onCloseUnlessStuck(func() { waker.Close() })
	arm := e.newFollowers(events)
	e.drive = e.newDrive(arm)
	e.link.Out.Prepare(e.contract.Horizon, settings.DOF, e.contract.Steps)
	e.control = newControl(controlConfig{
		clock:         e.clock,
		period:        period,
		degradedAfter: e.cfg.DegradedAfter,
		maxOffline:    e.cfg.MaxOffline,
		patience:      e.link.Patience(e.contract.Horizon, e.cfg.FPS),
		arm:           arm,
		bus:           e.arms,
		record:        e.record,
		events:        events,
		waker:         waker,
		drive:         e.drive,
		out:           e.link.Out,
		in:            e.link.In,
		missing:       &e.missing,
		stats:         newTickStats(),
		maxEmpty:      e.cfg.MaxEmptyCycles,
		actions:       e.cfg.ActionsPerChunk,
	}, follow.Core{Schedule: schedule, Stages: stages, MaxAge: e.cfg.MaxActionAge})
	e.control.repeats = e.cfg.Fallback == fallbackRepeat
	e.control.returns = e.cfg.Episodes.Strategy == episode.Episodic
	e.prepareTakeover()
	e.episodes, e.commands = e.newEpisodes(), e.panel()
	e.resume = "nothing moves until an operator resumes the run: look at the arm, then edge-rt ctl resume --id " +
		e.identity.ID
	e.prepareReports()
	e.control.stats.inState[stateConnecting].Add(int64(e.clock.Now().Sub(e.armOpen)))
	e.missing.Store(int32(len(e.cameras)))
	e.sender = e.link.NewSender(uplink.SenderConfig{
		DOF:      settings.DOF,
		Cameras:  e.cameras,
		Encoders: e.encoders,
		Waker:    waker,
		Missing:  &e.missing,
	})
	if err := e.describeRecord(); err != nil {
		return err
	}
	if err := e.openTelemetry(); err != nil {
		return err
	}
	if err := e.openTraces(); err != nil {
		return err
	}
	return e.showPage()
}

// prepareTakeover gives the tick its leader, if the run has one.
func (e *Edge) prepareTakeover() {
	k := &e.control.takeover
	k.action = make([]float32, len(e.robot.Motors))
	k.parts = e.control.arm.Joints()
	switch {
	case e.leaders != nil || e.remotes != nil:
		leaders := leader.Join(e.robot, e.leaders, e.remotes)
		k.leader, k.parts = leaders, leaders.Joints()
	case e.jog != nil:
		k.leader = leader.NewJogged(e.jog, e.control.arm.Gate().Step)
	}
}

// prefixEnd returns the row at which the prefix that conditions a chunk ends: the policy's row or
// --execution-horizon, whichever is lower; 0: no limit.
func (e *Edge) prefixEnd() int {
	own, asked := e.contract.PrefixEnd, e.cfg.Schedule.PrefixEnd
	if own == 0 || asked == 0 {
		return max(own, asked)
	}
	return min(own, asked)
}

func (e *Edge) newDrive(arm *follow.Parts) *drive.Run {
	return drive.New(drive.Config{
		Arm:    arm,
		Bus:    e.arms,
		Parts:  e.arms.Several(),
		Path:   e.cfg.Bus,
		Robot:  e.robot,
		OnExit: e.cfg.OnExit,
		Loop: rt.LoopConfig{
			Clock:  e.clock,
			Period: e.cfg.period(),
			Mode:   e.cfg.RT,
			CPU:    e.cfg.CPU,
		},
		Duration: e.cfg.Duration,
		Held: func(next string) {
			e.log.Warn("the arm stays under torque, since --on-exit is hold", "next", next+" lets it go")
		},
	})
}

// newFollowers returns a follower for each part of the robot. Their events go to the queue.
func (e *Edge) newFollowers(events *event.Queue) *follow.Parts {
	period, easeIn := e.cfg.period(), e.easeIn(&e.contract)
	return follow.Of(e.robot, func(i int, part robot.Robot) *follow.Follower {
		return follow.New(e.arms[i], follow.Config{
			Period: period,
			Safety: part.Safety,
			Gate:   follow.NewGate(e.arms[i].Arm(), period),
			Exit:   follow.ExitModes[e.cfg.OnExit],
			EaseIn: easeIn,
			Rescue: e.cfg.Rescue,
			Events: events,
			Clock:  e.clock,
		}, len(part.Motors))
	})
}
