package servo

import (
	"sync/atomic"
	"time"

	"edgert/rt"
	"edgert/servo/packet"
	"edgert/servo/table"
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
	replyDelayMax = 2 * time.Millisecond    // bounds what tuning may learn
	replyGap      = 50 * time.Microsecond   // what a servo leaves before it answers; 50 to 100 us were measured with delay 0
	lossWait      = 2000 * time.Microsecond // beyond the computed end, for a reply that may be lost
	lossMax       = 2400 * time.Microsecond // what a lost reply may cost in all, asking again included
	slotWait      = 300 * time.Microsecond  // for a reply whose successors have come
	ackTimeout    = 20 * time.Millisecond   // off the tick: an EEPROM write stalls a servo for milliseconds
	quietTime     = 100 * time.Millisecond  // silence after which a late reply is not expected any more
	quietMax      = 500 * time.Millisecond  // for the line to fall silent after a failed transaction
	drainCount    = 2                       // exchanges after an unclean one that begin with a drain: its late replies may come after the first
	maxDrain      = 4096                    // bytes thrown away at once before a line counts as noise
	maxAttempts   = 4                       // of an acknowledged transaction: a host under load is late a few times in a row
	maxRead       = 200                     // bytes of one answer
	maxFrame      = 512                     // bytes of one request
)

// Bus is one half-duplex line of servos of one protocol: it sends an instruction
// and collects the status frames that answer it.
//
// Owner: one thread at a time. The counters may be read by any thread.
type Bus struct {
	// Constant after NewBus.
	port     Port
	clock    rt.Clock
	byteNs   float64
	protocol table.Protocol
	format   packet.Format

	// Owner: the calling thread.
	tx         []byte
	data       []byte // of a sync write
	rx         [1024]byte
	echo       echo
	single     *readGroup    // of the acknowledged transactions
	drainNext  int           // exchanges before which to drain, because an earlier one may have left bytes
	gotBytes   bool          // the last exchange brought bytes
	replyDelay time.Duration // how long after the computed end replies are really there, see tuning
	retried    bool          // somebody was asked once more, since the caller cleared it
	polled     bool          // the last exchange's replies were not there when its sleep ended
	waited     rt.Wait       // for the bus, since the caller cleared it
	end        rt.Instant    // when the last request's replies were due
	sent       rt.Instant    // when the last request left
	free       rt.Instant    // when the line has carried all that was sent
	timeout    time.Duration // for an acknowledgement
	attempts   int           // of an acknowledged transaction
	quietTime  time.Duration // silence that ends a failed transaction
	wasQuiet   bool          // the line was silent once since NewBus, see begin
	fenced     bool          // nothing older than the last answer can come, see fence
	fences     uint          // that were put up; does not begin at 0
	noFence    [256]bool     // by id: it has refused a fence's read, so pings are its fences
	lost       bool          // the port has failed
	canceled   func() bool   // while an arm is opened: whether that shall end; nil: never

	// Atomic.
	corrupt, late, retries, refused atomic.Uint64
}

// NewBus returns a bus on an open port that runs at baud.
func NewBus(port Port, baud int, protocol table.Protocol, clock rt.Clock) *Bus {
	b := &Bus{
		port:      port,
		clock:     clock,
		byteNs:    10 * float64(time.Second) / float64(baud),
		protocol:  protocol,
		format:    formats[protocol],
		tx:        make([]byte, 0, maxFrame),
		data:      make([]byte, 0, maxFrame),
		timeout:   ackTimeout,
		attempts:  maxAttempts,
		quietTime: quietTime,
		drainNext: drainCount, // whoever had the port before may have left bytes
		fences:    uint(clock.Now() / rt.Instant(time.Microsecond)),
	}
	b.single = &readGroup{all: 1, data: make([]byte, maxRead), errs: make([]byte, 1)}
	return b
}

var formats = [...]packet.Format{
	table.Feetech: packet.Feetech, table.FeetechSCS: packet.Feetech,
	table.Dynamixel1: packet.Dynamixel1, table.Dynamixel2: packet.Dynamixel2{},
}

