// Package servosim is a servo bus without hardware: any number of Feetech or Dynamixel servos on a
// pseudo-terminal that a driver opens like /dev/ttyACM0.
//
// It is written from the datasheets alone and shares no code with the driver under test, so that
// the simulator and the driver are independent implementations of the same documents. The vendors'
// SDKs and LeRobot's bus classes accept it.
//
// One goroutine on its own thread is the wire. It reads the client's bytes, waits until the last
// byte of a request would have left a real wire at the configured baud rate, lets the servos act,
// and makes each reply readable when its last byte would have arrived. A Plant moves the joints:
// the bus passes goals to it and reads encoder counts from it.
//
// A request goes from the terminal (pty_linux.go, link.go) through the line (wire.go), its frame
// (frame.go) and its parameters (request.go) to the servos that it names (instruct.go). There it
// reads registers (registers.go) or writes them (write.go), which moves the shaft (drive.go;
// package motor has the physics) and may trip a protection (health.go). The reply goes back through
// send.go, which delays and damages it as the faults demand, by call (faults.go) or by script
// (script.go). watch.go reports every write and every change to a test. Series and models are data:
// feetech.go, dynamixel.go, model.go.
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

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/sim/motor"
)

// Plant is the mechanism on the servos' shafts. joint counts the servos from 0 in the order of
// Config.Servos; raw is in the servo's encoder counts, 0 to 4095 (1023 for AX servos), and may be
// beyond that range for a servo that counts turns. A call must not block. now never decreases.
type Plant interface {
	// Goal sets the goal of a joint. The joint moves there only under torque.
	Goal(now rt.Instant, joint, raw int)
	Present(now rt.Instant, joint int) (raw int)
	Torque(now rt.Instant, joint int, on bool)
}

// Turner is a Plant that reports the speed of its shafts, in counts per second. For a Plant that is
// not a Turner, the present velocity is computed from the travel since the last reading, which may
// be long ago. All plants are Turners, except some in tests.
type Turner interface {
	Plant
	Speed(now rt.Instant, joint int) float64
}

// Sinker is a Plant whose joints have weight. Without torque a joint turns towards the count rest, at the given speed
// in counts per second. With speed 0 the joint stays. motor.Ideal and sim.Live are Sinkers. motor.Fitted is not,
// because its motors have a Load.
type Sinker interface {
	Plant
	Sink(now rt.Instant, joint, rest int, speed float64)
}

// Weight is the motion of a joint that has lost its torque.
type Weight struct {
	Rest  int     // encoder count to which the shaft sinks
	Speed float64 // counts per second; 0: the shaft stays
}

// Servo is one servo of a bus.
type Servo struct {
	ID    uint8
	Model string // one of Models
}

// Config describes a bus. The zero value describes the bus of an SO-101.
type Config struct {
	Servos []Servo // default: a servo of Model for each of IDs
	IDs    []uint8 // default 1 to 6
	Model  string  // default sts3215

	Baud    int   // bits per second, one of the servos' rates; default 1,000,000
	Unpaced bool  // replies come at once, not at the speed of the wire
	Plant   Plant // default: shafts that turn 270 degrees a second, starting in the middle
	Fitted  bool  // without a Plant: motors fitted to measurements (motor.Fitted), not the default
	// Number of servos, counted from the last, that are fitted motors as a base's wheels. The Plant
	// moves the other servos.
	Wheels     int
	Loads      []motor.Load // for each servo that is a fitted motor
	Weights    []Weight     // for each servo; default: of six servos on built-in shafts, the second to fourth sink
	Weightless bool         // true: no default Weights
	Noise      int          // largest deviation of an encoder, in counts in either direction
	Clock      rt.Clock     // default rt.KernelClock
	Link       string       // path of a symbolic link to the terminal, for this running bus alone; empty: no link
	Faults     Script

	// The bus calls Watch with each event of a servo, see Event. Default: no call.
	Watch func(*Event)

	// Latency is the period of an adapter that delivers the arrived bytes once per period, as an
	// FTDI chip (16 ms) or a full-speed USB port (1 ms) does. Default: each byte is delivered at
	// once.
	Latency time.Duration
	// BootTime is the silence of a servo after a reboot. Default 0.8 s, X 0.4 s.
	BootTime time.Duration
	// Echo makes the adapter return the bytes that it receives.
	Echo bool
	// NoFast gives X servos a firmware without fast reads.
	NoFast bool

	// Behaviour that the datasheets leave open.
	GoalLeavesTorque bool // Feetech: a goal leaves torque off if torque was off; by default the goal switches torque on
	// Feetech: a goal that removes the load ends an overload at once. By default an overload ends
	// after a second without load, or when torque is switched off.
	OverloadYields bool
	BootGoalZero   bool    // Feetech: the goal register is 0 after power-up; by default it is the shaft's position
	BootTorque     []uint8 // ids of the servos with torque on after power-up; by default no servo

	// Set by check.
	models []*model
	codes  []uint8
	joints []motor.Joint
	// time from the end of a request, or of the previous reply, to the first bit of a reply,
	// without the return delay
	turnaround time.Duration
	motors     *motor.Fitted // the fitted motors; nil: there are no fitted motors
	fitted     int           // the first servo that is a fitted motor
}

