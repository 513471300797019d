package servo

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"time"

	"edgert/rt"
)

// Port is a serial line. It never blocks but in Wait.
type Port interface {
	// Write sends all of p or fails.
	Write(p []byte) (int, error)
	// Read returns what has arrived, n = 0 when nothing has. It fails with
	// ErrPortLost when the device is gone.
	Read(p []byte) (int, error)
	// Wait returns when there is something to read or the timeout has passed;
	// it may return earlier for no reason.
	Wait(timeout time.Duration) error
	Close() error
}

// Time on the line. A byte takes ten bit times.
const (
	settleMax   = 2 * time.Millisecond    // bounds what MeasureCycles may learn
	replyGap    = 50 * time.Microsecond   // what a servo leaves before it answers; 50 to 100 us were measured with delay 0
	lossWait    = 2500 * time.Microsecond // beyond the computed end, for a reply that may be lost
	ackWait     = 20 * time.Millisecond   // off the tick: an EEPROM write stalls a servo for milliseconds
	hushTime    = 100 * time.Millisecond  // silence after which a late reply is not expected any more
	quietMax    = 500 * time.Millisecond  // for the line to fall silent after a failed transaction
	doubtFor    = time.Second             // after a failed transaction: read everything twice
	drains      = 2                       // exchanges after an unclean one that begin with a drain: its late replies may come after the first
	maxDrain    = 4096                    // bytes thrown away at once before a line counts as noise
	maxAttempts = 4                       // of an acknowledged transaction: a host under load is late a few times in a row
)

// Bus is one half-duplex line of servos: it sends an instruction and collects
// the status frames that answer it.
//
// Owner: one thread at a time. The counters may be read by any thread.
type Bus struct {
	// Constant after NewBus.
	port   Port
	clock  rt.Clock
	byteNs float64

	// Owner: the calling thread.
	tx       []byte
	rx       [512]byte
	one      *group        // of the acknowledged transactions
	dirty    int           // exchanges before which to drain, because an earlier one may have left bytes
	heard    bool          // the last exchange brought bytes
	settle   time.Duration // how long after the computed end replies are really there, see MeasureCycles
	waited   time.Duration // for the bus, during the last gather
	patience time.Duration // for an acknowledgement
	attempts int           // of an acknowledged transaction
	hush     time.Duration // silence that ends a failed transaction
	doubt    rt.Instant    // until when a read counts only when it comes twice
	lost     bool          // the port has failed

	// Atomic.
	corrupt, late, retries atomic.Uint64
}

// NewBus returns a bus on an open port that runs at baud.
func NewBus(port Port, baud int, clock rt.Clock) *Bus {
	return &Bus{
		port:     port,
		clock:    clock,
		byteNs:   10 * float64(time.Second) / float64(baud),
		tx:       make([]byte, 0, maxLen+4),
		patience: ackWait,
		attempts: maxAttempts,
		hush:     hushTime,
		one:      &group{all: 1, data: make([]byte, maxLen), faults: make([]Fault, 1)},
		dirty:    drains, // whoever had the port before may have left bytes
	}
}

// group is a set of servos that answer one instruction with params bytes each.
type group struct {
	request  []byte
	slot     [256]int8 // index by id, -1 for servos that are not meant
	params   int
	wire     time.Duration // computed time from the first byte out to the last byte in
	all      uint32        // bit i is set for every index
	answered uint32        // bit i is set when index i has answered
	data     []byte        // params bytes per index
	faults   []Fault       // the error byte per index
}

func (b *Bus) newGroup(addr byte, count int, ids []ID) *group {
	g := &group{
		request: AppendSyncRead(nil, addr, count, ids),
		params:  count,
		all:     uint32(1)<<len(ids) - 1,
		data:    make([]byte, count*len(ids)),
		faults:  make([]Fault, len(ids)),
	}
	g.mean(ids...)
	g.wire = b.wireTime(len(g.request), len(ids), count)
	return g
}

