package edge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"edgert/camera"
	"edgert/camera/v4l2"
	"edgert/edge/capture"
	"edgert/edge/device"
	"edgert/edge/hotplug"
	"edgert/internal/backoff"
	"edgert/internal/exit"
	"edgert/rt"
	"edgert/servo"
	"edgert/servo/robot"
	"edgert/servo/servosim"
	"edgert/sim"
)

// The cycle-time check of Open.
const (
	measuredCycles = 100
	measureTries   = 3 // the fastest counts: a slow one may be another program's
	unfitAgain     = 3 // times that a bus which loses too much is measured anew
	unfitRest      = 500 * time.Millisecond
	busShare       = 0.6 // of the period that the slowest cycles may take
	busBackoffMax  = 10 * time.Second
	simCameraFPS   = 60 // a simulated camera is as fast as the world
)

// openArm opens the bus, the simulator's or a port.
func (e *Edge) openArm(ctx context.Context) error {
	path := e.cfg.Bus
	if path == device.Sim {
		if err := e.openSim(); err != nil {
			return err
		}
		path = e.simBus.Path()
	}
	calibration, err := e.calibration()
	if err != nil {
		return err
	}
	cfg := servo.ArmConfig{Path: path, Robot: e.robot, Calibration: calibration, Clock: e.clock}
	arm, err := e.retryArm(ctx, cfg)
	if err != nil {
		return err
	}
	e.arm = hotplug.New(arm, cfg, e.clock)
	e.onClose(func() { e.arm.Close() })
	if held := arm.Unconfigured(); len(held) > 0 {
		e.log.Warn("motors are under torque and keep their old settings until the next start", "motors", held)
	}
	for _, note := range arm.Notes() {
		e.log.Warn(note)
	}
	if e.cfg.FPS == 0 {
		return nil // settleRate measures, when the rate is known
	}
	return e.measureBus(ctx, arm)
}

// settleRate takes the rate of the open session where nobody gave one, and makes up
// for the checks that want it.
func (e *Edge) settleRate(ctx context.Context) error {
	if e.cfg.FPS != 0 {
		return nil
	}
	e.cfg.FPS = e.link.terms.fps
	e.log.Info("the policy's rate", "fps", e.cfg.FPS)
	if err := e.cfg.CheckPlan(); err != nil {
		return err
	}
	if e.record != nil {
		if err := e.record.Begin(e.cfg.FPS); err != nil {
			return fmt.Errorf("--record: %w", err)
		}
	}
	return e.measureBus(ctx, e.arm.Arm())
}

func (e *Edge) openSim() (err error) {
	if n := len(e.robot.Motors); n != sim.DOF {
		return exit.Errorf(exit.Usage, "--bus sim simulates %d joints, robot %s has %d", sim.DOF, e.robot.Name, n)
	}
	e.world = device.World(e.cfg.Seed, e.clock)
	if e.simBus, err = servosim.Open(simBusOf(e.robot, e.world, e.clock)); err != nil {
		return err
	}
	e.onClose(func() { e.simBus.Close() })
	return nil
}

// simBusOf is the robot's bus with a simulated world behind it.
func simBusOf(r robot.Robot, plant servosim.Plant, clock rt.Clock) servosim.Config {
	cfg := servosim.Config{Plant: plant, Clock: clock, Baud: r.Baud}
	for _, m := range r.Motors {
		cfg.Servos = append(cfg.Servos, servosim.Servo{ID: m.ID, Model: m.Model.Name})
	}
	return cfg
}

// calibration loads the robot's file; the simulated arm brings its own.
func (e *Edge) calibration() (servo.Calibration, error) {
	if e.cfg.Bus == device.Sim && e.cfg.Calibration == "" {
		return simCalibration(e.robot), nil
	}
	place := device.Place{Bus: e.cfg.Bus, Robot: e.robot, ID: e.cfg.ID, Calibration: e.cfg.Calibration}
	return place.Load()
}

// simCalibration is the simulated arm's: testdata/demo/so101.json holds the
// same, and a test compares them.
func simCalibration(r robot.Robot) servo.Calibration {
	c := servo.Calibration{}
	for _, m := range r.Motors {
		k := servo.MotorCalibration{ID: int(m.ID), RangeMax: m.Model.MaxRaw()}
		if m.Norm == robot.Range0100 {
			k.RangeMin, k.RangeMax = 1000, 3000
		}
		c[m.Name] = k
	}
	return c
}

