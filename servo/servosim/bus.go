// Package servosim is a servo bus without hardware: any number of Feetech or
// Dynamixel servos behind a pseudo-terminal that a driver opens like
// /dev/ttyACM0.
//
// It is written from the datasheets alone and shares no line with the driver
// that it tests, so that the two are independent readings of the same paper.
// The vendors' SDKs and LeRobot's bus classes accept it.
//
// One goroutine on its own thread is the wire. It reads what the client wrote,
// waits until the last byte of a request would have left a real wire at the
// configured baud rate, lets the servos act, and makes each reply readable when
// its last byte would have arrived. What the joints do is a Plant's business:
// the bus carries goals there and encoder counts back.
//
// A request goes from the terminal (pty_linux.go, link.go) through the line (wire.go),
// its frame (frame.go) and its parameters (request.go) to the servos it names
// (instruct.go); there it reads registers (registers.go) or writes them (write.go),
// which moves the shaft (drive.go; package motor has the physics) and may trip a
// protection (health.go). The reply goes back through send.go, which delays and spoils
// what the faults say, by call (faults.go) or by script (script.go). watch.go reports
// every write and every change to a test. Series and models are data: feetech.go,
// dynamixel.go, model.go.
package servosim

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"edgert/rt"
	"edgert/servo/servosim/motor"
)

// Plant is what the servos' shafts are connected to. joint counts the servos
// from 0 in the order of Config.Servos; raw is in the servo's encoder counts, 0
// to 4095 (1023 with SCS and AX servos), and may go beyond where a servo counts
// turns. A call must not block. now never goes backwards.
type Plant interface {
	// Goal says where the servo shall go; it moves only while torque is on.
	Goal(now rt.Instant, joint int, raw int)
	Present(now rt.Instant, joint int) (raw int)
	Torque(now rt.Instant, joint int, on bool)
}

// Turner is a Plant that reports how fast its shafts turn, in counts per second. For
// any other Plant the present velocity is computed from how far a shaft has come
// since the reading before, which may be long ago. All plants outside of tests are
// Turners; a test's need not be.
type Turner interface {
	Plant
	Speed(now rt.Instant, joint int) float64
}

// Sinker is a Plant whose joints have weight: without torque they turn towards a
// place to rest at, at so many counts per second; 0: they stay where they are.
// motor.Ideal and sim.Live are Sinkers; the motors of motor.Fitted have a load.
type Sinker interface {
	Plant
	Sink(now rt.Instant, joint int, rest int, speed float64)
}

// Weight is what a joint does that was driven once and is not any more.
type Weight struct {
	Rest  int     // the encoder count that it sinks to
	Speed float64 // counts per second; 0: it stays
}

// Servo is one motor of a bus.
type Servo struct {
	ID    uint8
	Model string // one of Models
}

// Config describes a bus. The zero value, with a clock, is an SO-101's.
type Config struct {
	Servos []Servo // default: IDs, all of one Model
	IDs    []uint8 // default 1 to 6
	Model  string  // default sts3215

	Baud       int          // bits per second, default 1,000,000; one that the servos know
	Unpaced    bool         // replies at once, not at the speed of the wire
	Plant      Plant        // default: shafts that turn 270 degrees a second, starting in the middle
	Fitted     bool         // without a Plant: motors and a control loop fitted to measurements instead
	Loads      []motor.Load // per servo, on a fitted bus
	Weights    []Weight     // per servo; default: of six servos on built-in shafts that sink, the second to fourth do
	Weightless bool         // no default Weights
	Noise      int          // counts by which an encoder may be off, either way
	Clock      rt.Clock     // default rt.KernelClock
	Link       string       // a symbolic link to make to the terminal, of which no other running bus has made one; none when empty
	Faults     Script

	// Watch gets what happens to the servos, see Event. Default: none.
	Watch func(*Event)

	// Latency is the adapter's: it delivers what has arrived every so often, as
	// an FTDI chip does (16 ms) or a full-speed USB port (1 ms). Default: at once.
	Latency time.Duration
	// BootTime is how long a servo is silent after a reboot. Default 0.8 s, X 0.4 s.
	BootTime time.Duration
	// Echo makes the adapter return what it is sent.
	Echo bool
	// NoFast makes X servos have a firmware that does not know fast reads.
	NoFast bool

	// What the datasheets leave open.
	GoalLeavesTorque bool    // Feetech: a goal written with torque off leaves it off; by default it turns torque on
	OverloadYields   bool    // Feetech: a goal that takes the load away ends an overload; by default only a second without load or torque off does
	BootGoalZero     bool    // Feetech: the goal register is 0 after power-up; by default it is where the shaft stands
	BootTorque       []uint8 // ids of the servos whose torque is on after power-up; by default none

	// Worked out by check.
	models     []*model
	codes      []uint8
	joints     []motor.Joint
	turnaround time.Duration // from the end of a request, or of the reply before, to the first bit of a reply, without the return delay
	motors     *motor.Fitted // the Plant, where it is one
}

