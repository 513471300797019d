// Package plug keeps an arm alive over a pulled plug and a servo that restarts:
// the tick goes on without it, while Keep opens it again beside the tick, by the
// same path, and hands it over.
//
// Opening again is the whole bring-up: every motor is found and checked, and
// what a restarted servo has forgotten is written anew. Torque is not touched;
// whoever drives the arm arms it again from where it stands.
package plug

import (
	"sync"
	"sync/atomic"
	"time"

	"edgert/rt"
	"edgert/servo"
)

const (
	poll       = 20 * time.Millisecond // between looks whether there is something to do
	retryFirst = 50 * time.Millisecond // between attempts to open
	retryLast  = 500 * time.Millisecond
	learning   = 20 // cycles measured before the tick gets the arm
)

// Cause is why an arm was away.
type Cause uint8

const (
	Unplugged Cause = iota + 1 // the adapter was gone; the motors kept torque and settings
	Restarted                  // a motor has forgotten its mark, or is limp although it was switched on: its supply was away, or it let go by itself
)

func (c Cause) String() string {
	if c == Restarted {
		return "a motor had restarted"
	}
	return "the adapter was unplugged"
}

// Arm is an arm that comes back.
type Arm struct {
	cfg    servo.ArmConfig
	period time.Duration
	clock  rt.Clock

	// Owner: tick thread.
	cause  Cause  // while away
	back   Cause  // once after it came back
	joints uint32 // whose motors have restarted, while away and with back

	// Any thread.
	arm     atomic.Pointer[servo.Arm] // the tick's; a dead one while away
	away    atomic.Bool               // Keep has work
	noticed uint32                    // joints found restarted while the arm was opened again, in all attempts; handed over with fresh
	fresh   atomic.Pointer[servo.Arm] // opened, for the tick to take
	past    atomic.Pointer[servo.Stats]
	events  atomic.Uint64         // times that the arm came back
	why     atomic.Pointer[error] // the last failed attempt

	leaving atomic.Bool // nothing needs to be opened any more
	opening sync.Mutex  // held while a port is opened or given back for good
	ended   bool        // under opening
}

// New takes an open arm and the configuration it was opened with.
func New(arm *servo.Arm, cfg servo.ArmConfig, clock rt.Clock) *Arm {
	p := &Arm{cfg: cfg, clock: clock}
	p.cfg.Cycle, p.cfg.Halted, p.cfg.Marked, p.cfg.Noticed = arm.Stats().Cycle, p.leaving.Load, true, &p.noticed
	p.arm.Store(arm)
	p.past.Store(&servo.Stats{})
	return p
}

// SetPeriod is servo.Arm's, for this arm and those that it becomes. Before the first
// tick.
func (p *Arm) SetPeriod(period time.Duration) {
	p.period = period
	p.arm.Load().SetPeriod(period)
}

// Read is servo.Arm's. While the arm is away every joint is stale and nothing is
// touched; when it is back, the first Read takes it up, see Returned.
//
// Owner: tick thread.
//
//rt:noalloc
func (p *Arm) Read(dst []float32, deadline rt.Instant) (stale uint32) {
	if p.cause != 0 {
		if p.fresh.Load() == nil {
			return 1<<len(dst) - 1
		}
		p.takeUp()
	}
	arm := p.arm.Load()
	stale = arm.Read(dst, deadline)
	gone := arm.Restarted() | arm.TorqueGone()
	p.joints |= gone
	switch {
	case arm.Lost():
		p.leave(Unplugged)
	case gone != 0:
		p.leave(Restarted)
	}
	return stale
}

//rt:noalloc
func (p *Arm) leave(why Cause) {
	p.cause = why
	p.away.Store(true)
}

// takeUp happens once for each return; what it allocates is the arm's new start.
func (p *Arm) takeUp() {
	old := p.arm.Load().Stats()
	sum := *p.past.Load()
	sum.Add(old)
	p.past.Store(&sum)
	arm := p.fresh.Swap(nil)
	p.arm.Store(arm)
	p.back, p.cause = p.cause, 0
	p.joints |= arm.Restarted() | p.noticed
	p.noticed = 0
	if p.joints != 0 {
		p.back = Restarted // while the adapter was unplugged, perhaps
	}
	p.events.Add(1)
}

// Returned reports once that the arm is back, why it was away, 0 when it was not,
// and the joints whose motors have restarted: torque is as it was found, and the
// motors want to be armed.
//
// Owner: tick thread.
//
//rt:noalloc
func (p *Arm) Returned() (why Cause, restarted uint32) {
	why, restarted = p.back, p.joints
	if why == 0 {
		return 0, 0
	}
	p.back, p.joints = 0, 0
	return why, restarted
}

// Arm returns the arm of now, a dead one while it is away.
func (p *Arm) Arm() *servo.Arm { return p.arm.Load() }

// Away reports whether there is no arm now.
//
// Owner: tick thread.
//
//rt:noalloc
func (p *Arm) Away() bool { return p.cause != 0 }

// The rest of what a tick needs. While the arm is away nothing is sent, nothing
// waits and nothing is held.

//rt:noalloc
func (p *Arm) Write(goal []float32, joints uint32) {
	if p.cause == 0 {
		p.arm.Load().Write(goal, joints)
	}
}

//rt:noalloc
func (p *Arm) Place(dst []float32) { p.arm.Load().Place(dst) }

//rt:noalloc
func (p *Arm) Goals(dst []float32) { p.arm.Load().Goals(dst) }

