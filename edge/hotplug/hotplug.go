// Package hotplug reconnects an arm whose adapter was unplugged or whose servos restarted. The tick
// goes on without the arm (Read). KeepOpen, on a thread of its own, opens the arm again at the same
// path, and the next Read adopts it.
//
// Opening again repeats the whole bring-up: it checks the motors and writes lost settings. It does not change the
// torque. The tick arms the motors again at their measured positions.
package hotplug

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/backoff"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
)

const (
	pollInterval   = 20 * time.Millisecond // interval at which KeepOpen checks the arm
	retryFirst     = 50 * time.Millisecond // first pause between two attempts to open
	retryLast      = 500 * time.Millisecond
	warmUpCycles   = 20              // cycles measured before the tick gets the arm
	torqueOffFor   = 3 * time.Second // RetryTorqueOff tries for this long: a silent motor may be under torque
	torqueOffRetry = 50 * time.Millisecond
)

// Cause is the reason why an arm was away.
type Cause uint8

const (
	Unplugged Cause = iota + 1 // the adapter was gone; the motors kept torque and settings
	Restarted                  // a motor has lost the mark in its RAM, or its torque is off although it was switched on
)

func (c Cause) String() string {
	if c == Restarted {
		return "a motor had restarted"
	}
	return "the adapter was unplugged"
}

// values are the methods of servo.Arm that return values, or note values for the next Read. They work while the arm is
// away, too.
type values interface {
	Positions(dst []float32)
	Jumped() robot.Joints
	Goals(dst []float32)
	Reactions() servo.Reactions
	Complaint(joint int) (servo.Fault, int)
	Effort(joint int, since rt.Instant) float64
	Push(joint int, since rt.Instant) (way float32, known bool)
	Wheel(joint int) (goal, present int)
	OutOfRange() robot.Joints
	MovedWhileArming() robot.Joints
	Unchecked() robot.Joints
	GoalMismatch() robot.Joints
	Warned() robot.Joints
	Recheck()
	Prioritize(joints robot.Joints)
	Fatal() error
	Raws(dst []int)
	Outside(slack int) robot.Joints
}

// Arm is a servo.Arm that is reconnected. While it is away nothing is sent, and methods return the arm's last values.
// Of the methods of a servo.Arm it has only those that a tick needs. Owner: tick thread, except for methods and fields
// marked otherwise.
type Arm struct {
	cfg    servo.ArmConfig
	period time.Duration
	pause  rt.Pause // Pause of the tick's arm
	clock  rt.Clock
	// serial number of the adapter at which the arm was first opened; empty: not known
	adapter string
	beside  Parts // arms of the same robot, this arm included; set before KeepOpen

	// Owner: tick thread.
	values                   // the same arm as the field arm
	arm         *servo.Arm   // closed while away
	cause       Cause        // cause of the absence, while the arm is away
	reconnected Cause        // cause of the last absence, until Reconnected reads it; then 0
	restarted   robot.Joints // joints whose motors restarted during the absence, for Reconnected

	// Any thread.
	current       atomic.Pointer[servo.Arm]   // the same arm as the field arm
	away          atomic.Bool                 // KeepOpen must open the arm
	restartedInit robot.Joints                // joints whose restart an opening has found; the tick reads it with fresh
	fresh         atomic.Pointer[servo.Arm]   // newly opened arm for the tick to adopt; nil: there is no such arm
	retired       atomic.Pointer[servo.Stats] // summed counters of the previous arms
	openErr       atomic.Pointer[error]       // error of the last attempt to open; nil after a success

	closing atomic.Bool // no arm may be opened any more
	openMu  sync.Mutex  // held while a port is opened, or closed for good
	closed  bool        // guarded by openMu
}

// New returns an Arm for arm, which is open. cfg is the configuration that opened it.
func New(arm *servo.Arm, cfg servo.ArmConfig, clock rt.Clock) *Arm {
	a := &Arm{cfg: cfg, clock: clock, adapter: adapterAt(cfg.Path)}
	a.cfg.Cycle = arm.Stats().Cycle
	a.cfg.Canceled = a.closing.Load
	a.cfg.Reopened = true
	a.cfg.Restarted = &a.restartedInit
	a.use(arm)
	a.retired.Store(&servo.Stats{})
	return a
}

func (a *Arm) use(arm *servo.Arm) {
	a.arm, a.values = arm, arm
	arm.SetPause(a.pause)
	a.current.Store(arm)
}

// Path returns the serial port at which the arm was opened.
func (a *Arm) Path() string { return a.cfg.Path }

// SetPeriod calls servo.Arm.SetPeriod of this arm and of each arm that is opened later. Call it before the first tick;
// a later call must pass the same period.
func (a *Arm) SetPeriod(period time.Duration) {
	if period == a.period {
		return // KeepOpen may be reading a.period
	}
	a.period = period
	a.arm.SetPeriod(period)
}