const (
	idMax        = 252
	servosMax    = 253
	wheelInertia = 0.05 // kg m2: a wheel's share of the inertia of a base of some kilograms
	turnaround   = 50 * time.Microsecond
	turnaroundX  = 25 * time.Microsecond
)

// armJoints is the number of servos with which a bus has default Weights.
const armJoints = 6

// ArmWeights returns the weights of a small arm's joints, from its base to its gripper: without
// torque shoulder_lift, elbow_flex and wrist_flex sink at 60 degrees a second until they hang.
// counts is the number of counts of a turn.
func ArmWeights(counts int) []Weight {
	w := Weight{Rest: counts / 4, Speed: float64(counts) / 6}
	return []Weight{{}, w, w, w, {}, {}}
}

// The reasons why Open fails.
var (
	// ErrLink means that Config.Link cannot be created, is a file other than a symbolic link, or
	// belongs to a running bus.
	ErrLink = errors.New("servosim: no link")
	ErrBaud = errors.New("servosim: no such speed")
)

// Bus is a running bus.
type Bus struct {
	// Constant after Open.
	cfg          Config
	protocol2    bool          // protocol 2.0
	silence      time.Duration // silence that ends an unfinished frame
	done         chan struct{} // closed when the wire's goroutine has ended
	plugRequests chan plugRequest
	release      func() // frees the lock on Link; nil without a Link

	closing atomic.Bool
	once    sync.Once

	// Owner: the wire's goroutine.
	wire wire
	pty  pty
	in   bool // the adapter is plugged in

	mu       sync.Mutex // never held while sleeping or writing
	servos   []*servo   // guarded by mu
	rail     rail       // guarded by mu
	timeline timeline   // guarded by mu
	plugged  bool       // guarded by mu; true: the script demands a plugged-in adapter
	flood    int        // guarded by mu: bytes of garbage per millisecond
	path     string     // guarded by mu

	counters counters // atomic
}

// Open creates the terminal and starts the bus. Close ends it.
func Open(cfg Config) (*Bus, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	b := &Bus{
		cfg:          cfg,
		protocol2:    cfg.models[0].table.protocol2(),
		silence:      interByteMax,
		done:         make(chan struct{}),
		plugRequests: make(chan plugRequest, 1),
		plugged:      true,
		in:           true,
	}
	if b.protocol2 {
		b.silence = interByteMaxX
	}
	if err := b.openTerminal(); err != nil {
		return nil, err
	}
	now := cfg.Clock.Now()
	b.cfg.fillPlant(now)
	b.timeline = newTimeline(cfg.Faults, len(cfg.Servos), now)
	for i := range cfg.Servos {
		s := new(servo)
		s.powerUp(&b.cfg, &b.rail, i, now)
		b.servos = append(b.servos, s)
	}
	go b.run()
	return b, nil
}

// fillPlant sets the default Plant if c has none. It creates fitted motors for the wheels, or with
// c.Fitted for all joints.
func (c *Config) fillPlant(now rt.Instant) {
	c.fitted = len(c.joints) - c.Wheels
	if c.Plant == nil && c.Fitted {
		c.fitted = 0
	}
	if c.fitted < len(c.joints) {
		c.motors = motor.NewFitted(c.joints, now)
	}
	switch {
	case c.Plant == nil && c.Fitted:
		c.Plant = c.motors
	case c.Plant == nil:
		c.Plant = motor.NewIdeal(c.joints)
	}
	if c.motors != nil && c.Plant != Plant(c.motors) {
		c.Plant = &wheeled{c.Plant, c.motors, c.fitted}
	}
}

func (c *Config) check() error {
	if err := c.fill(); err != nil {
		return err
	}
	first := c.models[0].table
	for i, m := range c.models {
		if t := m.table; t.protocol2() != first.protocol2() || t.feetech() != first.feetech() {
			return fmt.Errorf("servosim: %s and %s have different protocols; one bus has one protocol",
				c.models[0].name, m.name)
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
	for i := max(len(c.joints)-c.Wheels, len(c.Loads)); i < len(c.joints); i++ {
		c.joints[i].Load.Inertia = wheelInertia
	}
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
	if c.Wheels < 0 || c.Wheels > len(c.Servos) {
		return fmt.Errorf("servosim: got %d wheels among %d servos", c.Wheels, len(c.Servos))
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

// Path returns the path of the terminal, to which Link points. The path changes when the bus is
// unplugged and plugged in again.
func (b *Bus) Path() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.path
}

// Close unplugs the bus: it ends the goroutine, hangs up every client and removes the link. A
// second call does nothing.
func (b *Bus) Close() {
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
}

// run is the wire's goroutine, until Close.
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

// pause does the work that is due and returns the time until the next work. It returns a negative
// time when no work is scheduled.
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

// next returns the instant of the next work that does not need a client's request.
//
//rt:noalloc
func (b *Bus) next() rt.Instant {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := min(b.timeline.next(), b.nextFlood())
	for _, s := range b.servos {
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
