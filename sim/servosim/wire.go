package servosim

import (
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

const (
	bitsPerByte = 10 // 8 data bits, start and stop

	// The bus drops an incomplete frame after this silence, so that half a request of a killed
	// client does not swallow the next client's request. Dynamixel's silence is longer.
	interByteMax  = 20 * time.Millisecond
	interByteMaxX = 100 * time.Millisecond

	wireBuffer = 4096
	replyMax   = 3 * memSize // a whole memory, with stuffing
)

// wire is the state of the half-duplex line.
//
// Owner: the wire's goroutine.
type wire struct {
	buf        [wireBuffer]byte
	head, tail int
	plain      [wireBuffer]byte // the parameters of a packet without their stuffing

	baud     int
	byteTime time.Duration // 0 when unpaced
	lastRead rt.Instant
	lineEnd  rt.Instant // when the last byte of a request or reply has left the wire

	data    [memSize]byte
	reply   [replyMax]byte
	spoiled [2*replyMax + noiseMax]byte
	out     outbox
}

// room returns the space for the next bytes. An unfinished frame is shorter than the buffer, so the
// space is never empty.
//
//rt:noalloc
func (w *wire) room() []byte {
	if w.head > 0 {
		w.tail = copy(w.buf[:], w.buf[w.head:w.tail])
		w.head = 0
	}
	return w.buf[w.tail:]
}

// receive takes n new bytes and executes every request that they complete.
//
//rt:noalloc
func (b *Bus) receive(n int) {
	w := &b.wire
	now := b.cfg.Clock.Now()
	if w.tail > w.head && now.Sub(w.lastRead) > b.silence {
		b.counters.garbage.Add(uint64(w.tail - w.head))
		w.head = w.tail
	}
	w.lastRead = now
	w.tail += n
	w.baud = b.pty.baud()
	w.byteTime = 0
	if !b.cfg.Unpaced && w.baud > 0 {
		w.byteTime = bitsPerByte * time.Second / time.Duration(w.baud)
	}
	w.lineEnd = max(w.lineEnd, now).Add(time.Duration(n) * w.byteTime)
	b.tick(now)
	if b.echoes(now) {
		b.sleepUntil(w.lineEnd)
		b.deliver(w.buf[w.tail-n : w.tail])
	}
	for {
		f, used, ok, bad := b.cut(w.buf[w.head:w.tail])
		w.head += used
		if !ok && !bad {
			b.counters.garbage.Add(uint64(used))
			if used == 0 {
				break
			}
			continue
		}
		end := w.lineEnd.Add(-time.Duration(w.tail-w.head) * w.byteTime)
		b.sleepUntil(end)
		if ok {
			b.counters.requests.Add(1)
			b.execute(f, end)
			continue
		}
		b.counters.badChecksums.Add(1)
		b.counters.garbage.Add(uint64(used))
		if f.id != broadcast { // no servo answers a broadcast
			b.sendError(request{id: f.id}, resultCRC, axChecksum, end)
		}
	}
	b.flush()
}

//rt:noalloc
func (b *Bus) cut(buf []byte) (f frame, used int, ok, bad bool) {
	if b.protocol2 {
		return cutPacket(buf, b.wire.plain[:0])
	}
	return cut(buf)
}

// execute lets the servos obey one request. The request's last byte left the wire at the instant
// end.
//
//rt:noalloc
func (b *Bus) execute(f frame, end rt.Instant) {
	if !b.feed(end) {
		b.counters.wrongBaud.Add(1)
		return
	}
	r, fits := parse(f, b.protocol2)
	switch {
	case !fits || toMany(r.inst) && r.id != broadcast:
		b.sendError(r, resultLength, axInstruction, end)
	case r.inst == instSyncWrite, r.inst == instBulkWrite:
		b.writeMany(r, end)
	case r.inst == instSyncRead, r.inst == instBulkRead:
		b.readMany(r, end)
	case r.inst == instFastSyncRead, r.inst == instFastBulkRead:
		b.readFast(r, end)
	case r.id == broadcast && r.inst == instRead: // no servo obeys
	case r.id == broadcast:
		b.broadcast(r, end)
	default:
		b.unicast(r, end)
	}
}

// feed resets the bus watchdogs, and reports whether any servo receives at the client's baud rate.
//
//rt:noalloc
func (b *Bus) feed(now rt.Instant) (received bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.servos {
		received = received || s.receives(b.wire.baud, now)
	}
	for _, s := range b.servos {
		if received {
			s.expire(now)
			s.lastRequest = now
		}
	}
	return received
}

//rt:noalloc
func (b *Bus) unicast(r request, end rt.Instant) {
	reply, start, from, has := b.executeOne(&r, end)
	switch {
	case from >= 0:
		b.send(from, reply, start)
	case !has:
		b.sendError(r, resultInst, axInstruction, end)
	}
}

// executeOne lets the servos with the id r.id obey. It returns the status packet of the servo that answers, the
// packet's start, and from, the index of this servo (-1 without an answer). Two servos with the same id both obey, and
// their answers collide. The result has is false when a servo that receives the request does not have the instruction.
//
//rt:noalloc
func (b *Bus) executeOne(r *request, end rt.Instant) (reply []byte, start rt.Instant, from int, has bool) {
	w := &b.wire
	from, has = -1, true
	answering := 0
	b.mu.Lock()
	for i, s := range b.servos {
		obeys, answers := s.addressed(r.id)
		if !obeys {
			continue
		}
		if !s.receives(w.baud, end) {
			if r.inst == instWrite {
				s.emitUnheard(r.addr, r.data, end)
			}
			continue
		}
		if !s.supports(r.inst) {
			has = false
			continue
		}
		at := end.Add(s.delay())
		data, code, level := s.obey(r, w.data[:0], at)
		if answers && level {
			reply = b.status(r.id, s.error(code), data)
			start = at
			from = i
			answering++
		}
	}
	b.mu.Unlock()
	if answering > 1 {
		b.counters.collisions.Add(1)
		garble(reply)
	}
	return reply, start, from, has
}

//rt:noalloc
func (b *Bus) status(id, fault uint8, data []byte) []byte {
	if b.protocol2 {
		return appendPacket(b.wire.reply[:0], id, fault, data)
	}
	return appendStatus(b.wire.reply[:0], id, fault, data)
}

// sendError answers a request that a Dynamixel does not understand. A Feetech servo does not answer
// such a request.
//
//rt:noalloc
func (b *Bus) sendError(r request, x, ax uint8, end rt.Instant) {
	from := -1
	var start rt.Instant
	var fault uint8
	b.mu.Lock()
	for i, s := range b.servos {
		if s.feetech() || s.mem[s.at.id] != r.id || !s.receives(b.wire.baud, end) ||
			s.mem[s.at.returnLevel] < 2 {
			continue
		}
		from = i
		start = end.Add(s.delay())
		fault = s.error(s.code(x, ax))
	}
	b.mu.Unlock()
	if from >= 0 {
		b.send(from, b.status(r.id, fault, nil), start)
	}
}

// broadcast executes a request to all servos. Only a ping is answered: the servos answer one after
// the other, in the order of their ids.
//
//rt:noalloc
func (b *Bus) broadcast(r request, end rt.Instant) {
	if r.inst == instPing {
		for id := range idMax + 1 {
			one := request{id: uint8(id), inst: instPing}
			if reply, start, from, _ := b.executeOne(&one, end); from >= 0 {
				end = b.send(from, reply, start)
			}
		}
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.servos {
		if s.receives(b.wire.baud, end) && s.supports(r.inst) {
			s.obey(&r, b.wire.data[:0], end)
		}
	}
}

// readMany lets the listed servos answer in the order of the list. The slot of a servo without an
// answer stays empty.
//
//rt:noalloc
func (b *Bus) readMany(r request, end rt.Instant) {
	overhead := frameOverhead
	if b.protocol2 {
		overhead = packetOverhead + 1
	}
	for {
		p, ok := r.next()
		if !ok {
			return
		}
		if b.find(p.id, r.inst, end) < 0 {
			end = end.Add(b.cfg.turnaround + time.Duration(p.size+overhead)*b.wire.byteTime)
			continue
		}
		one := request{
			id:   p.id,
			inst: instRead,
			addr: p.addr,
			size: p.size,
		}
		if reply, start, from, _ := b.executeOne(&one, end); from >= 0 {
			end = b.send(from, reply, start)
		}
	}
}

// find returns the index of the first servo with this id that receives at the client's rate and has
// the instruction; -1 when there is none.
//
//rt:noalloc
func (b *Bus) find(id, inst uint8, now rt.Instant) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, s := range b.servos {
		if s.mem[s.at.id] != id || !s.receives(b.wire.baud, now) || !s.supports(inst) {
			continue
		}
		if fast := inst == instFastSyncRead || inst == instFastBulkRead; !fast || s.mem[xFirmware] >= xFastReads &&
			!b.cfg.NoFast {
			return i
		}
	}
	return -1
}

// writeMany gives every listed servo its part. No servo answers.
//
//rt:noalloc
func (b *Bus) writeMany(r request, end rt.Instant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		p, ok := r.next()
		if !ok {
			return
		}
		for _, s := range b.servos {
			obeys, _ := s.addressed(p.id)
			switch receives := s.receives(b.wire.baud, end); {
			case !obeys || !s.supports(r.inst):
			case receives:
				s.write(p.addr, p.data, end)
			default:
				s.emitUnheard(p.addr, p.data, end)
			}
		}
	}
}

//rt:noalloc
func (b *Bus) sleepUntil(at rt.Instant) {
	b.sendDelayed(at)
	if !b.cfg.Unpaced {
		b.cfg.Clock.SleepUntil(at)
	}
}