// SetPause calls servo.Arm.SetPause of this arm and of each arm that is opened later. Call it before the first tick.
func (a *Arm) SetPause(pause rt.Pause) {
	a.pause = pause
	a.arm.SetPause(pause)
}

// Read calls servo.Arm.Read. While the arm is away Read returns every joint as stale. The first Read after an absence
// adopts the reopened arm: see Reconnected. Owner: tick thread.
//
//rt:noalloc
func (a *Arm) Read(dst []float32, deadline rt.Instant) (stale robot.Joints) {
	if a.cause != 0 {
		if a.fresh.Load() == nil {
			return 1<<len(dst) - 1
		}
		a.adopt()
	}
	stale = a.arm.Read(dst, deadline)
	gone := a.arm.Restarted() | a.arm.TorqueLost()
	a.restarted |= gone
	switch {
	case a.arm.Lost():
		a.disconnect(Unplugged)
	case gone != 0:
		a.disconnect(Restarted)
	}
	return stale
}

//rt:noalloc
func (a *Arm) disconnect(why Cause) {
	a.cause = why
	a.away.Store(true)
}

// adopt replaces the tick's arm by the one from KeepOpen. It allocates once per reconnect.
func (a *Arm) adopt() {
	sum := a.Stats()
	a.retired.Store(&sum)
	arm := a.fresh.Swap(nil)
	a.use(arm)
	a.reconnected, a.cause = a.cause, 0
	a.restarted |= arm.Restarted() | a.restartedInit
	a.restartedInit = 0
	if a.restarted != 0 {
		a.reconnected = Restarted // the restart counts, even if the adapter was unplugged, too
	}
}

// Reconnected returns, once after an absence, its cause and the joints whose motors have restarted, one bit each;
// otherwise 0. Reopening has not changed the torque. Owner: tick thread.
//
//rt:noalloc
func (a *Arm) Reconnected() (why Cause, restarted robot.Joints) {
	why, restarted = a.reconnected, a.restarted
	if why == 0 {
		return 0, 0
	}
	a.reconnected, a.restarted = 0, 0
	return why, restarted
}

// Arm returns the current servo.Arm, which is closed while the arm is away. Any thread may call it.
func (a *Arm) Arm() *servo.Arm { return a.current.Load() }

// Away reports whether the arm is away now. Owner: tick thread.
//
//rt:noalloc
func (a *Arm) Away() bool { return a.cause != 0 }

// These methods of servo.Arm do nothing while the arm is away, except Extremes.

//rt:noalloc
func (a *Arm) Write(goal []float32, joints robot.Joints) {
	if a.cause == 0 {
		a.arm.Write(goal, joints)
	}
}

//rt:noalloc
func (a *Arm) DisableTorque(joints robot.Joints) {
	if a.cause == 0 {
		a.arm.DisableTorque(joints)
	}
}

//rt:noalloc
func (a *Arm) RenewTorque(joints robot.Joints) {
	if a.cause == 0 {
		a.arm.RenewTorque(joints)
	}
}

func (a *Arm) Rescue() error {
	if a.cause != 0 {
		return nil
	}
	return a.arm.Rescue()
}

func (a *Arm) EndRescue() error {
	if a.cause != 0 {
		return nil
	}
	return a.arm.EndRescue()
}

//rt:noalloc
func (a *Arm) BusWait() rt.Wait {
	if a.cause != 0 {
		return rt.Wait{}
	}
	return a.arm.BusWait()
}

// Any thread may call it.
//
//rt:noalloc
func (a *Arm) Extremes() (hottest, volts float64) { return a.current.Load().Extremes() }

//rt:noalloc
func (a *Arm) BusWatchdogFired() bool { return a.cause == 0 && a.arm.BusWatchdogFired() }

func (a *Arm) ArmStep(deadline rt.Instant, joints robot.Joints) (armed bool, err error) {
	if a.cause != 0 {
		return false, nil
	}
	return a.arm.ArmStep(deadline, joints)
}

// Stats returns the sum over all opened arms. Any thread may call it.
//
//rt:noalloc
func (a *Arm) Stats() servo.Stats {
	s := *a.retired.Load()
	s.Add(a.current.Load().Stats())
	return s
}

// OpenError returns the error of the last attempt to reopen, nil after a success. Any thread may
// call it.
func (a *Arm) OpenError() error {
	if err := a.openErr.Load(); err != nil {
		return *err
	}
	return nil
}

// KeepOpen reopens the arm whenever it is away, until ending is set, and logs each new reason why the arm is not back.
// It has a thread of its own.
func (a *Arm) KeepOpen(ending *atomic.Bool, log *slog.Logger) {
	retry := backoff.Backoff{First: retryFirst, Max: retryLast}
	told := ""
	for !ending.Load() {
		a.clock.SleepUntil(a.clock.Now().Add(pollInterval))
		if !a.away.Load() {
			continue
		}
		if a.reopen() {
			retry.Reset()
			told = ""
			continue
		}
		if err := a.OpenError(); err != nil && err.Error() != told {
			told = err.Error()
			log.Warn("waiting for the arm to come back", "why", err, "bus", a.cfg.Path)
		}
		for end := a.clock.Now().Add(retry.Next()); a.clock.Now() < end && !ending.Load(); {
			a.clock.SleepUntil(a.clock.Now().Add(min(pollInterval, end.Sub(a.clock.Now()))))
		}
	}
}

