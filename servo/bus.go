package servo

import (
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/packet"
	"github.com/edge-rt/edge-rt/servo/table"
)

const (
	replyDelayMax = 2 * time.Millisecond    // upper limit of the measured reply delay
	lossWait      = 2000 * time.Microsecond // wait beyond the computed end for a reply that may be lost
	lossMax       = 2400 * time.Microsecond // longest time that a lost reply may cost, its retry included
	slotWait      = 300 * time.Microsecond  // wait for the other replies after the last servo's reply
	ackTimeout    = 20 * time.Millisecond   // longest wait for a reply outside the tick, as to an EEPROM write
	quietTime     = 100 * time.Millisecond  // silence after which no late reply is expected any more
	quietMax      = 500 * time.Millisecond  // longest wait for a silent line after a failed transaction
	// number of exchanges that begin with a drain after an unclean exchange, because late replies may come even after
	// the first drain
	drainCount  = 2
	maxAttempts = 4   // attempts of an acknowledged transaction
	maxRead     = 200 // largest number of bytes of one reply
)

// Bus is one half-duplex line of servos of one protocol.
//
// Owner: one thread at a time. The counters may be read by any thread.
type Bus struct {
	halfDuplex
	retry
	fence    fence
	protocol table.Protocol
	format   packet.Format
	single   *readGroup // group for transactions with one servo

	tx         []byte
	data       []byte // data of a sync write
	rx         [1024]byte
	drainNext  int           // number of further exchanges that begin with a drain, because bytes may be left over
	gotBytes   bool          // the last exchange brought bytes
	polled     bool          // the last exchange's replies were incomplete when its sleep ended
	retried    bool          // a transaction was repeated since the caller cleared retried
	end        rt.Instant    // instant at which the last request's replies were due
	replyDelay time.Duration // time from the computed end until replies have arrived, see tuning
	wasQuiet   bool          // the line was silent once since NewBus, see waitFirstQuiet
	canceled   func() bool   // set while an arm is opened: reports whether OpenArm must end; nil: never

	late, retries, refused atomic.Uint64
}

// retry is the number of attempts of a transaction with one servo, and the time limit of each.
type retry struct {
	attempts  int
	timeout   time.Duration // time to wait for a reply after its computed end
	quietTime time.Duration // silence that ends a failed attempt
}

// NewBus returns a bus on an open port that runs at baud.
func NewBus(port Port, baud int, protocol table.Protocol, clock rt.Clock) *Bus {
	return &Bus{
		halfDuplex: halfDuplex{port: port, clock: clock, byteNs: 10 * float64(time.Second) / float64(baud)},
		retry:      retry{maxAttempts, ackTimeout, quietTime},
		fence:      fence{count: uint(clock.Now() / rt.Instant(time.Microsecond))},
		protocol:   protocol,
		format:     formats[protocol],
		single:     &readGroup{all: 1, data: make([]byte, maxRead), errs: make([]byte, 1)},
		tx:         make([]byte, 0, maxFrame),
		data:       make([]byte, 0, maxFrame),
		drainNext:  drainCount, // another program may have left bytes on the line
	}
}

var formats = [...]packet.Format{
	table.Feetech: packet.Feetech, table.Dynamixel1: packet.Dynamixel1, table.Dynamixel2: packet.Dynamixel2{},
}

// Lost reports whether the port has failed for good.
func (b *Bus) Lost() bool { return b.lost }

// Protocol returns the protocol of the servos on the bus.
func (b *Bus) Protocol() table.Protocol { return b.protocol }

// SetRetry sets the number of attempts of later transactions, and the timeout of each attempt.
func (b *Bus) SetRetry(attempts int, timeout time.Duration) {
	b.retry = retry{attempts, timeout, timeout}
}

// ResetRetry undoes SetRetry.
func (b *Bus) ResetRetry() { b.retry = retry{maxAttempts, ackTimeout, quietTime} }

func (b *Bus) isCanceled() bool { return b.canceled != nil && b.canceled() }

//rt:noalloc
func (b *Bus) wireTime(request, replies, params int) time.Duration {
	return b.lineTime(request+replies*(b.format.Overhead()+params)) + time.Duration(replies)*replyGap
}

// uncleanExchange makes the next exchanges discard replies that come late, and voids the fence (transaction.go).
//
//rt:noalloc
func (b *Bus) uncleanExchange() { b.drainNext, b.fence.done = drainCount, false }

// gather sends the group's request and collects the replies, in any order, until all have arrived, the line was silent
// for the time timeout, or the deadline has come. The result missing has the bits of the servos that have sent no data.
//
//rt:noalloc
func (b *Bus) gather(g *readGroup, timeout time.Duration, deadline rt.Instant) (missing uint32) {
	g.answered = 0
	g.refused = 0
	g.broken = false
	g.merged = packet.Fast{}
	if g.each != nil {
		return b.gatherEach(g, timeout, deadline)
	}
	b.exchange(g, g.request, b.due(g), g.fast, timeout, deadline)
	b.tune(g)
	return g.missing()
}

// gatherEach requests the data of one servo after the other, for protocols without a sync read.
//
//rt:noalloc
func (b *Bus) gatherEach(g *readGroup, timeout time.Duration, deadline rt.Instant) uint32 {
	for i, one := range g.each {
		if b.lost || b.clock.Now() >= deadline {
			break
		}
		one.answered, one.refused = 0, 0
		b.exchange(one, one.request, b.due(one), false, timeout, deadline)
		b.tune(one)
		g.errs[i] = one.errs[0]
		if one.missing() == 0 {
			g.answered |= 1 << i
			copy(g.param(i), one.data)
		}
	}
	return g.missing()
}