// gather sends the group's request and collects its replies, by id and in any
// order, until all are there, the line was silent for patience beyond the
// computed end or the last byte, or the deadline has come. It returns the bits
// of those that gave no data.
//
//rt:noalloc
func (b *Bus) gather(g *readGroup, patience time.Duration, deadline rt.Instant) (missing uint32) {
	g.answered, g.refused, g.broken = 0, 0, false
	g.merged = packet.Fast{}
	if g.each != nil {
		return b.gatherEach(g, patience, deadline)
	}
	b.exchange(g, g.request, b.due(g), g.fast, patience, deadline)
	b.tune(g)
	return g.missing()
}

// gatherEach asks one servo after the other.
//
//rt:noalloc
func (b *Bus) gatherEach(g *readGroup, patience time.Duration, deadline rt.Instant) uint32 {
	for i, one := range g.each {
		if b.lost || b.clock.Now() >= deadline {
			break
		}
		one.answered, one.refused = 0, 0
		b.exchange(one, one.request, b.due(one), false, patience, deadline)
		b.tune(one)
		g.errs[i] = one.errs[0]
		if one.missing() == 0 {
			g.answered |= 1 << i
			copy(g.param(i), one.data)
		}
	}
	return g.missing()
}

// again asks those who did not answer once more, while the time that a lost
// reply may cost in all lasts. It returns the bits of those still missing.
//
//rt:noalloc
func (b *Bus) retryMissing(g *readGroup, missing uint32, deadline rt.Instant) uint32 {
	if g.each != nil || b.lost || missing == g.all && g.all != 1 && !g.fast {
		return missing // each was asked by itself; or nobody is there at all
	}
	return b.readMissing(g, missing, min(deadline, b.end.Add(lossMax)))
}

// readMissing asks those who did not answer with a plain sync read, when its
// replies can be there by the limit.
//
//rt:noalloc
func (b *Bus) readMissing(g *readGroup, missing uint32, limit rt.Instant) uint32 {
	g.retryIDs = g.retryIDs[:0]
	for i, id := range g.ids {
		if missing&(1<<i) != 0 {
			g.retryIDs = append(g.retryIDs, id)
			g.last = i
		}
	}
	g.retryRequest = b.format.AppendSyncRead(g.retryRequest[:0], g.addr, g.params, g.retryIDs)
	wire := b.wireTime(len(g.retryRequest), len(g.retryIDs), g.params)
	if b.clock.Now().Add(wire+b.replyDelay) <= limit {
		b.retried = true
		b.retries.Add(1)
		g.refused = 0
		b.exchange(g, g.retryRequest, wire+b.replyDelay, false, lossWait, limit)
		b.drainNext = drainCount // the first reply may still come, behind the second
	}
	g.last = len(g.ids) - 1
	return g.missing()
}

// exchange sends a request and collects the replies of those in g that have not
// answered yet; they are due that long after the first byte out.
//
// When several servos answered the last time and none does now, the host or the
// adapter is late rather than all of them gone: then it waits for the first byte
// until the deadline. When the last in the list has answered, the others' turn
// is over.
//
// It sleeps until they are due; waking up for every reply would cost more than the
// replies are worth. It polls only for what is not there yet.
//
//rt:noalloc
func (b *Bus) exchange(g *readGroup, request []byte, due time.Duration, fast bool, patience time.Duration, deadline rt.Instant) {
	if b.drainNext > 0 {
		b.drain()
		b.drainNext--
	}
	start := max(b.clock.Now(), b.free)
	if !b.send(request) {
		b.drainNext, b.fenced = drainCount, false
		return
	}
	end := start.Add(due)
	b.end = end
	b.sleepUntil(min(end, deadline))

	giveUp := min(end.Add(patience), deadline)
	if g.all > 1 && b.gotBytes && !fast { // a merged reply is silent when its first motor is
		giveUp = deadline
	}
	b.gotBytes, g.maybeEcho = false, false
	have, clean := 0, false
	for b.polled = false; ; b.polled = true {
		if b.polled {
			b.wait(giveUp)
		}
		n, err := b.read(b.rx[have:])
		if err != nil {
			b.lost = true
			break
		}
		have = b.parse(g, have+n, fast)
		if g.answered == g.all {
			clean = have == 0 && !g.broken
			break
		}
		if n > 0 {
			b.gotBytes = true
			wait := patience
			if !fast && g.answered&(1<<g.last) != 0 {
				wait = min(wait, slotWait)
			}
			giveUp = min(max(end, b.clock.Now()).Add(wait), deadline)
		}
		if b.clock.Now() >= giveUp || g.broken || have == len(b.rx) {
			break
		}
	}
	b.gotBytes = b.gotBytes || g.answered != 0
	if g.maybeEcho && g.missing() != 0 {
		g.answered |= 1 // nothing else came: it was an answer
	}
	if !clean {
		b.drainNext, b.fenced = drainCount, false
	}
}