const (
	idMax       = 252
	servosMax   = 253
	turnaround  = 50 * time.Microsecond
	turnaroundX = 25 * time.Microsecond
)

// armJoints is how many joints the arms have whose weight is known.
const armJoints = 6

// ArmWeights returns what the joints of a small arm do without torque, from its
// base to its gripper: shoulder_lift, elbow_flex and wrist_flex sink at 60 degrees
// a second until they hang. counts are a turn's.
func ArmWeights(counts int) []Weight {
	w := Weight{Rest: counts / 4, Speed: float64(counts) / 6}
	return []Weight{{}, w, w, w, {}, {}}
}

// Reasons why Open fails.
var (
	ErrLink = errors.New("servosim: no link") // Config.Link cannot be made, is something else than a symbolic link, or is that of a bus that runs
	ErrBaud = errors.New("servosim: no such speed")
)

// Bus is a running bus.
type Bus struct {
	// Constant after Open.
	cfg          Config
	protocol2    bool          // protocol 2.0
	silence      time.Duration // that ends an unfinished frame
	done         chan struct{} // closed when the wire's goroutine has ended
	plugRequests chan plugRequest
	release      func() // removes Link; nil without one

	closing atomic.Bool
	once    sync.Once

	// Owner: the wire's goroutine.
	wire wire
	pty  pty
	in   bool // the adapter is plugged in

	mu       sync.Mutex // never held while sleeping or writing
	servos   []servo    // guarded by mu
	rail     rail       // guarded by mu
	timeline timeline   // guarded by mu
	plugged  bool       // guarded by mu: what the script wants
	flood    int        // guarded by mu: bytes of garbage a millisecond
	path     string     // guarded by mu

	counters counters // atomic
}

// Open makes the terminal and starts the bus. Close ends it.
func Open(cfg Config) (*Bus, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	b := &Bus{cfg: cfg, protocol2: cfg.models[0].table.series.protocol2(), silence: interByteMax,
		done: make(chan struct{}), plugRequests: make(chan plugRequest, 1), plugged: true, in: true}
	if b.protocol2 {
		b.silence = interByteMaxX
	}
	if err := b.openTerminal(); err != nil {
		return nil, err
	}
	now := cfg.Clock.Now()
	if b.cfg.Plant == nil {
		if b.cfg.Fitted {
			b.cfg.motors = motor.NewFitted(cfg.joints, now)
			b.cfg.Plant = b.cfg.motors
		} else {
			b.cfg.Plant = motor.NewIdeal(cfg.joints)
		}
	}
	b.timeline = newTimeline(cfg.Faults, len(cfg.Servos), now)
	b.servos = make([]servo, len(cfg.Servos))
	for i := range b.servos {
		b.servos[i].powerUp(&b.cfg, &b.rail, i, now)
	}
	go b.run()
	return b, nil
}