// reopen tries to open the arm. It closes the dead port first, so that the adapter can get the same
// name again.
func (a *Arm) reopen() bool {
	a.openMu.Lock()
	defer a.openMu.Unlock()
	if a.closed {
		return false
	}
	a.close()
	var arm *servo.Arm
	err := a.probe()
	if err == nil {
		arm, err = servo.OpenArm(a.cfg)
	}
	if err == nil {
		var m servo.Measurement
		if m, err = arm.Measure(warmUpCycles); err == nil && m.Clean == 0 {
			err = arm.CheckLosses(m) // CheckLosses accepts a line that loses some replies
		}
		if err == nil {
			err = arm.HoldTriggers() // opening a leader switches the torque of its triggers off
		}
		if err != nil {
			arm.Close()
		}
	}
	if err != nil {
		a.openErr.Store(&err)
		return false
	}
	arm.SetPeriod(a.period)
	a.openErr.Store(nil)
	a.away.Store(false)
	a.fresh.Store(arm)
	return true
}

// probe pings every motor, with short timeouts: motors that boot do not answer yet.
func (a *Arm) probe() error {
	port, err := servo.OpenPort(a.cfg.Path, a.cfg.Robot.Baud)
	if err != nil {
		return err
	}
	defer port.Close()
	if err := a.exchanged(); err != nil {
		return err
	}
	bus := servo.NewBus(port, a.cfg.Robot.Baud, a.cfg.Robot.Protocol(), a.clock)
	bus.SetRetry(2, pollInterval)
	for _, id := range a.cfg.Robot.IDs() {
		if err := bus.Ping(id); err != nil {
			return err
		}
	}
	return nil
}

// adapterAt is device.Adapter, except in tests.
var adapterAt = device.Adapter

// exchanged returns an error while the port leads to the adapter of another arm of the robot. After a fault of the hub
// two ports may have exchanged their names, and opening an arm does not detect this if both arms have the same
// calibration.
func (a *Arm) exchanged() error {
	now := adapterAt(a.cfg.Path)
	for _, other := range a.beside {
		if now != "" && now == other.adapter && now != a.adapter {
			return fmt.Errorf("%s leads to the adapter that %s had (serial number %s): plug the adapters in as "+
				"they were, or start again with the ports as they are now", a.cfg.Path, other.cfg.Path, now)
		}
	}
	return nil
}

func (a *Arm) close() {
	if arm := a.current.Load(); !arm.Closed() {
		arm.Close()
	}
}

// TorqueOff switches off the torque of every motor. Call it only after the last tick. It may open
// the port.
func (a *Arm) TorqueOff() error {
	a.closing.Store(true)
	a.openMu.Lock()
	defer a.openMu.Unlock()
	a.closed = true
	if arm := a.fresh.Swap(nil); arm != nil {
		a.close()
		a.use(arm)
		a.cause = 0
	}
	if a.cause == 0 {
		err := a.arm.TorqueOff()
		if err == nil || !a.arm.Lost() {
			return err
		}
		a.cause = Unplugged // the adapter was unplugged just now
	}
	a.close()
	port, err := servo.OpenPortWait(a.cfg.Path, a.cfg.Robot.Baud, a.clock, nil)
	if err != nil {
		return fmt.Errorf("%w: the bus is away: %w", servo.ErrTorque, err)
	}
	err = servo.Release(servo.NewBus(port, a.cfg.Robot.Baud, a.cfg.Robot.Protocol(), a.clock), a.cfg.Robot)
	return errors.Join(err, port.Close())
}

// RetryTorqueOff repeats TorqueOff until it succeeds, torqueOffFor is over, or hurry returns true.
func (a *Arm) RetryTorqueOff(hurry func() bool) error {
	for end := a.clock.Now().Add(torqueOffFor); ; a.clock.SleepUntil(a.clock.Now().Add(torqueOffRetry)) {
		if err := a.TorqueOff(); err == nil || a.clock.Now() >= end || hurry() {
			return err
		}
	}
}

// ReleaseTriggers switches the torque of a leader's triggers off. A trigger is a spring that holds no load, so an error
// does no harm. Call it only after the last Read.
func (a *Arm) ReleaseTriggers() {
	if !a.Away() && len(a.Arm().Triggers()) > 0 {
		_ = a.TorqueOff()
	}
}

// Close closes the port and leaves the torque unchanged.
func (a *Arm) Close() {
	a.closing.Store(true)
	a.openMu.Lock()
	defer a.openMu.Unlock()
	a.closed = true
	if arm := a.fresh.Swap(nil); arm != nil {
		arm.Close()
	}
	a.close()
}
