package servosim

import (
	"sync/atomic"
	"time"
)

// script is what a test has in store for one servo. Guarded by Bus.mu.
type script struct {
	mute                          bool
	drop, corrupt, truncate, late int // replies still to spoil
	lateBy                        time.Duration
}

type faultKind uint8

const (
	faultNone faultKind = iota
	faultDrop
	faultCorrupt
	faultTruncate
	faultLate
)

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
	b.script(id, func(s *servo) { s.faults.late, s.faults.lateBy = n, d })
}

// SetFault sets the error bits that a servo reports in every status packet, for
// instance 0x20 for an overload. The packet's data stays valid.
func (b *Bus) SetFault(id uint8, bits uint8) { b.script(id, func(s *servo) { s.fault = bits }) }

// PowerCycle switches the supply of all servos off and on: torque is gone, and
// what was written with the lock closed is forgotten.
func (b *Bus) PowerCycle() {
	now := b.cfg.Clock.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.servos {
		b.servos[i].restart(now)
	}
}

// script changes every servo of this id.
func (b *Bus) script(id uint8, change func(*servo)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.servos {
		if b.servos[i].mem[regID] == id {
			change(&b.servos[i])
		}
	}
}

// takeFault uses up one scripted fault for a reply that is due.
//
//rt:noalloc
func (b *Bus) takeFault(servo int) (faultKind, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := &b.servos[servo].faults
	kind := faultNone
	switch {
	case f.drop > 0:
		f.drop--
		kind = faultDrop
	case f.corrupt > 0:
		f.corrupt--
		kind = faultCorrupt
	case f.truncate > 0:
		f.truncate--
		kind = faultTruncate
	case f.late > 0:
		f.late--
		kind = faultLate
	default:
		return faultNone, 0
	}
	b.counters.faults.Add(1)
	return kind, f.lateBy
}

// counters are written by the wire's goroutine and read by anyone.
type counters struct {
	requests, replies, badChecksums, garbage         atomic.Uint64
	wrongBaud, ignored, collisions, overflow, faults atomic.Uint64
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
}

// Counters returns the counts so far.
func (b *Bus) Counters() Counters {
	c := &b.counters
	return Counters{
		Requests: c.requests.Load(), Replies: c.replies.Load(), BadChecksums: c.badChecksums.Load(),
		GarbageBytes: c.garbage.Load(), WrongBaud: c.wrongBaud.Load(), Ignored: c.ignored.Load(),
		Collisions: c.collisions.Load(), Overflow: c.overflow.Load(), Faults: c.faults.Load(),
	}
}