//rt:noalloc
func (p *Arm) Relax(joints uint32) {
	if p.cause == 0 {
		p.arm.Load().Relax(joints)
	}
}

//rt:noalloc
func (p *Arm) Doubt() { p.arm.Load().Doubt() }

//rt:noalloc
func (p *Arm) Doubted() uint32 { return p.arm.Load().Doubted() }

//rt:noalloc
func (p *Arm) Strayed() uint32 { return p.arm.Load().Strayed() }

//rt:noalloc
func (p *Arm) Effort(joint int, since rt.Instant) float64 {
	return p.arm.Load().Effort(joint, since)
}

//rt:noalloc
func (p *Arm) Attend(joints uint32) { p.arm.Load().Attend(joints) }

//rt:noalloc
func (p *Arm) Moving() uint32 { return p.arm.Load().Moving() }

//rt:noalloc
func (p *Arm) Outside() uint32 { return p.arm.Load().Outside() }

// Rescue and Rescued are servo.Arm's.
func (p *Arm) Rescue() error {
	if p.cause != 0 {
		return nil
	}
	return p.arm.Load().Rescue()
}

func (p *Arm) Rescued() error {
	if p.cause != 0 {
		return nil
	}
	return p.arm.Load().Rescued()
}

//rt:noalloc
func (p *Arm) BusWait() rt.Wait {
	if p.cause != 0 {
		return rt.Wait{}
	}
	return p.arm.Load().BusWait()
}

//rt:noalloc
func (p *Arm) Complaints() servo.Complaints { return p.arm.Load().Complaints() }

//rt:noalloc
func (p *Arm) Warned() uint32 { return p.arm.Load().Warned() }

// Climate is servo.Arm's. Any thread may call it.
//
//rt:noalloc
func (p *Arm) Climate() (hottest, volts float64) { return p.arm.Load().Climate() }

//rt:noalloc
func (p *Arm) Asleep() bool { return p.cause == 0 && p.arm.Load().Asleep() }

func (p *Arm) Fatal() error { return p.arm.Load().Fatal() }

// ArmStep is servo.Arm's.
func (p *Arm) ArmStep(deadline rt.Instant, joints uint32) (armed bool, err error) {
	if p.cause != 0 {
		return false, nil
	}
	return p.arm.Load().ArmStep(deadline, joints)
}

// Stats sums up all arms that this one was. Any thread may call it.
func (p *Arm) Stats() servo.Stats {
	s := *p.past.Load()
	s.Add(p.arm.Load().Stats())
	return s
}

// Returns counts how often the arm came back. Any thread may call it.
func (p *Arm) Returns() uint64 { return p.events.Load() }

// Why is the last failed attempt to open the arm again, nil when there was none
// since it was there. Any thread may call it.
func (p *Arm) Why() error {
	if err := p.why.Load(); err != nil {
		return *err
	}
	return nil
}

// Keep opens the arm again whenever it is away, until ending is set. It runs on
// a thread of its own.
func (p *Arm) Keep(ending *atomic.Bool) {
	wait := retryFirst
	for !ending.Load() {
		p.clock.SleepUntil(p.clock.Now().Add(poll))
		if !p.away.Load() {
			continue
		}
		if p.reopen() {
			wait = retryFirst
			continue
		}
		for end := p.clock.Now().Add(wait); p.clock.Now() < end && !ending.Load(); {
			p.clock.SleepUntil(p.clock.Now().Add(min(poll, end.Sub(p.clock.Now()))))
		}
		wait = min(2*wait, retryLast)
	}
}

// reopen gives the dead port back first: the kernel keeps a device's number
// while anybody has it open, and would call the one that comes back otherwise.
func (p *Arm) reopen() bool {
	p.opening.Lock()
	defer p.opening.Unlock()
	if p.ended {
		return false
	}
	p.close()
	var arm *servo.Arm
	err := p.there()
	if err == nil {
		arm, err = servo.OpenArm(p.cfg)
	}
	if err == nil {
		var m servo.Measured
		if m, err = arm.Measure(learning); err == nil && m.Clean == 0 {
			err = arm.Unfit(m) // a line that loses some replies will do
		}
		if err != nil {
			arm.Close()
		}
	}
	if err != nil {
		p.why.Store(&err)
		return false
	}
	arm.SetPeriod(p.period)
	p.why.Store(nil)
	p.away.Store(false)
	p.fresh.Store(arm)
	return true
}

// there looks quickly whether every motor answers: the bring-up asks the silent
// ones with more patience than a motor that boots deserves.
func (p *Arm) there() error {
	port, err := servo.OpenPort(p.cfg.Path, p.cfg.Robot.Baud)
	if err != nil {
		return err
	}
	defer port.Close()
	bus := servo.NewBus(port, p.cfg.Robot.Baud, p.cfg.Robot.Protocol(), p.clock)
	bus.Hasty(2, poll)
	for _, id := range p.cfg.Robot.IDs() {
		if _, err := bus.Ping(id); err != nil {
			return err
		}
	}
	return nil
}

// close closes the dead arm's port once.
func (p *Arm) close() {
	if arm := p.arm.Load(); arm != nil && !arm.Closed() {
		arm.Close()
	}
}

// Close gives the port back and leaves torque as it is.
func (p *Arm) Close() error {
	p.leaving.Store(true)
	p.opening.Lock()
	defer p.opening.Unlock()
	p.ended = true
	if arm := p.fresh.Swap(nil); arm != nil {
		arm.Close()
	}
	p.close()
	return nil
}
