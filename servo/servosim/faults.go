package servosim

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"edgert/rt"
)

// script is what a test has in store for one servo. Guarded by Bus.mu.
type script struct {
	mute                           bool
	drop, corrupt, truncate, stall int // replies still to spoil
	stallBy                        time.Duration
}

// Mute makes a servo deaf and dumb, as if unplugged, or brings it back.
func (b *Bus) Mute(id uint8, on bool) { b.script(id, func(s *servo) { s.faults.mute = on }) }

// DropReplies swallows the next n replies of a servo; it still obeys.
func (b *Bus) DropReplies(id uint8, n int) { b.script(id, func(s *servo) { s.faults.drop = n }) }

// CorruptReplies flips bits in the next n replies, so that their checksum is
// wrong.
func (b *Bus) CorruptReplies(id uint8, n int) { b.script(id, func(s *servo) { s.faults.corrupt = n }) }

// TruncateReplies cuts the next n replies in half.
func (b *Bus) TruncateReplies(id uint8, n int) {
	b.script(id, func(s *servo) { s.faults.truncate = n })
}

// DelayReplies holds back the next n replies, and all that follow on the line,
// by d.
func (b *Bus) DelayReplies(id uint8, n int, d time.Duration) {
	b.script(id, func(s *servo) { s.faults.stall, s.faults.stallBy = n, d })
}

// SetFault sets the error bits that a servo reports in every status packet, for
// instance 0x20 for an overload; an X servo reports an alert and has the bits in
// its hardware error register. The packet's data stays valid, and torque stays.
func (b *Bus) SetFault(id uint8, bits uint8) { b.script(id, func(s *servo) { s.forced = bits }) }

// Pin makes a sensor stick: whatever is measured, these bytes of the servo's
// memory read as data. No data lets all its sensors go.
func (b *Bus) Pin(id uint8, addr int, data ...byte) {
	b.script(id, func(s *servo) {
		if len(data) == 0 {
			s.pin = [memSize]pin{}
		}
		for i, v := range data {
			s.pin[addr+i] = pin{true, v}
		}
	})
}

// SetSupply sets the voltage of a servo's supply without load. Below some 4 V the
// servo goes out; it boots when the voltage is back.
func (b *Bus) SetSupply(id uint8, volts float64) {
	now := b.cfg.Clock.Now()
	b.script(id, func(s *servo) { s.supply(volts, now) })
}

// Power switches the supply of these servos, of all when none is named: without one
// a servo is silent and limp, and what was in its RAM is lost; with one it boots.
func (b *Bus) Power(on bool, ids ...uint8) {
	now := b.cfg.Clock.Now()
	b.alter(ids, func(s *servo) {
		volts := 0.0
		if on {
			volts = s.model.motor.volts
		}
		s.supply(volts, now)
	})
}

// SetVoltage lets a servo's supply be so many volts and outside of its limits,
// whatever they are: it goes on, and says so. 0 makes the supply whole again.
func (b *Bus) SetVoltage(id uint8, volts float64) {
	now := b.cfg.Clock.Now()
	b.script(id, func(s *servo) {
		s.health.low = volts > 0
		if volts == 0 {
			volts = s.model.motor.volts
		}
		s.supply(volts, now)
	})
}

// SetEncoder lets a servo's encoder lie; the zero fault ends that.
func (b *Bus) SetEncoder(id uint8, f EncoderFault) {
	now := b.cfg.Clock.Now()
	b.script(id, func(s *servo) { s.mislead(f, now) })
}

// Block puts something in the way of a servo's shaft, which then cannot pass the
// position at, as a client reads it: the motor presses against it, and its
// protection trips. An object (holds) falls, and is gone, when the motor has ceased
// to press on it: State.Holds, Counters.Dropped.
func (b *Bus) Block(id uint8, at int, holds bool) {
	now := b.cfg.Clock.Now()
	b.script(id, func(s *servo) { s.block(at, false, holds, now) })
}

// Wedge keeps a servo's shaft where it is.
func (b *Bus) Wedge(id uint8) {
	now := b.cfg.Clock.Now()
	b.script(id, func(s *servo) { s.block(0, true, false, now) })
}

// Unblock takes away what Block or Wedge has put in a shaft's way.
func (b *Bus) Unblock(id uint8) {
	now := b.cfg.Clock.Now()
	b.script(id, func(s *servo) { s.bar(obstacle{}, now) })
}

// Flood puts garbage on the line without end, so many bytes each millisecond, at
// most 64; 0 ends it. Servos still hear and answer.
func (b *Bus) Flood(bytes int) {
	b.mu.Lock()
	b.flood = min(max(bytes, 0), noiseMax)
	b.mu.Unlock()
	b.pty.wake()
}

// Overload trips a servo's overload protection, as a blocked joint does.
func (b *Bus) Overload(id uint8) {
	now := b.cfg.Clock.Now()
	b.script(id, func(s *servo) { s.overload(now) })
}

// PowerCycle switches the supply of all servos off and on: torque and all RAM are
// gone, and nobody answers before the boot is over.
func (b *Bus) PowerCycle() {
	now := b.cfg.Clock.Now()
	b.alter(nil, func(s *servo) { s.reboot(now) })
}