// mean sets who is expected to answer.
func (g *group) mean(ids ...ID) {
	for i := range g.slot {
		g.slot[i] = -1
	}
	for i, id := range ids {
		g.slot[id] = int8(i)
	}
}

// param returns what index i answered.
func (g *group) param(i int) []byte { return g.data[i*g.params : (i+1)*g.params] }

// wireTime computes how long a request and its replies occupy the line.
func (b *Bus) wireTime(request, replies, params int) time.Duration {
	size := request + replies*(frameOverhead+params)
	return time.Duration(float64(size)*b.byteNs) + time.Duration(replies)*replyGap
}

// gather sends the group's request and collects its replies, by id and in any
// order, until all are there, the line was silent for patience beyond the
// computed end or the last byte, or the deadline has come. It returns the bits
// of those that did not answer.
//
// When several servos answered the last time and none does now, the host or the
// adapter is late rather than all of them gone: then it waits for the first byte
// until the deadline.
//
// In the usual case it sleeps to the computed end, polls once and reads once;
// waking up for every reply would cost more than the replies are worth.
//
//rt:noalloc
func (b *Bus) gather(g *group, patience time.Duration, deadline rt.Instant) (missing uint32) {
	g.answered = 0
	b.waited = 0
	if b.dirty > 0 {
		b.drain()
		b.dirty--
	}
	start := b.clock.Now()
	if !b.send(g.request) {
		b.dirty = drains
		return g.all
	}
	end := start.Add(g.wire + b.settle)
	b.sleepUntil(min(end, deadline))

	giveUp := min(end.Add(patience), deadline)
	if g.all > 1 && b.heard {
		giveUp = deadline
	}
	b.heard = false
	have, clean := 0, false
	for {
		b.wait(giveUp)
		n, err := b.port.Read(b.rx[have:])
		if err != nil {
			b.lost = true
			break
		}
		if n > 0 {
			b.heard = true
			giveUp = min(max(end, b.clock.Now()).Add(patience), deadline)
		}
		have = b.file(g, have+n)
		if g.answered == g.all {
			clean = have == 0
			break
		}
		if b.clock.Now() >= giveUp {
			break
		}
	}
	if !clean {
		b.dirty = drains
	}
	return g.all &^ g.answered
}

// file takes the frames out of the first have bytes received, files them by id
// and moves the rest, less than one frame, to the front. It returns the size of
// the rest. Of two replies of one servo the second counts: the first is then a
// late one of an earlier request, since bytes do not overtake each other.
//
//rt:noalloc
func (b *Bus) file(g *group, have int) int {
	in := b.rx[:have]
	for len(in) > 0 {
		frame, rest := Cut(in, g.params)
		if len(rest)+len(frame) != len(in) {
			b.corrupt.Add(1) // bytes between the frames that are none
		}
		in = rest
		if frame == nil {
			break
		}
		i := g.slot[frame.ID()]
		if i < 0 {
			b.corrupt.Add(1) // nobody asked for it
			continue
		}
		if g.answered&(1<<i) != 0 {
			b.late.Add(1)
		}
		g.answered |= 1 << i
		g.faults[i] = frame.Fault()
		copy(g.param(int(i)), frame.Params())
	}
	return copy(b.rx[:], in)
}

//rt:noalloc
func (b *Bus) send(frame []byte) bool {
	if _, err := b.port.Write(frame); err != nil {
		b.lost = true
		return false
	}
	return true
}

// sleepUntil and wait count the time they meant to wait as waited for the bus;
// what the scheduler adds to it is not the bus's.
//
//rt:noalloc
func (b *Bus) sleepUntil(t rt.Instant) {
	if d := t.Sub(b.clock.Now()); d > 0 {
		b.clock.SleepUntil(t)
		b.waited += d
	}
}

//rt:noalloc
func (b *Bus) wait(until rt.Instant) {
	start := b.clock.Now()
	d := max(0, until.Sub(start))
	if err := b.port.Wait(d); err != nil {
		b.lost = true
	}
	b.waited += min(d, b.clock.Now().Sub(start))
}

