package servosim

import (
	"bytes"
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

const (
	noiseMax   = 64 // bytes of one burst
	delayedMax = 16 // largest number of replies that are late at the same time
)

// outbox holds the bytes that the adapter has not delivered yet.
//
// Owner: the wire's goroutine.
type outbox struct {
	transferBuf  [2 * replyMax]byte // bytes for the adapter's next transfer
	transferLen  int
	due          rt.Instant
	overtaken    [2*replyMax + noiseMax]byte // a reply that arrives after its successor
	overtakenLen int
	delayed      [delayedMax]delayedReply
	delayedLen   int
	garbage      [noiseMax]byte // bytes of a flood
	floodSent    uint64         // bytes of the flood sent so far
	floodDue     rt.Instant     // when the flood's next bytes are due
}

type delayedReply struct {
	at   rt.Instant
	from int // index of the servo
	n    int
	b    [replyMax]byte
}

// send makes a reply readable at the instant at which its last byte would have arrived, and returns
// that instant. The reply begins at start. A fault may damage it.
//
//rt:noalloc
func (b *Bus) send(from int, reply []byte, start rt.Instant) rt.Instant {
	w := &b.wire
	end := start.Add(time.Duration(len(reply)) * w.byteTime)
	w.lineEnd = end
	b.counters.replies.Add(1)
	b.mu.Lock()
	f := b.timeline.draw(from, b.servos[from], start)
	b.mu.Unlock()
	if f.kind != kindNone {
		b.counters.faults.Add(1)
	}
	switch f.kind {
	case kindNone:
	case kindStall:
		end = max(end, b.cfg.Clock.Now()).Add(f.by)
		w.lineEnd = end
		b.cfg.Clock.SleepUntil(end)
	case kindLate:
		b.delayReply(from, reply, max(end, b.cfg.Clock.Now()).Add(f.by))
		return end
	case kindDrop:
		b.counters.replies.Add(^uint64(0))
		return end
	default:
		spoiled := b.spoilReply(f, reply)
		end = end.Add(time.Duration(max(0, len(spoiled)-len(reply))) * w.byteTime)
		w.lineEnd = end
		reply = spoiled
		if f.kind == kindReorder {
			w.out.overtakenLen = copy(w.out.overtaken[:], reply)
			return end
		}
	}
	b.expedite(from, end)
	b.sleepUntil(end)
	b.sendFlood(end)
	b.queueReply(reply, end)
	if n := w.out.overtakenLen; n > 0 {
		w.out.overtakenLen = 0
		b.queueReply(w.out.overtaken[:n], end)
	}
	return end
}

// queueReply passes bytes that arrived at the instant end to the client: at once, or with the
// adapter's next transfer.
//
//rt:noalloc
func (b *Bus) queueReply(bytes []byte, end rt.Instant) {
	l := rt.Instant(b.cfg.Latency)
	if l == 0 || b.cfg.Unpaced {
		b.deliver(bytes)
		return
	}
	o := &b.wire.out
	due := (end + l - 1) / l * l
	if o.transferLen > 0 && (o.due != due || o.transferLen+len(bytes) > len(o.transferBuf)) {
		b.transfer()
	}
	o.due = due
	o.transferLen += copy(o.transferBuf[o.transferLen:], bytes)
}

//rt:noalloc
func (b *Bus) transfer() {
	o := &b.wire.out
	b.sleepUntil(o.due)
	b.deliver(o.transferBuf[:o.transferLen])
	o.transferLen = 0
}

// flush delivers the bytes that are still queued after a request was answered.
//
//rt:noalloc
func (b *Bus) flush() {
	o := &b.wire.out
	if o.overtakenLen > 0 {
		b.queueReply(o.overtaken[:o.overtakenLen], b.wire.lineEnd)
		o.overtakenLen = 0
	}
	if o.transferLen > 0 {
		b.transfer()
	}
}

//rt:noalloc
func (b *Bus) deliver(bytes []byte) {
	if n := b.pty.write(bytes); n < len(bytes) {
		b.counters.overflow.Add(uint64(len(bytes) - n))
	}
}

// delayReply holds a reply back until a given instant, while replies of other servos may overtake it. It still comes
// before any later reply of its servo, because the bytes of one servo do not overtake each other.
//
//rt:noalloc
func (b *Bus) delayReply(from int, reply []byte, at rt.Instant) {
	o := &b.wire.out
	if o.delayedLen == delayedMax || len(reply) > replyMax {
		return
	}
	l := &o.delayed[o.delayedLen]
	l.at = at
	l.from = from
	l.n = copy(l.b[:], reply)
	o.delayedLen++
}

// expedite makes the delayed replies of a servo arrive now, because they must come before its next
// reply.
//
//rt:noalloc
func (b *Bus) expedite(from int, now rt.Instant) {
	o := &b.wire.out
	for i := range o.delayedLen {
		if l := &o.delayed[i]; l.from == from {
			l.at = min(l.at, now)
		}
	}
}

// sendDelayed delivers the delayed replies that are due by a given instant, each at its own instant.
//
//rt:noalloc
func (b *Bus) sendDelayed(until rt.Instant) {
	o := &b.wire.out
	for o.delayedLen > 0 {
		first := 0
		for i := range o.delayedLen {
			if o.delayed[i].at < o.delayed[first].at {
				first = i
			}
		}
		l := &o.delayed[first]
		if l.at > until {
			return
		}
		b.cfg.Clock.SleepUntil(l.at)
		b.deliver(l.b[:l.n])
		o.delayedLen--
		if first != o.delayedLen {
			o.delayed[first] = o.delayed[o.delayedLen]
		}
	}
}

// spoilReply returns the bytes into which a fault changes a reply.
//
//rt:noalloc
func (b *Bus) spoilReply(f fault, reply []byte) []byte {
	w := &b.wire
	out := append(w.spoiled[:0], reply...)
	switch f.kind {
	case kindGarble:
		garble(out)
	case kindCorrupt:
		for i := range f.n {
			bit := int(f.dice(i) % uint64(8*len(out)))
			out[bit/8] ^= 1 << (bit % 8)
		}
	case kindTruncate:
		out = out[:len(out)/2]
	case kindDuplicate:
		out = append(out, reply...)
	case kindWrongID:
		b.renumber(out, uint8(f.dice(0)%uint64(idMax)))
	case kindNoise:
		out = out[:0]
		for i := range min(f.n, noiseMax) {
			v := byte(f.dice(i))
			if v < 0x60 {
				v = 0xFF // a floating line mostly reads as FF
			}
			out = append(out, v)
		}
		out = append(out, reply...)
	}
	if b.forged(out, reply) {
		b.counters.forged.Add(1)
	}
	return out
}

// forged reports whether damaged bytes contain an intact frame other than the reply. No client can
// detect that such a frame is wrong.
//
//rt:noalloc
func (b *Bus) forged(out, reply []byte) bool {
	for rest := out; len(rest) > 0; {
		_, used, ok, _ := b.cut(rest)
		if used == 0 {
			rest = rest[1:] // an unfinished frame hides the bytes after it
			continue
		}
		if ok && !bytes.HasSuffix(rest[:used], reply) {
			return true
		}
		rest = rest[used:]
	}
	return false
}

// renumber changes the id of a reply, and makes its checksum fit.
//
//rt:noalloc
func (b *Bus) renumber(reply []byte, id uint8) {
	end := len(reply)
	if b.protocol2 {
		reply[4] = id
		c := crc(reply[:end-2])
		reply[end-2], reply[end-1] = byte(c), byte(c>>8)
		return
	}
	reply[2] = id
	reply[end-1] = checksum(reply[2 : end-1])
}

// garble damages a reply so that its checksum is wrong.
//
//rt:noalloc
func garble(reply []byte) { reply[len(reply)-2] ^= 0x55 }

// readFast lets the listed servos answer in one packet: each appends its error byte, id, data and
// the CRC of all bytes before. The packet ends at the first servo that does not answer. The packet
// is not stuffed.
//
//rt:noalloc
func (b *Bus) readFast(r request, end rt.Instant) {
	w := &b.wire
	length := 1
	for all := r; ; {
		p, ok := all.next()
		if !ok {
			break
		}
		length += p.size + 4
	}
	reply := append(w.reply[:0], 0xFF, 0xFF, 0xFD, 0, broadcast, byte(length), byte(length>>8), statusInst)
	sent := 0
	for {
		p, ok := r.next()
		i := -1
		if ok && len(reply)+p.size+4 <= len(w.reply) {
			i = b.find(p.id, r.inst, end)
		}
		if i < 0 {
			return
		}
		s := b.servos[i]
		b.mu.Lock()
		if sent == 0 {
			end = end.Add(s.delay()) // the next servos answer without a pause
		}
		one := request{
			id:   p.id,
			inst: instRead,
			addr: p.addr,
			size: p.size,
		}
		data, code, _ := s.obey(&one, w.data[:0], end)
		reply = append(reply, s.error(code), p.id)
		reply = append(reply, data...)
		for range p.size - len(data) {
			reply = append(reply, 0)
		}
		b.mu.Unlock()
		reply = appendCRC(reply, crc(reply))
		end = b.send(i, reply[sent:], end)
		sent = len(reply)
	}
}

// floodEvery is the period of a flood's bytes.
const floodEvery = time.Millisecond

// sendFlood delivers a flood's bytes if they are due. Bytes that were due while the bus slept are left out.
//
//rt:noalloc
func (b *Bus) sendFlood(now rt.Instant) {
	b.mu.Lock()
	n, o := b.flood, &b.wire.out
	b.mu.Unlock()
	if n == 0 || now < o.floodDue || !b.in {
		return
	}
	o.floodDue = now.Add(floodEvery)
	for i := range n {
		o.garbage[i] = byte(mix(b.cfg.Faults.Seed ^ (o.floodSent + uint64(i))))
	}
	o.floodSent += uint64(n)
	b.deliver(o.garbage[:n])
}

// nextFlood returns the instant of a flood's next bytes. Called with mu held.
//
//rt:noalloc
func (b *Bus) nextFlood() rt.Instant {
	if b.flood == 0 || !b.in {
		return forever
	}
	return b.wire.out.floodDue
}
