package plug

import (
	"errors"
	"fmt"
	"time"

	"edgert/servo"
)

// TorqueOff makes every motor limp, also when the arm is away: then it looks
// for the port once more. The tick has ended.
func (p *Arm) TorqueOff() error {
	p.leaving.Store(true)
	p.opening.Lock()
	defer p.opening.Unlock()
	p.ended = true
	if arm := p.fresh.Swap(nil); arm != nil {
		p.close()
		p.arm.Store(arm)
		p.cause = 0
	}
	if p.cause == 0 {
		err := p.arm.Load().TorqueOff()
		if err == nil || !p.arm.Load().Lost() {
			return err
		}
		p.cause = Unplugged // just now
	}
	p.close()
	port, err := servo.OpenFreedPort(p.cfg.Path, p.cfg.Robot.Baud, p.clock, nil)
	if err != nil {
		return fmt.Errorf("%w: the bus is away: %w", servo.ErrTorque, err)
	}
	err = servo.Release(servo.NewBus(port, p.cfg.Robot.Baud, p.cfg.Robot.Protocol(), p.clock), p.cfg.Robot)
	return errors.Join(err, port.Close())
}

// How long an end waits for motors that do not confirm that they are limp, or for
// their port: whoever is silent for a moment, or unplugged, may be under torque.
const (
	letGoFor   = 3 * time.Second
	letGoEvery = 50 * time.Millisecond
)

// LetGo is TorqueOff until every motor has confirmed it, for some time, or until
// nobody has the patience; the error is the last one's.
func (p *Arm) LetGo(hurry func() bool) error {
	for end := p.clock.Now().Add(letGoFor); ; p.clock.SleepUntil(p.clock.Now().Add(letGoEvery)) {
		if err := p.TorqueOff(); err == nil || p.clock.Now() >= end || hurry() {
			return err
		}
	}
}