// drain throws away what earlier exchanges left behind.
//
//rt:noalloc
func (b *Bus) drain() {
	for total := 0; total < maxDrain; {
		n, err := b.port.Read(b.rx[:])
		if n == 0 || err != nil {
			return
		}
		total += n
	}
}

// Ping asks one servo whether it is there and returns its error byte.
func (b *Bus) Ping(id ID) (Fault, error) {
	b.tx = AppendPing(b.tx[:0], id)
	_, fault, err := b.ask(id, 0)
	if err != nil {
		return 0, fmt.Errorf("ping id %d: %w", id, err)
	}
	return fault, nil
}

// ReadRegister returns the value of one register and the servo's error byte.
func (b *Bus) ReadRegister(id ID, r Register) (int, Fault, error) {
	b.tx = AppendRead(b.tx[:0], id, r)
	data, fault, err := b.ask(id, r.Width())
	if err != nil {
		return 0, 0, fmt.Errorf("read %s of id %d: %w", r, id, err)
	}
	return r.Decode(parseWord(data)), fault, nil
}

// WriteRegister sets one register and waits for the acknowledgement. It is
// repeated when that does not come, so the value must bear it.
func (b *Bus) WriteRegister(id ID, r Register, value int) (Fault, error) {
	word, err := r.Encode(value)
	if err != nil {
		return 0, err
	}
	b.tx = AppendWrite(b.tx[:0], id, r, word)
	_, fault, err := b.ask(id, 0)
	if err != nil {
		return 0, fmt.Errorf("write %s of id %d: %w", r, id, err)
	}
	return fault, nil
}

// SyncWrite sets one register of all ids at once; nobody answers.
func (b *Bus) SyncWrite(r Register, ids []ID, words []uint16) error {
	b.tx = AppendSyncWrite(b.tx[:0], r, ids, words)
	if !b.send(b.tx) {
		return fmt.Errorf("write %s: %w", r, ErrPortLost)
	}
	// The servos hear nothing else while the frame is on the line.
	b.sleepUntil(b.clock.Now().Add(b.wireTime(len(b.tx), 0, 0) + replyGap))
	return nil
}

// ask sends b.tx to one servo and returns its params bytes, which are borrowed
// until the next transaction, and its error byte.
//
// A reply does not say which register it is about, so a late one would pass for
// the answer to the next question. After a failed attempt the line must first
// fall silent, and for a while what is read counts only when it is read twice.
func (b *Bus) ask(id ID, params int) ([]byte, Fault, error) {
	g := b.one
	g.mean(id)
	g.request, g.params = b.tx, params
	g.wire = b.wireTime(len(b.tx), 1, params)
	var last [maxLen]byte
	before, seen := b.corrupt.Load(), false
	for failed := 0; failed < b.attempts; {
		deadline := b.clock.Now().Add(g.wire + settleMax + b.patience)
		if b.gather(g, b.patience, deadline) == 0 {
			sure := params == 0 || b.clock.Now() >= b.doubt || seen && bytes.Equal(last[:params], g.param(0))
			if sure {
				return g.param(0), g.faults[0], nil
			}
			if seen {
				failed++ // two answers, and they differ
			}
			seen = true
			copy(last[:], g.param(0))
			continue
		}
		if b.lost {
			return nil, 0, ErrPortLost
		}
		failed++
		b.retries.Add(1)
		b.quiet()
		b.doubt = b.clock.Now().Add(doubtFor)
	}
	if b.corrupt.Load() != before {
		return nil, 0, ErrGarbled
	}
	return nil, 0, ErrNoReply
}

// quiet waits until the line has been silent for b.hush: the late replies of a
// failed transaction are over then.
func (b *Bus) quiet() {
	idle := b.clock.Now().Add(b.hush)
	for end := b.clock.Now().Add(quietMax); b.clock.Now() < min(idle, end); {
		b.wait(idle)
		n, err := b.port.Read(b.rx[:])
		if err != nil {
			return
		}
		if n > 0 {
			idle = b.clock.Now().Add(b.hush)
		}
	}
}
