package servosim

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

// Mute disconnects a servo from the bus, or connects it again.
func (b *Bus) Mute(id uint8, on bool) {
	b.alter([]uint8{id}, func(s *servo, _ rt.Instant) { s.mute = on })
}

// SetFault sets the error bits that a servo reports in every status packet, for instance 0x20 for
// an overload; an X servo reports an alert and has the bits in its hardware error register. The
// packet's data stay valid, and torque stays on.
func (b *Bus) SetFault(id, bits uint8) {
	b.alter([]uint8{id}, func(s *servo, _ rt.Instant) { s.forced = bits })
}

// SetSupply sets the voltage of a servo's supply without load. Below about 4 V a 7.4 V servo stops;
// it boots when the voltage returns.
func (b *Bus) SetSupply(id uint8, volts float64) {
	b.alter([]uint8{id}, func(s *servo, now rt.Instant) { s.supply(volts, now) })
}

// Power switches the supply of the servos with these ids on or off; without ids, of all servos. Without
// supply a servo is silent and limp and loses its RAM. When the supply returns, the servo boots.
func (b *Bus) Power(on bool, ids ...uint8) {
	b.alter(ids, func(s *servo, now rt.Instant) {
		volts := 0.0
		if on {
			volts = s.model.motor.Volts
		}
		s.supply(volts, now)
	})
}

// Block puts an obstacle in the way of a servo's shaft, which then cannot pass the obstacle: the motor presses against
// it, and its protection trips. The parameter at is the obstacle's position, as a client reads it. If holds is true,
// the obstacle is an object, which falls when the motor stops pressing on it; see State.Holds and Counters.Dropped.
func (b *Bus) Block(id uint8, at int, holds bool) {
	b.alter([]uint8{id}, func(s *servo, now rt.Instant) { s.block(at, false, holds, now) })
}

// PowerCycle switches the supply of all servos off and on. They lose their torque and RAM, and do
// not answer until the boot is over.
func (b *Bus) PowerCycle() { b.alter(nil, func(s *servo, now rt.Instant) { s.reboot(now) }) }

// Unplug removes the adapter: every client is hung up, and the link is removed. The servos keep
// their state.
func (b *Bus) Unplug() error { return b.requestPlug(false) }

// Replug plugs the adapter in again. The bus has a new terminal, at the same link.
func (b *Bus) Replug() error { return b.requestPlug(true) }

// Inject starts a script now, in addition to the running scripts. The times of the new script count from now.
func (b *Bus) Inject(s Script) error {
	if err := s.check(); err != nil {
		return err
	}
	b.mu.Lock()
	if len(b.timeline.lines)+len(s.Faults) > faultLinesMax {
		now := b.cfg.Clock.Now()
		// removes the lines that have ended
		b.timeline.lines = slices.DeleteFunc(b.timeline.lines, func(l line) bool {
			return l.ended || l.left == 0 || l.kind <= kindGarble && now >= l.until
		})
	}
	if n := len(b.timeline.lines) + len(s.Faults); n > faultLinesMax {
		b.mu.Unlock()
		return fmt.Errorf("%w: %d faults under way, want at most %d", errScript, n, faultLinesMax)
	}
	more := newTimeline(s, len(b.servos), b.cfg.Clock.Now())
	b.timeline.lines = append(b.timeline.lines, more.lines...)
	b.mu.Unlock()
	b.pty.wake()
	return nil
}

// alter changes the servos with these ids, or all servos without ids, and wakes the bus, because
// the next scheduled work may have changed.
func (b *Bus) alter(ids []uint8, change func(*servo, rt.Instant)) {
	now := b.cfg.Clock.Now()
	b.mu.Lock()
	for _, s := range b.servos {
		if len(ids) == 0 || slices.Contains(ids, s.mem[s.at.id]) {
			change(s, now)
			s.emitChange(now)
		}
	}
	b.mu.Unlock()
	b.pty.wake()
}

// fault is the fault that one reply gets.
type fault struct {
	kind kind
	by   time.Duration
	n    int
	seed uint64
}

//rt:noalloc
func (f fault) dice(i int) uint64 { return mix(f.seed + uint64(i)) }

// mix is the finalizer of SplitMix64, which maps neighbouring numbers to unrelated numbers.
//
// Source: SplitMix64.
//
//rt:noalloc
func mix(v uint64) uint64 {
	v += 0x9E3779B97F4A7C15
	v = (v ^ v>>30) * 0xBF58476D1CE4E5B9
	v = (v ^ v>>27) * 0x94D049BB133111EB
	return v ^ v>>31
}

// counters are written by the wire's goroutine; any goroutine may read them.
type counters struct {
	requests, replies, badChecksums, garbage        atomic.Uint64
	wrongBaud, collisions, overflow, faults, forged atomic.Uint64
}

// Counters counts the bus's events since Open.
type Counters struct {
	Requests     uint64 // intact frames from the client
	Replies      uint64 // status packets sent
	BadChecksums uint64 // frames without an answer because of their checksum
	GarbageBytes uint64 // bytes that belonged to no intact frame
	WrongBaud    uint64 // requests that no servo received, because of the client's baud rate
	Collisions   uint64 // replies of two servos with the same id
	Overflow     uint64 // bytes lost because the client does not read
	Faults       uint64 // scripted faults that have happened
	Forged       uint64 // damaged replies with a fitting checksum, which no client can detect
	Dropped      uint64 // objects that a joint held and dropped
}

// Counters returns the counts so far.
func (b *Bus) Counters() Counters {
	c := &b.counters
	b.mu.Lock()
	defer b.mu.Unlock()
	dropped := uint64(0)
	for _, s := range b.servos {
		dropped += s.dropped
	}
	return Counters{
		Dropped:      dropped,
		Requests:     c.requests.Load(),
		Replies:      c.replies.Load(),
		BadChecksums: c.badChecksums.Load(),
		GarbageBytes: c.garbage.Load(),
		WrongBaud:    c.wrongBaud.Load(),
		Collisions:   c.collisions.Load(),
		Overflow:     c.overflow.Load(),
		Faults:       c.faults.Load(),
		Forged:       c.forged.Load(),
	}
}