func (c *Config) check() error {
	if err := c.fill(); err != nil {
		return err
	}
	first := c.models[0].table.series
	for i, m := range c.models {
		if s := m.table.series; s.protocol2() != first.protocol2() || s.feetech() != first.feetech() {
			return fmt.Errorf("servosim: %s and %s do not speak the same protocol; want one on a bus", c.models[0].name, m.name)
		}
		code, ok := m.table.code(c.Baud)
		if !ok {
			return fmt.Errorf("%w: got %d baud, want one of %v for %s", ErrBaud, c.Baud, m.table.rates(), m.name)
		}
		c.codes[i] = code
	}
	c.turnaround = turnaround
	if first.protocol2() {
		c.turnaround = turnaroundX
	}
	if c.Unpaced {
		c.turnaround = 0
	}
	c.joints = joints(c.models, c.Loads)
	if c.Plant == nil && !c.Fitted && c.Weights == nil && !c.Weightless && len(c.models) == armJoints {
		c.Weights = ArmWeights(c.models[0].table.counts)
	}
	if c.Clock == nil {
		c.Clock = rt.KernelClock()
	}
	return c.Faults.check()
}

func (c *Config) fill() error {
	if c.IDs == nil {
		c.IDs = []uint8{1, 2, 3, 4, 5, 6}
	}
	c.Servos = slices.Clone(c.Servos)
	if c.Servos == nil {
		for _, id := range c.IDs {
			c.Servos = append(c.Servos, Servo{id, cmp.Or(c.Model, "sts3215")})
		}
	}
	if len(c.Servos) == 0 || len(c.Servos) > servosMax {
		return fmt.Errorf("servosim: got %d servos, want 1 to %d", len(c.Servos), servosMax)
	}
	c.models, c.codes = nil, make([]uint8, len(c.Servos))
	for _, s := range c.Servos {
		if s.ID > idMax {
			return fmt.Errorf("servosim: got servo id %d, want 0 to %d", s.ID, idMax)
		}
		m, err := modelByName(s.Model)
		if err != nil {
			return err
		}
		c.models = append(c.models, m)
	}
	if c.Baud == 0 {
		c.Baud = 1_000_000
	}
	return nil
}

// Path returns the terminal's device node, which is what Link points to. It is
// another one after the bus was unplugged and plugged in again.
func (b *Bus) Path() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.path
}

// Close unplugs the bus: it ends the goroutine, hangs up every client and
// removes the link. A second call does nothing.
func (b *Bus) Close() error {
	b.once.Do(func() {
		b.closing.Store(true)
		b.pty.wake()
		<-b.done
		b.pty.close()
		if b.cfg.Link != "" {
			unlink(b.path, b.cfg.Link)
			b.release()
		}
	})
	return nil
}

// run is the wire, until Close.
func (b *Bus) run() {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	defer close(b.done)
	for !b.closing.Load() {
		n := b.pty.read(b.wire.room(), b.pause())
		if n < 0 {
			return
		}
		if n > 0 {
			b.receive(n)
			continue
		}
		select {
		case o := <-b.plugRequests:
			b.mu.Lock()
			b.plugged = o.plug
			b.mu.Unlock()
			o.done <- b.plug()
		default:
			b.plug()
		}
	}
}

// pause does what is due and returns how long nothing else is; negative for
// ever.
//
//rt:noalloc
func (b *Bus) pause() time.Duration {
	at := b.next()
	if at == forever {
		return -1
	}
	now := b.cfg.Clock.Now()
	b.sendDelayed(now)
	b.tick(now)
	b.sendFlood(now)
	if b.plugPending() {
		return 0
	}
	if at = b.next(); at == forever {
		return -1
	}
	return max(at.Sub(now), 0)
}

// next returns when something is due that no client asks for.
//
//rt:noalloc
func (b *Bus) next() rt.Instant {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := min(b.timeline.next(), b.nextFlood())
	for i := range b.servos {
		s := &b.servos[i]
		if fires, armed := s.watchdog(); armed {
			at = min(at, fires)
		}
		if s.booting {
			at = min(at, s.silentUntil)
		}
	}
	for i := range b.wire.out.delayedLen {
		at = min(at, b.wire.out.delayed[i].at)
	}
	return at
}