// Unplug pulls the adapter out: every client is hung up, and the link is gone.
// The servos stay as they are.
func (b *Bus) Unplug() error { return b.order(false) }

// Replug puts the adapter back: a new terminal at the same link.
func (b *Bus) Replug() error { return b.order(true) }

// Inject begins a script now, beside those that are under way; its times count
// from here.
func (b *Bus) Inject(s Script) error {
	if err := s.check(); err != nil {
		return err
	}
	b.mu.Lock()
	if len(b.timeline.lines)+len(s.Faults) > faultLinesMax {
		b.timeline.forget(b.cfg.Clock.Now())
	}
	if n := len(b.timeline.lines) + len(s.Faults); n > faultLinesMax {
		b.mu.Unlock()
		return fmt.Errorf("%w: %d faults under way, want at most %d", ErrScript, n, faultLinesMax)
	}
	more := newTimeline(s, len(b.servos), b.cfg.Clock.Now())
	b.timeline.lines = append(b.timeline.lines, more.lines...)
	b.mu.Unlock()
	b.pty.wake()
	return nil
}

// script changes every servo of this id.
func (b *Bus) script(id uint8, change func(*servo)) { b.alter([]uint8{id}, change) }

// alter changes every servo of these ids, all when there are none, and wakes the
// bus, because what is due next may be another thing then.
func (b *Bus) alter(ids []uint8, change func(*servo)) {
	now := b.cfg.Clock.Now()
	b.mu.Lock()
	for i := range b.servos {
		if s := &b.servos[i]; len(ids) == 0 || slices.Contains(ids, s.mem[s.t.at.id]) {
			change(s)
			s.look(now)
		}
	}
	b.mu.Unlock()
	b.pty.wake()
}

// fault is what happens to one reply.
type fault struct {
	kind kind
	by   time.Duration
	n    int
	seed uint64
}

// dice returns the i-th number of this fault.
//
//rt:noalloc
func (f fault) dice(i int) uint64 { return mix(f.seed + uint64(i)) }

// mix is a finalizer: neighbouring numbers become unrelated ones.
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

// takeFault uses up one fault for a reply that is due.
//
//rt:noalloc
func (b *Bus) takeFault(servo int, now rt.Instant) (f fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &b.servos[servo].faults
	switch {
	case c.drop > 0:
		c.drop--
		f.kind = kindDrop
	case c.corrupt > 0:
		c.corrupt--
		f.kind = kindGarble
	case c.truncate > 0:
		c.truncate--
		f.kind = kindTruncate
	case c.stall > 0:
		c.stall--
		f.kind, f.by = kindStall, c.stallBy
	default:
		if f = b.timeline.draw(servo, &b.servos[servo], now); f.kind == kindNone {
			return f
		}
	}
	s := &b.servos[servo]
	b.note(now, f.kind, s.mem[s.t.at.id])
	return f
}

// Injected is one fault that has happened.
type Injected struct {
	At   rt.Instant
	Kind string // as in a script
	ID   uint8  // of the servo; 0 for the whole bus
}

const injectedMax = 256

// note keeps an entry of what was injected. Guarded by mu.
//
//rt:noalloc
func (b *Bus) note(at rt.Instant, k kind, id uint8) {
	n := b.counters.faults.Add(1) - 1
	b.injected[n%injectedMax] = Injected{at, kindNames[k], id}
}

// Injected returns the newest faults, at most 256, oldest first.
func (b *Bus) Injected() (all []Injected) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.counters.faults.Load()
	for i := n - min(n, injectedMax); i < n; i++ {
		all = append(all, b.injected[i%injectedMax])
	}
	return all
}

// counters are written by the wire's goroutine and read by anyone.
type counters struct {
	requests, replies, badChecksums, garbage                 atomic.Uint64
	wrongBaud, ignored, collisions, overflow, faults, forged atomic.Uint64
}

// Counters is what the bus has seen since Open.
type Counters struct {
	Requests     uint64 // intact frames from the client
	Replies      uint64 // status packets sent
	BadChecksums uint64 // frames left unanswered for their checksum
	GarbageBytes uint64 // bytes that belonged to no intact frame
	WrongBaud    uint64 // requests that no servo could hear at the client's baud rate
	Ignored      uint64 // intact frames that no servo obeys
	Collisions   uint64 // replies of two servos with one id
	Overflow     uint64 // bytes lost because the client does not read
	Faults       uint64 // scripted faults that have happened
	Forged       uint64 // spoiled replies whose checksum fits: no client can know
	Dropped      uint64 // objects that a joint held and let fall
}

// Counters returns the counts so far.
func (b *Bus) Counters() Counters {
	c := &b.counters
	b.mu.Lock()
	defer b.mu.Unlock()
	dropped := uint64(0)
	for i := range b.servos {
		dropped += b.servos[i].dropped
	}
	return Counters{Dropped: dropped,
		Requests: c.requests.Load(), Replies: c.replies.Load(), BadChecksums: c.badChecksums.Load(),
		GarbageBytes: c.garbage.Load(), WrongBaud: c.wrongBaud.Load(), Ignored: c.ignored.Load(),
		Collisions: c.collisions.Load(), Overflow: c.overflow.Load(), Faults: c.faults.Load(), Forged: c.forged.Load(),
	}
}