// retryMissing repeats the request once to the servos in missing, within lossMax of the computed
// end of the first exchange. It returns the bits of the servos that are still missing.
//
//rt:noalloc
func (b *Bus) retryMissing(g *readGroup, missing uint32, deadline rt.Instant) uint32 {
	if g.each != nil || b.lost || missing == g.all && g.all != 1 && !g.fast {
		return missing // each servo had its own request, or no servo has answered
	}
	return b.readMissing(g, missing, min(deadline, b.end.Add(lossMax)))
}

// readMissing sends a plain sync read to the servos in missing if its replies can arrive before
// limit. It returns the bits of the servos that are still missing.
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
	due := b.wireTime(len(g.retryRequest), len(g.retryIDs), g.params) + b.replyDelay
	if b.clock.Now().Add(due) <= limit {
		b.retried = true
		b.retries.Add(1)
		g.refused = 0
		b.exchange(g, g.retryRequest, due, false, lossWait, limit)
		b.drainNext = drainCount // the first reply may still come, after the second
	}
	g.last = len(g.ids) - 1
	return g.missing()
}

// exchange sends a request and collects its replies. due is the time from the first byte out until
// all replies should have arrived.
//
// When a request to several servos brings no byte although the last exchange brought some, this program or the adapter
// is late: exchange then waits for the first byte until the deadline. It sleeps until the replies are due, since a
// wake-up for each reply would cost more CPU time than it saves, and polls only for the bytes that are missing then.
// Servos answer in the order of the request: after the last servo's reply, exchange waits at most slotWait for the
// others.
//
//rt:noalloc
func (b *Bus) exchange(g *readGroup, request []byte, due time.Duration, fast bool, timeout time.Duration,
	deadline rt.Instant) {
	if b.drainNext > 0 {
		b.drain(b.rx[:])
		b.drainNext--
	}
	start := max(b.clock.Now(), b.free)
	if !b.send(request) {
		b.uncleanExchange()
		return
	}
	end := start.Add(due)
	b.end = end
	b.sleepUntil(min(end, deadline))

	giveUp := min(end.Add(timeout), deadline)
	if g.all > 1 && b.gotBytes && !fast { // a merged reply is missing as a whole when its first motor is silent
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
			wait := timeout
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
	if !clean {
		b.uncleanExchange()
	}
}

// parse stores the frames among the received bytes b.rx[:have]. It moves an incomplete frame at their end to the front,
// and returns the size of this frame.
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
			b.corrupt.Add(1) // bytes between the frames that belong to no frame
		}
		in = rest
		if !ok {
			break
		}
		b.store(g, r)
	}
	return copy(b.rx[:], in)
}

// parseFast parses the blocks of a fast reply, which stays in the buffer until it is complete.
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

// store stores one reply in its group. A second reply of the same servo replaces the first: bytes
// do not overtake each other, so the first is a late answer to an earlier request.
//
//rt:noalloc
func (b *Bus) store(g *readGroup, r packet.Reply) {
	i := g.slot[r.ID]
	if i < 0 {
		b.corrupt.Add(1) // the request was not for this servo
		return
	}
	bit := uint32(1) << i
	if b.looksLikeEcho(g, r) {
		g.maybeEcho = true
		return
	}
	if g.maybeEcho {
		b.echo.on = true // two frames for one request: the line has an echo after all
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

// looksLikeEcho reports whether a frame has the same bytes as the request that it would answer: the echo of a request
// to read two bytes has the form of a reply, with a wrong value. The driver does not remove the echo if DetectEcho
// missed it, or if a byte of noise precedes it. A true reply with these bytes is not used either: it reports an encoder
// fault.
//
//rt:noalloc
func (b *Bus) looksLikeEcho(g *readGroup, r packet.Reply) bool {
	const size = 8 // bytes of a plain read request, and of a reply with two bytes of data
	if b.protocol == table.Dynamixel2 || len(r.Params) != 2 || len(g.request) != size {
		return false
	}
	q := g.request
	return q[2] == r.ID && q[4] == r.Err && q[5] == r.Params[0] && q[6] == r.Params[1]
}

// echoTries is how many pings DetectEcho sends: the first echo may be late.
const echoTries = 3

// DetectEcho finds out whether the adapter receives its own transmission: it sends a ping to an id
// without a servo and looks for the same bytes.
func (b *Bus) DetectEcho(unused ID) bool {
	b.waitFirstQuiet()
	b.echo.on = false
	for range echoTries {
		if b.echo.on || b.lost {
			break
		}
		b.drain(b.rx[:])
		b.echo.on = b.echoesPing(unused)
	}
	b.uncleanExchange()
	return b.echo.on
}

func (b *Bus) echoesPing(unused ID) bool {
	b.tx = b.format.Append(b.tx[:0], unused, packet.Ping)
	if !b.send(b.tx) {
		return false
	}
	var got [maxFrame]byte
	have := 0
	end := b.clock.Now().Add(b.wireTime(len(b.tx), 1, 0) + ackTimeout)
	for have < len(b.tx) && b.clock.Now() < end {
		b.wait(end)
		n, err := b.port.Read(got[have:])
		if err != nil {
			b.lost = true
			return false
		}
		have += n
	}
	// more bytes than the frame's have arrived if the late echo of an earlier, equal ping came as well
	return have >= len(b.tx) && string(got[:len(b.tx)]) == string(b.tx)
}