// parse takes the frames out of the first have bytes received, files them by id
// and moves the rest, less than one frame, to the front. It returns the size of
// the rest.
//
//rt:noalloc
func (b *Bus) parse(g *readGroup, have int, fast bool) int {
	if fast {
		return b.parseFast(g, have)
	}
	in := b.rx[:have]
	for len(in) > 0 {
		r, skipped, rest, ok := b.format.Cut(in, g.params)
		if skipped > 0 {
			b.corrupt.Add(1) // bytes between the frames that are none
		}
		in = rest
		if !ok {
			break
		}
		b.store(g, r)
	}
	return copy(b.rx[:], in)
}

// parseFast reads the blocks of a fast reply that have come; it stays in the
// buffer until it is whole. Of two merged replies the second counts, as in keep.
//
//rt:noalloc
func (b *Bus) parseFast(g *readGroup, have int) int {
	for have > 0 {
		for g.merged.Done < len(g.ids) {
			r, ok, broken := g.merged.Next(b.rx[:have], len(g.ids), g.params)
			if broken {
				b.corrupt.Add(1)
				g.broken = true
				return 0
			}
			if !ok {
				return have
			}
			b.store(g, r)
		}
		used := g.merged.Start + packet.FastSize(len(g.ids), g.params)
		have = copy(b.rx[:], b.rx[used:have])
		g.merged = packet.Fast{}
	}
	return 0
}

// keep files one reply. Of two replies of one servo the second counts: the first
// is then a late one of an earlier request, since bytes do not overtake each
// other.
//
//rt:noalloc
func (b *Bus) store(g *readGroup, r packet.Reply) {
	i := g.slot[r.ID]
	if i < 0 {
		b.corrupt.Add(1) // nobody asked for it
		return
	}
	bit := uint32(1) << i
	if g.answered&bit == 0 && b.looksLikeEcho(g, r) {
		g.maybeEcho, g.errs[i] = true, r.Err
		copy(g.param(int(i)), r.Params)
		return
	}
	if g.maybeEcho {
		b.echo.on = true // two frames for one request: the line hears itself after all
	}
	if g.answered&bit != 0 {
		b.late.Add(1)
	}
	g.answered |= bit
	g.errs[i] = r.Err
	if b.format.Refused(r.Err) {
		b.refused.Add(1)
		g.refused |= bit
		return
	}
	g.refused &^= bit
	copy(g.param(int(i)), r.Params)
}

//rt:noalloc
func (b *Bus) send(frame []byte) bool {
	if b.lost {
		return false
	}
	if _, err := b.port.Write(frame); err != nil {
		b.lost = true
		return false
	}
	b.sent = b.clock.Now()
	b.free = max(b.free, b.sent).Add(time.Duration(float64(len(frame)) * b.byteNs))
	b.echo.expect(frame)
	return true
}

// read reads what has arrived, without the echo of what was sent.
//
//rt:noalloc
func (b *Bus) read(p []byte) (int, error) {
	n, err := b.port.Read(p)
	if n > 0 && b.echo.on {
		left, wrong := b.echo.strip(p[:n])
		if wrong {
			b.corrupt.Add(1)
		}
		return left, err
	}
	return n, err
}

// sleepUntil and wait count what they wait for the bus; what the scheduler and a
// host add to what they meant to is not the bus's.
//
//rt:noalloc
func (b *Bus) sleepUntil(t rt.Instant) {
	start := b.clock.Now()
	if d := t.Sub(start); d > 0 {
		b.clock.SleepUntil(t)
		b.waited.Add(rt.Wait{Meant: d, Took: b.clock.Now().Sub(start)})
	}
}

//rt:noalloc
func (b *Bus) wait(until rt.Instant) {
	start := b.clock.Now()
	d := max(0, until.Sub(start))
	if err := b.port.Wait(d); err != nil {
		b.lost = true
	}
	took := b.clock.Now().Sub(start)
	b.waited.Add(rt.Wait{Meant: min(d, took), Took: took})
}