// retryArm opens the arm. What is away may come: a port, its last user's end, an
// arm's power, a reply on a bad line.
func (e *Edge) retryArm(ctx context.Context, cfg servo.ArmConfig) (*servo.Arm, error) {
	cfg.Canceled = func() bool { return ctx.Err() != nil }
	giveUp, denied, why := e.clock.Now().Add(e.cfg.MaxOffline), rt.Instant(0), reason{what: "the bus"}
	for retry := e.deviceBackoff(); ; {
		arm, err := device.OpenArm(cfg)
		wait := retry.Next()
		switch now := e.clock.Now(); {
		case !errors.Is(err, servo.ErrPortDenied):
			denied = 0
		case denied == 0:
			denied = now
		}
		switch {
		case ctx.Err() != nil:
			if err == nil {
				arm.Close()
			}
			return nil, ctx.Err()
		case err == nil:
			return arm, nil
		case exit.Of(err) != exit.Absent || !mayCome(err, e.clock.Now().Sub(denied)) || e.clock.Now().Add(wait) > giveUp:
			return nil, err
		}
		why.tell(e, err)
		if err := e.rest(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// deviceBackoff spaces attempts to open a device.
func (e *Edge) deviceBackoff() backoff.Backoff {
	return backoff.Backoff{First: e.cfg.ReconnectInitialBackoff, Max: busBackoffMax}
}

// rest waits, but not beyond the end of ctx.
func (e *Edge) rest(ctx context.Context, d time.Duration) error {
	for end := e.clock.Now().Add(d); e.clock.Now() < end && ctx.Err() == nil; {
		e.clock.SleepUntil(min(end, e.clock.Now().Add(linkPoll)))
	}
	return ctx.Err()
}

// reason is why something is waited for: said at first and when it has changed,
// though not more often than reasonEvery.
type reason struct {
	what string
	said string
	at   rt.Instant
}

const reasonEvery = time.Second

func (r *reason) tell(e *Edge, err error) {
	now, text := e.clock.Now(), err.Error()
	if text == r.said || r.said != "" && now.Sub(r.at) < reasonEvery {
		return
	}
	e.log.Warn("waiting for "+r.what, "why", err)
	r.said, r.at = text, now
}

// udevTime is how long a new device may be without its group: the kernel makes the
// node, udev changes it.
const udevTime = 2 * time.Second

// mayCome reports whether waiting can cure what keeps an arm from being opened;
// denied is how long its port has been there without permission.
func mayCome(err error, denied time.Duration) bool {
	for _, cause := range []error{servo.ErrPortAbsent, servo.ErrPortBusy, servo.ErrMotorMissing, servo.ErrNoReply, servo.ErrGarbled} {
		if errors.Is(err, cause) {
			return true
		}
	}
	return errors.Is(err, servo.ErrPortDenied) && denied < udevTime
}

// measureBus refuses a rate that the bus cannot keep, and a bus that loses too many
// replies: the one is cured by another rate, the other by another cable. A simulated
// bus is slow only when this machine is busy, which no other rate would cure.
func (e *Edge) measureBus(ctx context.Context, arm *servo.Arm) error {
	limit := time.Duration(busShare * float64(e.cfg.period()))
	var all servo.Measurement
	for range measureTries {
		m, err := arm.Measure(measuredCycles)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return exit.With(exit.Absent, err)
		}
		all.Add(m)
		if all.Clean > 0 && all.P99 <= limit && arm.CheckLosses(all) == nil {
			break
		}
	}
	for again := 0; again < unfitAgain && e.simBus == nil && arm.CheckLosses(all) != nil; again++ {
		// A motor that is away for a moment loses replies like a bad cable.
		if err := e.rest(ctx, unfitRest); err != nil {
			return err
		}
		m, err := arm.Measure(measureTries * measuredCycles)
		if err != nil {
			return exit.With(exit.Absent, err)
		}
		all = m
	}
	unfit, want := arm.CheckLosses(all), limit.Round(10*time.Microsecond)
	slow := all.Clean == 0 || all.P99 > limit
	switch {
	case e.simBus != nil && (slow || unfit != nil):
		e.log.Warn("the simulated bus is slow: this machine is busy", "want", want, "why", unfit)
	case unfit != nil:
		return exit.With(exit.Absent, unfit)
	case slow:
		return exit.Errorf(exit.Config, "the bus takes %v per cycle (p99), at %v ticks per second it may take %v: set the adapter's latency timer to 1 ms, raise the servos' baud rate, or lower --fps (below the policy's rate with --fps-mismatch allow: the arm moves slower)",
			all.P99.Round(10*time.Microsecond), e.cfg.rate(), want)
	}
	if motors, cure := arm.LossReport(all); motors != "" && e.simBus == nil {
		e.log.Warn("the bus loses or spoils replies, which the run bears", "replies", motors, "damaged", all.Corrupt, "cure", cure)
	}
	return nil
}

// readyCameras refuses what can be no camera, and opens files, before anything
// else is opened.
func (e *Edge) readyCameras() (err error) {
	e.files = make([]opened, len(e.cfg.Cameras))
	for i := range e.cfg.Cameras {
		f := &e.files[i]
		if f.source, f.picked, err = capture.OpenFiles(&e.cfg.Cameras[i], e.clock); err != nil {
			return err
		}
	}
	return nil
}

// opened is a camera's source, and what it gives.
type opened struct {
	source camera.Source
	picked string
}

// openCameras opens every camera; one that is absent may come.
func (e *Edge) openCameras(ctx context.Context) error {
	e.onCloseUnlessStuck(e.closeCameras)
	d := capture.Encoding{Quality: e.cfg.JPEGQuality, Reencode: e.cfg.Reencode}
	for i := range e.cfg.Cameras {
		c := &e.cfg.Cameras[i]
		d.WantW, d.WantH = e.wanted(c.Name)
		p := capture.Options{
			Clock: e.clock, World: e.scenery, WantW: d.WantW, WantH: d.WantH, SimFPS: simCameraFPS, Decoded: d.Quality == 0 || d.Reencode,
		}
		source, picked := e.files[i].source, e.files[i].picked
		if source == nil {
			var err error
			if source, picked, err = e.retryCamera(ctx, c, p); err != nil {
				return err
			}
		}
		cam := capture.New(c.Name, source, c.MaxAge)
		e.cameras = append(e.cameras, cam)
		v, err := capture.NewEncoder(cam, c, d)
		if err != nil {
			return err
		}
		e.encoders = append(e.encoders, v)
		e.log.Info("camera "+c.Name, "picked", picked, "pictures", v.String())
	}
	return nil
}

// retryCamera opens a camera; a device that is not there yet may come.
func (e *Edge) retryCamera(ctx context.Context, c *capture.Config, p capture.Options) (camera.Source, string, error) {
	giveUp, why := e.clock.Now().Add(e.cfg.MaxOffline), reason{what: "camera " + c.Name}
	e.waitFor("camera " + c.Name)
	for retry := e.deviceBackoff(); ; {
		source, picked, err := capture.Open(c, p)
		wait := retry.Next()
		if !errors.Is(err, v4l2.ErrAbsent) || e.clock.Now().Add(wait) > giveUp {
			return source, picked, err
		}
		why.tell(e, err)
		if err := e.rest(ctx, wait); err != nil {
			return nil, "", err
		}
	}
}

// scenery is the world that simulated cameras show: that of the simulated arm,
// else one in which nothing moves.
func (e *Edge) scenery() capture.World {
	if e.world != nil {
		return e.world
	}
	if e.still == nil {
		e.still = device.World(e.cfg.Seed, e.clock)
	}
	return e.still
}

// wanted is the size of a camera's pictures that the policy was trained on, 0
// when it does not say.
func (e *Edge) wanted(name string) (w, h int) {
	for _, shape := range e.link.terms.shapes {
		if shape.Name == capture.ImageKey+name {
			return shape.W, shape.H
		}
	}
	return 0, 0
}

// settleIn asks the kernel and the runtime for quiet: everything is allocated
// by now. What is refused is said once and the run goes on.
func (e *Edge) settleIn() {
	if err := rt.LockMemory(); err != nil {
		e.log.Info("memory is not locked", "why", err)
	}
	e.heap.hold()
}

// niceOthers is for every thread but the tick's.
const niceOthers = -10
