package edge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/edge/leader"
	"github.com/edge-rt/edge-rt/edge/uplink"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
)

const (
	udevTime     = 2 * time.Second // time in which udev gives a new device its group
	simCameraFPS = 60              // rate of a simulated camera: the rate of the simulated world
)

func (e *Edge) openArms(ctx context.Context) error {
	e.waitFor("the arm")
	e.sims = device.Sims{Seed: e.cfg.Seed, Clock: e.clock}
	e.onClose(e.sims.Close)
	robot := device.Place{
		Bus:         e.cfg.Bus,
		Robot:       e.robot,
		ID:          e.cfg.ID,
		Calibration: e.cfg.Calibration,
	}
	places, err := robot.Each()
	if err != nil {
		return err
	}
	for i := range places {
		if err := e.openArm(ctx, places, i); err != nil {
			return err
		}
	}
	if e.simulated() {
		e.cfg.Bus = device.Sim
	}
	if e.cfg.FPS == 0 {
		return nil // takePolicyRate measures the buses later, when the rate is known
	}
	return e.measureBuses(ctx)
}

// openArm opens the arm of one part.
func (e *Edge) openArm(ctx context.Context, places []device.Place, i int) error {
	place := &places[i]
	path := place.Bus
	if path == device.Sim {
		var err error
		if path, err = e.sims.Open(place.Robot, place.Part); err != nil {
			return err
		}
	}
	cfg, err := place.Config(path, e.clock)
	if err != nil {
		return place.Named(err)
	}
	arm, err := e.retryArm(ctx, place, &cfg)
	if err != nil {
		return device.Swapped(places, i, cfg, err)
	}
	hot := hotplug.New(arm, cfg, e.clock)
	e.arms = append(e.arms, hot)
	e.onClose(hot.Close)
	if unconfigured := arm.Unconfigured(); len(unconfigured) > 0 {
		e.log.Warn("motors are under torque and keep their old settings until the next start", "motors", unconfigured)
	}
	for _, note := range arm.Notes() {
		e.log.Warn(note)
	}
	return device.Swapped(places, i, cfg, nil)
}

// takePolicyRate sets FPS to the policy's rate when --fps is not given, and then checks the
// schedule and measures the buses.
func (e *Edge) takePolicyRate(ctx context.Context) error {
	if e.cfg.FPS != 0 {
		return nil
	}
	e.cfg.FPS = e.contract.FPS
	e.log.Info("the policy's rate", "fps", e.cfg.FPS)
	if err := e.cfg.CheckSchedule(); err != nil {
		return err
	}
	return e.measureBuses(ctx)
}

// simulated reports whether every part is simulated in this process.
func (e *Edge) simulated() bool { return e.sims.Len() > 0 && e.sims.Len() == len(e.arms) }

// retryArm opens the arm, and tries again after failures of ports, power and cables. If the flags
// name no calibration, retryArm sets cfg.Calibration to the calibration that matches the motors.
func (e *Edge) retryArm(ctx context.Context, place *device.Place, cfg *servo.ArmConfig) (arm *servo.Arm, err error) {
	cfg.Canceled = func() bool { return ctx.Err() != nil }
	denied := rt.Instant(0) // start of the refusals for lack of permission; 0: the last attempt had permission
	err = e.retry(ctx, "the bus", func() (passes bool, err error) {
		arm, err = place.Open(cfg)
		switch now := e.clock.Now(); {
		case !errors.Is(err, servo.ErrPortDenied):
			denied = 0
		case denied == 0:
			denied = now
		}
		return exit.Of(err) == exit.Absent && mayAppear(err, e.clock.Now().Sub(denied)), err
	})
	if err == nil && ctx.Err() != nil {
		arm.Close()
		return nil, ctx.Err()
	}
	if err == nil && place.Taken != "" {
		e.log.Info(place.Taken)
		place.Taken = "" // the log has this text now
	}
	return arm, err
}

// mayAppear reports whether a later attempt can succeed. The parameter denied is the time for which the port has
// refused access.
func mayAppear(err error, denied time.Duration) bool {
	return errors.Is(err, servo.ErrPortAbsent) || errors.Is(err, servo.ErrPortBusy) ||
		errors.Is(err, servo.ErrMotorMissing) || errors.Is(err, servo.ErrNoReply) || errors.Is(err, servo.ErrGarbled) ||
		errors.Is(err, servo.ErrPortDenied) && denied < udevTime
}

// measureBuses refuses a bus that is too slow or loses too many replies.
func (e *Edge) measureBuses(ctx context.Context) error {
	check := drive.BusCheck{
		Period: e.cfg.period(),
		At:     fmt.Sprintf("%v ticks per second", e.cfg.rate()),
		Cure: "raise the servos' baud rate, or lower --fps (below the policy's rate with --fps-mismatch allow: the " +
			"arm moves slower)",
		Simulated: e.simulated(),
		Log:       e.log,
		Clock:     e.clock,
	}
	for i, arm := range e.arms {
		if err := check.Measure(ctx, arm.Arm()); err != nil {
			return (&device.Place{Part: e.robot.Parts()[i].Name}).Named(err)
		}
	}
	return nil
}

