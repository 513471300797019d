package queue

import (
	"sync"
	"sync/atomic"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/wire"
)

// Mailbox holds the newest observation of one robot until Take. The newest has the largest (epoch,
// seq). The mailbox takes memory from a pool, and only while an observation waits, so that a robot
// that does not send takes no memory.
type Mailbox struct {
	// Constant.
	pool  *Pool
	asked int // bytes of one observation, from the sizes in the robot's open

	full atomic.Bool // waiting is not nil; a scheduler checks it first

	mu         sync.Mutex // guards the rest; held for a few instructions
	waiting    *Request
	sequence   sequence
	closed     bool   // the session is over: no further observation is accepted
	superseded uint64 // observations replaced before their turn, not yet reported to the robot

	answered Schedule // schedule of the request answered last
	episode  uint32   // episode of the request answered last
	// A repeat of the answered request is dropped if it arrives before this instant, because the
	// robot may have sent it before it got the answer.
	until rt.Instant
}

// NewMailbox returns an empty mailbox that takes its buffers from the pool. The parameter asked is the size of one
// observation in bytes, from the robot's open.
func NewMailbox(pool *Pool, asked int) Mailbox { return Mailbox{pool: pool, asked: asked} }

// Put is the result of putting an observation into a mailbox.
type Put uint8

// The results.
const (
	Waits    Put = iota // the observation waits for its turn
	Replaced            // the observation waits, and replaces one that waited
	Late                // refused: the observation is not newer than the newest received
	NoRoom              // refused: there is no memory for the observation
	Answered            // refused: the observation repeats a request that was answered just before
)

// Put copies an observation into the mailbox.
//
// Owner: the transport's receiving goroutines. While a robot moves to another link, two of them may call Put at the
// same time.
//
//rt:noalloc
func (m *Mailbox) Put(h *wire.Header, body []byte, at rt.Instant, schedule Schedule) Put {
	m.mu.Lock()
	fresh := m.sequence.take(keyOf(h))
	again := fresh && at < m.until && m.asksAgain(&schedule, h.EpisodeID)
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
	r.Header = *h
	r.At = at
	r.Since = at
	r.Schedule, r.passed = schedule, false
	r.Body = append(r.Body[:0], body...)

	m.mu.Lock()
	if m.closed || m.sequence.newest != keyOf(h) { // a newer observation came over another link meanwhile
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

// Overtaken reports whether an observation that is newer than the one with header h has arrived. It is false for a
// duplicate of the newest observation.
//
//rt:noalloc
func (m *Mailbox) Overtaken(h *wire.Header) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sequence.newest.after(keyOf(h))
}

// Waiting returns the instant at which the robot began to wait (since), and the instant at which its actions end
// (deadline). The result ok is false when no observation waits.
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

// PassOver marks the waiting observation as passed over for other robots and returns its header. ok is false when no
// observation waits, or when it was already marked.
//
//rt:noalloc
func (m *Mailbox) PassOver() (h wire.Header, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.waiting == nil || m.waiting.passed {
		return h, false
	}
	m.waiting.passed = true
	return m.waiting.Header, true
}

// Take removes the waiting observation and returns it, or nil when no observation waits. The caller
// must return it to the pool.
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

// DropAnswered drops the waiting observation if it repeats the request answered (same steps of the same episode),
// which was answered last. Before the instant until, Put drops such a repeat, too. A robot repeats a request if the
// answer takes long, and once more, after until, if the answer is lost.
//
//rt:noalloc
func (m *Mailbox) DropAnswered(answered *Request, until rt.Instant) (dropped bool) {
	if !answered.HasN {
		return false
	}
	m.mu.Lock()
	m.answered = answered.Schedule
	m.episode = answered.Header.EpisodeID
	m.until = until
	r := m.waiting
	if r == nil || !m.asksAgain(&r.Schedule, r.Header.EpisodeID) {
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

// asksAgain reports whether an observation repeats the request answered last. The caller holds mu.
//
//rt:noalloc
func (m *Mailbox) asksAgain(schedule *Schedule, episode uint32) bool {
	return m.answered.HasN && schedule.HasN && schedule.N == m.answered.N && episode == m.episode
}

// TakeSuperseded returns how many observations were replaced, or dropped as repeats, since the last call.
//
//rt:noalloc
func (m *Mailbox) TakeSuperseded() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.superseded
	m.superseded = 0
	return n
}

// Close drops the waiting observation and refuses all later ones.
func (m *Mailbox) Close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.Clear()
}

// Clear drops the waiting observation without counting it as superseded.
func (m *Mailbox) Clear() {
	if r := m.Take(); r != nil {
		m.pool.Return(r)
	}
}
