package servosim

import (
	"time"

	"edgert/rt"
)

const (
	bitsPerByte = 10 // 8 data bits, start and stop

	// A frame whose rest does not come is forgotten after this silence, so that a
	// client killed in the middle of a request does not swallow the next one's.
	interByteMax = 20 * time.Millisecond

	wireBuffer = 4096
)

// wire is the state of the half-duplex line.
//
// Owner: the wire's goroutine.
type wire struct {
	buf        [wireBuffer]byte
	head, tail int

	baud     int
	byteTime time.Duration // 0 when unpaced
	lastRead rt.Instant
	lineEnd  rt.Instant // when the last byte known of has left the wire

	data  [memSize]byte
	reply [replyMax]byte
}

// room returns where the next bytes go. An unfinished frame is shorter than the
// buffer, so there always is some.
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
	if w.tail > w.head && now.Sub(w.lastRead) > interByteMax {
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
	for {
		r, used, ok, bad := cut(w.buf[w.head:w.tail])
		w.head += used
		if ok {
			b.counters.requests.Add(1)
			end := w.lineEnd.Add(-time.Duration(w.tail-w.head) * w.byteTime)
			b.sleepUntil(end)
			b.execute(r, end)
			continue
		}
		if bad {
			b.counters.badChecksums.Add(1)
		}
		b.counters.garbage.Add(uint64(used))
		if used == 0 {
			return
		}
	}
}

// execute lets the servos obey one request whose last byte left at end.
//
//rt:noalloc
func (b *Bus) execute(r request, end rt.Instant) {
	if !b.audible() {
		b.counters.wrongBaud.Add(1)
		return
	}
	p := r.params
	switch {
	case r.inst == instSyncRead && r.id == broadcast && len(p) >= 3:
		b.syncRead(p[0], p[1], p[2:], end)
	case r.inst == instSyncWrite && r.id == broadcast && len(p) >= 3:
		b.syncWrite(p[0], int(p[1]), p[2:], end)
	case !wellFormed(r):
		b.counters.ignored.Add(1)
	case r.id == broadcast:
		b.broadcast(r, end)
	default:
		b.unicast(r, end)
	}
}

// wellFormed reports whether a servo obeys the request at all.
//
//rt:noalloc
func wellFormed(r request) bool {
	switch r.inst {
	case instPing, instAction, instReset:
		return len(r.params) == 0
	case instRead:
		return len(r.params) == 2 && r.id != broadcast
	case instWrite, instRegWrite:
		return len(r.params) >= 2
	}
	return false
}

// audible reports whether some servo listens at the client's baud rate.
//
//rt:noalloc
func (b *Bus) audible() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.servos {
		if b.servos[i].hears(b.wire.baud) {
			return true
		}
	}
	return false
}

// unicast executes a request to one servo. Two servos that have the same id
// both obey, and answer on top of each other.
//
//rt:noalloc
func (b *Bus) unicast(r request, end rt.Instant) {
	w := &b.wire
	var reply []byte
	var start rt.Instant
	answering, from := 0, 0
	for i := range b.servos {
		s := &b.servos[i]
		b.mu.Lock()
		if s.hears(w.baud) && s.mem[regID] == r.id {
			start = end.Add(s.delay())
			if data, answers := s.obey(r, w.data[:0], start); answers {
				reply = appendStatus(w.reply[:0], r.id, s.fault, data)
				answering, from = answering+1, i
			}
		}
		b.mu.Unlock()
	}
	if answering == 0 {
		return
	}
	if answering > 1 {
		b.counters.collisions.Add(1)
		garble(reply)
	}
	b.send(from, reply, start)
}

// broadcast executes a request to all servos. Only a ping is answered, by one
// after the other in the order of Config.IDs.
//
//rt:noalloc
func (b *Bus) broadcast(r request, end rt.Instant) {
	w := &b.wire
	for i := range b.servos {
		s := &b.servos[i]
		b.mu.Lock()
		hears := s.hears(w.baud)
		start := end.Add(s.delay())
		var reply []byte
		if hears {
			data, _ := s.obey(r, w.data[:0], start)
			reply = appendStatus(w.reply[:0], s.mem[regID], s.fault, data)
		}
		b.mu.Unlock()
		if hears && r.inst == instPing {
			end = b.send(i, reply, start)
		}
	}
}

// syncRead lets the listed servos answer in the order of the list. A servo that
// is not there leaves its slot empty.
//
//rt:noalloc
func (b *Bus) syncRead(addr, size uint8, ids []byte, end rt.Instant) {
	w := &b.wire
	for _, id := range ids {
		i := b.find(id)
		if i < 0 {
			if b.cfg.ChainStops {
				return
			}
			end = end.Add(b.turnaround() + time.Duration(int(size)+frameOverhead)*w.byteTime)
			continue
		}
		s := &b.servos[i]
		b.mu.Lock()
		start := end.Add(s.delay())
		data := s.read(w.data[:0], addr, size, start)
		reply := appendStatus(w.reply[:0], id, s.fault, data)
		b.mu.Unlock()
		end = b.send(i, reply, start)
	}
}

// syncWrite hands every listed servo its part; nobody answers.
//
//rt:noalloc
func (b *Bus) syncWrite(addr uint8, size int, parts []byte, end rt.Instant) {
	for size > 0 && len(parts) > size {
		if i := b.find(parts[0]); i >= 0 {
			b.mu.Lock()
			b.servos[i].write(addr, parts[1:1+size], end)
			b.mu.Unlock()
		}
		parts = parts[1+size:]
	}
}

// find returns the servo that hears this id, -1 when there is none.
//
//rt:noalloc
func (b *Bus) find(id uint8) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.servos {
		if b.servos[i].mem[regID] == id && b.servos[i].hears(b.wire.baud) {
			return i
		}
	}
	return -1
}

// send makes a reply that begins at start readable when its last byte would have
// arrived, and returns that instant. A scripted fault may spoil it.
//
//rt:noalloc
func (b *Bus) send(servo int, reply []byte, start rt.Instant) rt.Instant {
	w := &b.wire
	end := start.Add(time.Duration(len(reply)) * w.byteTime)
	w.lineEnd = end
	fault, late := b.takeFault(servo)
	switch fault {
	case faultDrop:
		return end
	case faultCorrupt:
		garble(reply)
	case faultTruncate:
		reply = reply[:len(reply)/2]
	case faultLate:
		end = max(end, b.cfg.Clock.Now()).Add(late)
		w.lineEnd = end
		b.cfg.Clock.SleepUntil(end)
	}
	b.sleepUntil(end)
	b.counters.replies.Add(1)
	if n := b.pty.write(reply); n < len(reply) {
		b.counters.overflow.Add(uint64(len(reply) - n))
	}
	return end
}

//rt:noalloc
func (b *Bus) sleepUntil(at rt.Instant) {
	if !b.cfg.Unpaced {
		b.cfg.Clock.SleepUntil(at)
	}
}

//rt:noalloc
func (b *Bus) turnaround() time.Duration {
	if b.cfg.Unpaced {
		return 0
	}
	return b.cfg.Turnaround
}

// garble spoils a reply so that its checksum cannot be right.
//
//rt:noalloc
func garble(reply []byte) { reply[len(reply)-2] ^= 0x55 }
