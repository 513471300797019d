// Package servosim is a Feetech bus without hardware: any number of STS3215
// servos behind a pseudo-terminal that a driver opens like /dev/ttyACM0.
//
// It is written from the datasheet alone and shares no line with the driver that
// it tests, so that the two are independent readings of the same paper. Vendor
// SDKs accept it.
//
// One goroutine on its own thread is the wire. It reads what the client wrote,
// waits until the last byte of a request would have left a real wire at the
// configured baud rate, lets the servos act, and makes each reply readable when
// its last byte would have arrived. What the joints do is a Plant's business:
// the bus carries goals there and encoder counts back.
//
// The memory table, the frame format and the rules (what is answered, what is
// ignored, what needs the lock) are in table.go, frame.go and servo.go.
package servosim

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"edgert/rt"
)

// Plant is what the servos' shafts are connected to. joint counts the servos
// from 0 in the order of Config.IDs; raw is in encoder counts, 0 to 4095. A call
// must not block. now never goes backwards.
type Plant interface {
	// Goal says where the servo shall go; it moves only while torque is on.
	Goal(now rt.Instant, joint int, raw int)
	Present(now rt.Instant, joint int) (raw int)
	Torque(now rt.Instant, joint int, on bool)
}

// Config describes a bus. The zero value, with a clock, is an SO-101's.
type Config struct {
	IDs     []uint8  // default 1 to 6
	Model   uint16   // default 777, the STS3215
	Baud    int      // bits per second, default 1,000,000; one that register 6 can express
	Unpaced bool     // replies at once, not at the speed of the wire
	Plant   Plant    // default: servos that turn 270 degrees a second, starting in the middle
	Clock   rt.Clock // default rt.KernelClock
	Link    string   // a symbolic link to make to the terminal; none when empty

	// Turnaround is how long a servo takes from the end of a request, or of its
	// predecessor's reply, to the first bit of its own. Default 50 us.
	Turnaround time.Duration
	// GoalTakesTorque makes a goal written with torque off turn torque on. The
	// datasheets do not say which; the default leaves torque off.
	GoalTakesTorque bool
	// ChainStops ends a sync read at a silent servo. By default the next servo
	// answers after the silent one's slot has passed.
	ChainStops bool
}

const (
	idMax             = 252
	servosMax         = 253
	defaultTurnaround = 50 * time.Microsecond
)

// ErrLink means that Config.Link exists and is not a symbolic link.
var ErrLink = errors.New("servosim: link path is taken")

// Bus is a running bus.
type Bus struct {
	// Constant after Open.
	cfg  Config
	pty  pty
	done chan struct{} // closed when the wire's goroutine has ended

	closing atomic.Bool
	once    sync.Once

	// Owner: the wire's goroutine.
	wire wire

	mu     sync.Mutex
	servos []servo // guarded by mu; never held while sleeping or writing

	counters counters // atomic
}

// Open makes the terminal and starts the bus. Close ends it.
func Open(cfg Config) (*Bus, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	b := &Bus{cfg: cfg, done: make(chan struct{})}
	if err := b.pty.open(cfg.Baud); err != nil {
		return nil, fmt.Errorf("servosim: %w", err)
	}
	if cfg.Link != "" {
		if err := link(b.pty.name, cfg.Link); err != nil {
			b.pty.close()
			return nil, err
		}
	}
	now := cfg.Clock.Now()
	b.servos = make([]servo, len(cfg.IDs))
	for i, id := range cfg.IDs {
		b.servos[i].powerUp(&b.cfg, i, id, now)
	}
	go b.run()
	return b, nil
}

func (c *Config) check() error {
	if c.IDs == nil {
		c.IDs = []uint8{1, 2, 3, 4, 5, 6}
	}
	c.IDs = slices.Clone(c.IDs)
	if len(c.IDs) == 0 || len(c.IDs) > servosMax {
		return fmt.Errorf("servosim: got %d servos, want 1 to %d", len(c.IDs), servosMax)
	}
	for _, id := range c.IDs {
		if id > idMax {
			return fmt.Errorf("servosim: got servo id %d, want 0 to %d", id, idMax)
		}
	}
	if c.Model == 0 {
		c.Model = modelSTS3215
	}
	if c.Baud == 0 {
		c.Baud = bauds[0]
	}
	if !slices.Contains(bauds[:], c.Baud) {
		return fmt.Errorf("servosim: got %d baud, want one of %v", c.Baud, bauds)
	}
	if c.Turnaround == 0 {
		c.Turnaround = defaultTurnaround
	}
	if c.Clock == nil {
		c.Clock = rt.KernelClock()
	}
	if c.Plant == nil {
		c.Plant = newFreeShafts(len(c.IDs))
	}
	return nil
}

// Path returns the terminal's device node, which is what Link points to.
func (b *Bus) Path() string { return b.pty.name }

// Close unplugs the bus: it ends the goroutine, hangs up every client and
// removes the link. A second call does nothing.
func (b *Bus) Close() error {
	b.once.Do(func() {
		b.closing.Store(true)
		b.pty.wake()
		<-b.done
		b.pty.close()
		if b.cfg.Link != "" {
			unlink(b.pty.name, b.cfg.Link)
		}
	})
	return nil
}

// run is the wire, until Close.
func (b *Bus) run() {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	defer close(b.done)
	for !b.closing.Load() {
		n := b.pty.read(b.wire.room())
		if n < 0 {
			return
		}
		if n > 0 {
			b.receive(n)
		}
	}
}

// TorqueEnabled says for each servo, in the order of Config.IDs, whether it
// holds torque.
func (b *Bus) TorqueEnabled() []bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	on := make([]bool, len(b.servos))
	for i := range b.servos {
		on[i] = b.servos[i].mem[regTorque] == torqueOn
	}
	return on
}
