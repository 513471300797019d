package hotplug

import (
	"errors"
	"fmt"
	"time"

	"edgert/servo"
)

// TorqueOff switches every motor's torque off; while the arm is away it tries to
// open the port once. After the last tick only.
func (a *Arm) TorqueOff() error {
	a.closing.Store(true)
	a.openMu.Lock()
	defer a.openMu.Unlock()
	a.closed = true
	if arm := a.fresh.Swap(nil); arm != nil {
		a.close()
		a.arm.Store(arm)
		a.cause = 0
	}
	if a.cause == 0 {
		err := a.arm.Load().TorqueOff()
		if err == nil || !a.arm.Load().Lost() {
			return err
		}
		a.cause = Unplugged // just now
	}
	a.close()
	port, err := servo.OpenPortWait(a.cfg.Path, a.cfg.Robot.Baud, a.clock, nil)
	if err != nil {
		return fmt.Errorf("%w: the bus is away: %w", servo.ErrTorque, err)
	}
	err = servo.Release(servo.NewBus(port, a.cfg.Robot.Baud, a.cfg.Robot.Protocol(), a.clock), a.cfg.Robot)
	return errors.Join(err, port.Close())
}

// RetryTorqueOff's limits: a motor that is silent for a moment, or unplugged, may
// be under torque.
const (
	torqueOffFor   = 3 * time.Second
	torqueOffRetry = 50 * time.Millisecond
)

// RetryTorqueOff repeats TorqueOff until every motor has confirmed it, for
// torqueOffFor or until hurry; the error is the last attempt's.
func (a *Arm) RetryTorqueOff(hurry func() bool) error {
	for end := a.clock.Now().Add(torqueOffFor); ; a.clock.SleepUntil(a.clock.Now().Add(torqueOffRetry)) {
		if err := a.TorqueOff(); err == nil || a.clock.Now() >= end || hurry() {
			return err
		}
	}
}
