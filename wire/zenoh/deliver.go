package zenoh

import "sync"

// Bounds of the events that wait for the session's own goroutine. When a bound is reached, further events are refused,
// except those that must not be lost.
const (
	maxEvents     = 1 << 15
	maxEventBytes = 8 << 20
	keepEvents    = 4096 // largest capacity of a queue that is kept for reuse
)

// event waits for the session's own goroutine: the report of a token to a watcher, or a message
// from the router in this process.
type event struct {
	w     *watcher
	key   string
	alive bool

	msg []byte
}

// deliveries is a queue of events. Goroutines that hold locks add events, and the session's own goroutine handles them
// in order.
type deliveries struct {
	s  *Session
	mu sync.Mutex

	// Guarded by mu.
	changed sync.Cond // condition on mu
	queue   []event
	bytes   int // size of the keys and messages in the queue
	ended   bool

	batch []event // the events that the method run handles while the queue fills again. Owner: run
}

func (e *deliveries) init(s *Session) {
	e.s = s
	e.changed.L = &e.mu
}

// add queues an event that must not be lost. Callers may hold Session.mu and the router's lock.
func (e *deliveries) add(ev event) {
	e.mu.Lock()
	e.queue = append(e.queue, ev)
	e.bytes += len(ev.key) + len(ev.msg)
	e.mu.Unlock()
	e.changed.Signal()
}

// full reports whether the queue has reached a bound. Then an event that may be lost must be
// refused.
func (e *deliveries) full() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.queue) > maxEvents || e.bytes > maxEventBytes
}

func (e *deliveries) close() {
	e.mu.Lock()
	e.ended = true
	e.mu.Unlock()
	e.changed.Signal()
}

// run handles events until close.
func (e *deliveries) run() {
	for e.take() {
		for i := range e.batch {
			if ev := &e.batch[i]; ev.w != nil {
				ev.w.report(ev.key, ev.alive)
			} else {
				e.s.received(ev.msg)
			}
		}
	}
}

// take waits for an event and moves the queue into the batch. It returns false after close.
func (e *deliveries) take() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.queue) == 0 && !e.ended {
		e.changed.Wait()
	}
	if e.ended {
		return false
	}
	clear(e.batch)
	if cap(e.batch) > keepEvents {
		e.batch = nil
	}
	e.batch, e.queue, e.bytes = e.queue, e.batch[:0], 0
	return true
}