// openLeader opens the leaders of --leader: arms at this machine, whose torque it switches off, arms on other machines,
// or keys. Without --leader it does nothing.
func (e *Edge) openLeader(ctx context.Context) error {
	place := e.cfg.Leader
	switch place.Bus {
	case "":
		return nil
	case device.JogLeader:
		e.jog = leader.NewJog(e.robot.JointNames(), e.clock)
		return nil
	}
	var err error
	if place.Robot, err = device.Leader(e.cfg.LeaderRobot, e.robot); err != nil {
		return err
	}
	here, far, err := leader.Split(place, e.robot)
	if err != nil {
		return err
	}
	if e.cfg.Takeover == takeoverPush && len(far) > 0 {
		return exit.Errorf(exit.Usage,
			"--takeover push needs a leader at this machine: a leader in the network is not "+
				"brought to the follower; leave the flag out")
	}
	if e.cfg.Takeover == takeoverPush && !place.Robot.Actuated {
		return exit.Errorf(exit.Usage, "--takeover push needs a leader whose motors can bring it to the follower, "+
			"and those of a %s cannot: the follower would go to any place to which the leader was knocked. Leave the "+
			"flag out, or set actuated: true in the leader's description", place.Robot.Name)
	}
	robot := device.Place{Bus: e.cfg.Bus, Robot: e.robot}
	if followers, err := robot.Each(); err != nil {
		return err
	} else if err := device.CheckAllPorts(here, followers); err != nil {
		return err
	}
	if err := e.openRemotes(ctx, far); err != nil || len(here) == 0 {
		return err
	}
	e.waitFor("the leader")
	for i := range here {
		if err := e.openLeaderArm(ctx, here, i); err != nil {
			return fmt.Errorf("the leader: %w", err)
		}
	}
	return nil
}

// openLeaderArm opens the leader of one part.
func (e *Edge) openLeaderArm(ctx context.Context, places []device.Place, i int) error {
	opening := drive.LeaderOpening{
		Places: places,
		Part:   i,
		Clock:  e.clock,
		Push:   e.cfg.Takeover == takeoverPush,
		Say:    e.sayOfLeader,
		Open: func(place *device.Place, cfg *servo.ArmConfig) (*servo.Arm, error) {
			return e.retryArm(ctx, place, cfg)
		},
		Opened: func(hot *hotplug.Arm) {
			e.onClose(hot.Close)
			e.onCloseUnlessStuck(hot.ReleaseTriggers) // for a run that ends before it has begun
			e.leaderArms = append(e.leaderArms, hot)
		},
	}
	one, err := opening.Leader(ctx)
	if err == nil {
		e.leaders = append(e.leaders, one)
	}
	return err
}

// openRemotes joins the networks of leaders on other machines. The leaders may appear in their
// networks later.
func (e *Edge) openRemotes(ctx context.Context, far []leader.RemoteConfig) (err error) {
	if len(far) == 0 {
		return nil
	}
	for i := range far {
		far[i].ID, far[i].Clock = e.identity.ID, e.clock
	}
	e.waitFor("the leader's network")
	e.remotes, err = leader.Dial(ctx, far, e.cfg.transport(), e.cfg.MaxOffline, e.log)
	e.onClose(e.remotes.Close)
	return err
}

// sayOfLeader logs and records the messages of the leader's thread.
func (e *Edge) sayOfLeader(warn bool, text string) {
	level := uint32(record.LevelInfo)
	if warn {
		level = record.LevelWarning
		e.log.Warn(text)
	} else {
		e.log.Info(text)
	}
	e.record.Note(e.clock.Now(), "leader", level, text)
}

// firstRun is the time for which a bundle that is new to an arm drives the arm slowly.
const firstRun = 10 * time.Second

// easeIn returns firstRun for a bundle that has never run on this arm, else 0. It returns 0 for a
// simulated arm, for a bundle for simulation, and when the server does not send the digest.
func (e *Edge) easeIn(c *uplink.Contract) time.Duration {
	if e.cfg.Bus == device.Sim || c.Simulation || c.SHA256 == "" ||
		e.identity.HasRun(e.arms.Calibration(e.robot).Text(), c.SHA256) {
		return 0
	}
	e.firstRun.Store(true)
	return firstRun
}

// noteRun records that the bundle has run on this arm. Owner: a thread of its own, because a disk may be slow.
func (e *Edge) noteRun() error {
	err := e.identity.NoteRun(e.arms.Calibration(e.robot).Text(), e.model.Load().SHA256)
	if err != nil {
		e.log.Warn("this bundle will start slowly again, the arm goes on", "why", err)
	}
	return nil
}
