package queue

import (
	"sync"
	"sync/atomic"

	"edgert/rt"
	"edgert/wire"
)

// Mailbox holds the newest observation of one robot, by (epoch, seq), until it is
// taken. Its memory is lent by a pool while something waits in it, so that a robot
// that does not send costs none.
type Mailbox struct {
	// Constant.
	pool  *Pool
	asked int // bytes that an observation has as its robot said

	full atomic.Bool // waiting is not nil; what a scheduler looks at first

	mu         sync.Mutex // guards the rest; held for a few instructions
	waiting    *Request
	sequence   sequence
	closed     bool   // its session is over: nothing comes in any more
	superseded uint64 // replaced before their turn, and not yet reported to the robot

	answered Said       // of the request that was answered last
	episode  uint32     // its
	until    rt.Instant // what asks for the same until then was sent before its answer came
}

// NewMailbox returns an empty mailbox whose buffers are the pool's, of a robot whose
// observations have so many bytes, as it said.
func NewMailbox(pool *Pool, asked int) Mailbox { return Mailbox{pool: pool, asked: asked} }

// Put says what became of an observation.
type Put uint8

// What becomes of one.
const (
	Waits    Put = iota // until its turn
	Replaced            // it waits, and one that waited is lost
	Late                // one that is not older was here already
	NoRoom              // there is no memory for it
	Answered            // it asks for what was answered a moment ago
)

// Put copies an observation in.
//
// Owner: the transport's receiving goroutines; a robot that moves to another link
// has two for a moment.
//
//rt:noalloc
func (m *Mailbox) Put(h *wire.Header, body []byte, at rt.Instant, said Said) Put {
	m.mu.Lock()
	fresh := m.sequence.take(keyOf(h))
	again := fresh && at < m.until && m.asksAgain(&said, h.EpisodeID)
	if again {
		m.superseded++
	}
	m.mu.Unlock()
	switch {
	case !fresh:
		return Late
	case again:
		return Answered
	}
	r := m.pool.lend(len(body), len(body) <= m.asked)
	if r == nil {
		return NoRoom
	}
	r.Header, r.At, r.Since = *h, at, at
	r.Said, r.told = said, false
	r.Body = append(r.Body[:0], body...)

	m.mu.Lock()
	if m.closed || m.sequence.newest != keyOf(h) { // another link was faster
		m.mu.Unlock()
		m.pool.Return(r)
		return Late
	}
	old := m.waiting
	if old != nil {
		r.Since = old.Since
		m.superseded++
	}
	m.waiting = r
	m.full.Store(true)
	m.mu.Unlock()
	if old == nil {
		return Waits
	}
	m.pool.Return(old)
	return Replaced
}

// Overtaken reports whether a newer observation was here; a duplicate was not.
//
//rt:noalloc
func (m *Mailbox) Overtaken(h *wire.Header) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sequence.newest.after(keyOf(h))
}

// Waiting says since when the robot waits and when its actions end; ok is false
// when nothing waits.
//
//rt:noalloc
func (m *Mailbox) Waiting() (since, deadline rt.Instant, ok bool) {
	if !m.full.Load() {
		return 0, 0, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.waiting == nil {
		return 0, 0, false
	}
	return m.waiting.Since, m.waiting.Deadline, true
}

// GaveWay notes that what waits gave way to others and returns its header; ok is
// false when nothing waits or it was noted before.
//
//rt:noalloc
func (m *Mailbox) GaveWay() (h wire.Header, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.waiting == nil || m.waiting.told {
		return h, false
	}
	m.waiting.told = true
	return m.waiting.Header, true
}

// Take hands over the waiting observation, nil when there is none. Its taker gives
// it back to the pool.
//
//rt:noalloc
func (m *Mailbox) Take() *Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.waiting
	m.waiting = nil
	m.full.Store(false)
	return r
}

// DropAnswered drops what waits when it asks for the same steps of the same episode as the
// request that has just been answered, and likewise what comes until an instant: the robot
// asked again because the answer took long. Where the answer gets lost the robot asks once
// more.
//
//rt:noalloc
func (m *Mailbox) DropAnswered(answered *Request, until rt.Instant) (dropped bool) {
	if !answered.HasN {
		return false
	}
	m.mu.Lock()
	m.answered, m.episode, m.until = answered.Said, answered.Header.EpisodeID, until
	r := m.waiting
	if r == nil || !m.asksAgain(&r.Said, r.Header.EpisodeID) {
		m.mu.Unlock()
		return false
	}
	m.waiting = nil
	m.full.Store(false)
	m.superseded++
	m.mu.Unlock()
	m.pool.Return(r)
	return true
}

// asksAgain reports whether an observation asks for what was answered last. The caller holds
// mu.
//
//rt:noalloc
func (m *Mailbox) asksAgain(said *Said, episode uint32) bool {
	return m.answered.HasN && said.HasN && said.N == m.answered.N && episode == m.episode
}

// TakeSuperseded returns how many were replaced since the last call.
//
//rt:noalloc
func (m *Mailbox) TakeSuperseded() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.superseded
	m.superseded = 0
	return n
}

// Close gives back what waits, for good.
func (m *Mailbox) Close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.Clear()
}

// Clear forgets the waiting observation without counting it as superseded.
func (m *Mailbox) Clear() {
	if r := m.Take(); r != nil {
		m.pool.Return(r)
	}
}
