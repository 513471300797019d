package link

import (
	"time"
	"unsafe"

	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
)

// Bounds of one priority's queue. A dropping publisher's message is refused if the queue would then exceed dropBytes or
// dropMessages. A blocking publisher's message waits if the queue would exceed blockBytes or blockMessages. An empty
// queue accepts a message of any size. A data queue has room for dropBytes and dropMessages from its first use on, so
// that no burst of a dropping publisher allocates.
const (
	dropBytes       = 128 << 10 // the size of the official queue: two batches
	dropMessages    = 256
	blockBytes      = 4 << 20
	blockMessages   = 4096
	controlMessages = 1 << 16  // declarations are small, and all are sent at once when a link opens
	alwaysBytes     = 64 << 10 // bytes of declarations that may wait even when the budget is exhausted
	slotMessages    = 64       // initial room for waiting slots; only the number of publishers bounds them
)

// entry is one message of a queue.
type entry struct {
	n        int // bytes in the queue's buffer; 0 for a message in a slot
	slot     *Slot
	reliable bool
	express  bool
}

const entryBytes = int(unsafe.Sizeof(entry{}))

// queue holds the messages of one priority in order. Guarded by outbox.mu.
type queue struct {
	mem     *account
	minBuf  int // initial size of buf in bytes
	entries []entry
	first   int
	buf     []byte // the messages without a slot, back to back
	head    int    // offset of the first message in buf
	bytes   int    // waiting bytes, including slots and the unsent part of fragments

	control  bool // the queue is for declarations
	departed uint // number of messages that have left
	timedOut bool // a sender has waited for room in vain, and no message has left the queue since

	fragments []byte // the message that is being sent in fragments
	sent      int    // bytes of fragments that were sent
	reliable  bool   // the fragments are sent on the reliable lane
}

func (q *queue) empty() bool       { return q.first == len(q.entries) && !q.fragmenting() }
func (q *queue) fragmenting() bool { return q.sent < len(q.fragments) }

// messages returns the number of waiting messages at which a blocking message has to wait.
func (q *queue) messages() int {
	if q.control {
		return controlMessages
	}
	return blockMessages
}

// fits reports whether a message of n bytes may join the queue.
func (q *queue) fits(n, maxBytes, maxMessages int) bool {
	return q.bytes == 0 || q.bytes+n <= maxBytes && len(q.entries)-q.first < maxMessages
}

// tail lends the buffer, to which the caller may append a message of at most n bytes. ok is false when the budget has
// no room for the message.
func (q *queue) tail(n int) (buf []byte, ok bool) {
	if q.buf == nil && n <= q.minBuf {
		q.buf, _ = q.mem.resize(nil, q.minBuf)
	}
	// The waiting bytes are moved to the front of the buffer if they are few, or if the move frees half of the buffer.
	if len(q.buf)+n > cap(q.buf) && (len(q.buf)-q.head <= dropBytes || q.head > len(q.buf)/2) {
		q.buf = q.buf[:copy(q.buf, q.buf[q.head:])]
		q.head = 0
	}
	if q.buf, ok = q.mem.grow(q.buf, n); ok {
		return q.buf, true
	}
	if q.minBuf > 0 || len(q.buf)+n > alwaysBytes {
		return nil, false
	}
	q.mem.force(alwaysBytes - cap(q.buf))
	q.buf = append(make([]byte, 0, alwaysBytes), q.buf...)
	return q.buf, true
}

func (q *queue) add(e entry, n int) {
	if q.entries == nil && q.minBuf > 0 {
		q.entries = make([]entry, 0, dropMessages+slotMessages)
	}
	if len(q.entries) == cap(q.entries) && q.first > 0 {
		q.entries = q.entries[:copy(q.entries, q.entries[q.first:])]
		q.first = 0
	}
	before := cap(q.entries)
	if q.entries = append(q.entries, e); cap(q.entries) > before {
		q.mem.force((cap(q.entries) - before) * entryBytes)
	}
	q.bytes += n
}

// pop removes the first message and lends its bytes until the queue changes.
func (q *queue) pop() (entry, []byte) {
	e := q.entries[q.first]
	q.entries[q.first].slot = nil
	q.departed, q.timedOut = q.departed+1, false
	if q.first++; q.first == len(q.entries) {
		q.entries, q.first = q.entries[:0], 0
	}
	var msg []byte
	if e.slot != nil {
		msg = e.slot.msg
		e.slot.waiting = false
	} else {
		msg = q.buf[q.head : q.head+e.n]
		if q.head += e.n; q.head == len(q.buf) {
			q.buf, q.head = q.mem.drop(q.buf), 0
		}
	}
	return e, msg
}

// size returns the length of the first message.
func (q *queue) size() int {
	e := &q.entries[q.first]
	if e.slot != nil {
		return len(e.slot.msg)
	}
	return e.n
}

// split removes the first message, to be sent in fragments.
func (q *queue) split() {
	e, msg := q.pop()
	q.sent, q.reliable = 0, e.reliable
	if e.slot != nil {
		e.slot.msg, q.fragments = q.fragments[:0], msg // the slot is free for the next message at once
		return
	}
	if cap(q.fragments) < len(msg) {
		// The budget already counts these bytes, so they may be copied even when it is exhausted.
		q.mem.force(len(msg) - cap(q.fragments))
		q.fragments = make([]byte, 0, len(msg))
	}
	q.fragments = append(q.fragments[:0], msg...)
}

// Slot is a place in a link's queue for one publisher's newest message. PushLatest replaces the message in it until the
// writer begins to send that message. The zero value is ready for use. A Slot belongs to one link.
type Slot struct {
	msg     []byte // guarded by outbox.mu
	waiting bool
}

// Delivery is the way in which a link sends or refuses a message.
type Delivery struct {
	QoS      codec.QoS // priority, block or drop, express
	Reliable bool
	// Unbounded lets the message join a full queue, too. It is for the few bytes that end a query's replies; the number
	// of queries is bounded elsewhere.
	Unbounded bool
	NoWait    bool // do not wait, even if the QoS blocks: a full queue is ErrCongested

	// MaxWait bounds, in addition to Config.Stall, the time for which a blocking message waits while the queue sends
	// nothing. The message does not wait at all if another message has timed out and the queue has sent nothing since.
	MaxWait time.Duration
}

// Control is the Delivery of declarations and interests, which are sent with locks held.
var Control = Delivery{QoS: codec.ControlQoS, Reliable: true, NoWait: true}
