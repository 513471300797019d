package server

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"edgert/rt"
	"edgert/wire"
)

// request is one observation as it arrived: the header, the body still encoded,
// and when. Its buffer is reused.
type request struct {
	header wire.Header
	body   []byte
	at     rt.Instant
}

// requestKey orders the observations of one robot: epochs count its reconnects,
// sequence numbers its requests.
type requestKey struct {
	epoch uint32
	seq   uint64
}

func (k requestKey) after(o requestKey) bool {
	return k.epoch > o.epoch || k.epoch == o.epoch && k.seq > o.seq
}

// mailbox holds the newest observation of one robot, by (epoch, seq), until the
// worker takes it. Three buffers change places, so that the worker reads one
// while another is filled, and nothing is copied under mu.
type mailbox struct {
	filling sync.Mutex // held by put; a robot that moves to another link has two senders for a moment
	back    *request   // Guarded by filling.

	size atomic.Int64 // bytes of the three buffers

	mu         sync.Mutex // guards the rest; held for a few instructions
	waiting    *request
	full       bool
	seen       bool // newest is valid
	newest     requestKey
	superseded uint64 // replaced before the worker came, and not yet reported to the robot

	front *request // Owner: worker.
}

func newMailbox() mailbox {
	return mailbox{back: new(request), waiting: new(request), front: new(request)}
}

// put copies an observation in. newest is false when one that is not older
// was here already; replaced says that one was waiting and is lost. It allocates
// only when the body is larger than all before it.
//
// Owner: the transport's receiving goroutines.
//
//rt:noalloc
func (m *mailbox) put(h wire.Header, body []byte, at rt.Instant) (newest, replaced bool) {
	m.filling.Lock()
	defer m.filling.Unlock()
	key := requestKey{h.SessionEpoch, h.SeqID}

	m.mu.Lock()
	late := m.seen && !key.after(m.newest)
	m.mu.Unlock()
	if late {
		return false, false
	}

	m.back.header, m.back.at = h, at
	if cap(m.back.body) < len(body) {
		m.size.Add(int64(roomFor(len(body)) - cap(m.back.body)))
		m.back.body = make([]byte, 0, roomFor(len(body))) //rt:allow grows to the largest observation, then never again
	}
	m.back.body = append(m.back.body[:0], body...)

	m.mu.Lock()
	m.back, m.waiting = m.waiting, m.back
	if replaced = m.full; replaced {
		m.superseded++
	}
	m.full, m.seen, m.newest = true, true, key
	m.mu.Unlock()
	return true, replaced
}

// overtaken reports whether a newer observation was here; a duplicate was not.
//
//rt:noalloc
func (m *mailbox) overtaken(h wire.Header) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.newest.after(requestKey{h.SessionEpoch, h.SeqID})
}

// roomFor leaves an eighth to spare and rounds up to a power of two, so that
// pictures whose size varies do not make the buffer grow again and again.
func roomFor(n int) int { return 1 << bits.Len(uint(n+n/8)) }

// take lends the waiting observation, if any, until the next take.
//
// Owner: worker.
//
//rt:noalloc
func (m *mailbox) take() (r *request, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.full {
		return nil, false
	}
	m.front, m.waiting, m.full = m.waiting, m.front, false
	return m.front, true
}

//rt:noalloc
func (m *mailbox) pending() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.full
}

// takeSuperseded returns how many were replaced since the last call.
//
//rt:noalloc
func (m *mailbox) takeSuperseded() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.superseded
	m.superseded = 0
	return n
}

// clear forgets the waiting observation without counting it as superseded.
func (m *mailbox) clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.full = false
}

// wake wakes the goroutine that waits on c, a channel of capacity 1.
//
//rt:noalloc
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
