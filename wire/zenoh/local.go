package zenoh

import (
	"sync"
	"time"

	"edgert/wire"
	"edgert/wire/zenoh/codec"
	"edgert/wire/zenoh/link"
)

// Bounds of what waits for the session's own callbacks. Samples are dropped or
// wait as on a link; a message larger than the bound passes when nothing waits.
const (
	localDropBytes   = 1 << 20
	localDropEvents  = 256
	localBlockBytes  = 4 << 20
	localBlockEvents = 4096
	localKeepBytes   = 4 << 20 // of a buffer for the next time
	maxTokenEvents   = 1 << 15 // beyond it links' declarations are refused
	maxTokenBytes    = 4 << 20 // of their keys, likewise

	noAttachment = -1
)

// event is one callback that somebody of the session is owed: a report of a
// token, a sample of an own publisher, or an own question.
type event struct {
	w     *watcher
	key   string
	alive bool

	ask func()

	subscribers []*subscriber
	slot        *localSlot // which holds them, or
	n, attached int        // their lengths in the buffer; attached may be noAttachment
}

// localSlot is the place of a publisher's newest sample for its own session.
type localSlot struct {
	payload, attachment       []byte // guarded by localEvents.mu
	attached                  bool
	waiting                   bool
	outPayload, outAttachment []byte // owner: localEvents.run
}

// localEvents carries what the session's own callbacks are owed from wherever it
// arises, with locks held, to the one goroutine that delivers it in order.
type localEvents struct {
	s  *Session
	mu sync.Mutex

	// Guarded by mu.
	changed sync.Cond // on mu
	room    sync.Cond // on mu
	queue   []event
	buf     []byte // payloads and attachments of the queue's samples
	samples int    // of the queue
	bytes   int    // of its samples, slots included
	keys    int    // bytes of its tokens
	ended   bool

	// Owner: run. What it delivers while the queue fills anew.
	batch    []event
	batchBuf []byte
}

func (e *localEvents) init(s *Session) {
	e.s = s
	e.changed.L, e.room.L = &e.mu, &e.mu
}

// add queues what must not be lost. Callers may hold Session.mu.
func (e *localEvents) add(ev event) {
	e.mu.Lock()
	e.queue = append(e.queue, ev)
	e.keys += len(ev.key)
	e.mu.Unlock()
	e.changed.Signal()
}

// full reports whether so much waits that nothing should be added that can be
// refused.
func (e *localEvents) full() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.queue) > maxTokenEvents || e.keys > maxTokenBytes
}

// sample queues what p has in hand for the own subscribers. Called with p.mu
// held.
//
//rt:noalloc
func (e *localEvents) sample(p *publisher) error {
	d := &p.push.Data
	n := len(d.Payload) + len(d.Attachment)
	e.mu.Lock()
	if err := e.admit(n, p.how.QoS&codec.Block != 0); err != nil {
		e.mu.Unlock()
		return err
	}
	e.grow() //rt:allow the first use
	ev := event{key: p.key, subscribers: p.own, n: len(d.Payload), attached: noAttachment}
	e.buf = append(e.buf, d.Payload...)
	if d.Attachment != nil {
		ev.attached = len(d.Attachment)
		e.buf = append(e.buf, d.Attachment...)
	}
	e.queue = append(e.queue, ev)
	e.samples++
	e.bytes += n
	e.mu.Unlock()
	e.changed.Signal()
	return nil
}

// latest queues what p has in hand in its slot, where it replaces a sample that
// no callback has seen. Called with p.mu held.
//
//rt:noalloc
func (e *localEvents) latest(p *publisher) (replaced bool) {
	d, slot := &p.push.Data, &p.slot
	e.mu.Lock()
	replaced = slot.waiting
	slot.payload = append(slot.payload[:0], d.Payload...)
	slot.attachment = append(slot.attachment[:0], d.Attachment...)
	slot.attached, slot.waiting = d.Attachment != nil, true
	if !replaced {
		e.grow() //rt:allow the first use
		e.queue = append(e.queue, event{key: p.key, subscribers: p.own, slot: slot})
		e.samples++
	}
	e.mu.Unlock()
	e.changed.Signal()
	if replaced {
		e.s.counters.Replaced.Add(1)
	}
	return replaced
}

func (e *localEvents) grow() {
	if e.queue == nil {
		e.queue, e.buf = make([]event, 0, localDropEvents+localDropEvents/4), make([]byte, 0, localDropBytes/16)
	}
}

// admit decides whether n bytes may join the queue, waiting for room when the
// QoS blocks. Called with mu held.
func (e *localEvents) admit(n int, block bool) error {
	fits := func(bytes, events int) bool {
		return e.samples == 0 || e.bytes+n <= bytes && e.samples < events
	}
	switch {
	case e.ended:
		return wire.ErrClosed
	case !block && fits(localDropBytes, localDropEvents), block && fits(localBlockBytes, localBlockEvents):
		return nil
	case !block:
		e.s.counters.Dropped.Add(1)
		return link.ErrCongested
	}
	expired := false
	timer := time.AfterFunc(link.DefaultStall, func() {
		e.mu.Lock()
		expired = true
		e.mu.Unlock()
		e.room.Broadcast()
	})
	defer timer.Stop()
	for !fits(localBlockBytes, localBlockEvents) {
		e.room.Wait()
		switch {
		case e.ended:
			return wire.ErrClosed
		case expired:
			e.s.counters.Dropped.Add(1)
			return link.ErrCongested
		}
	}
	return nil
}

func (e *localEvents) close() {
	e.mu.Lock()
	e.ended = true
	e.mu.Unlock()
	e.changed.Signal()
	e.room.Broadcast()
}

// run delivers until close.
func (e *localEvents) run() {
	for e.take() {
		at := 0
		for i := range e.batch {
			ev := &e.batch[i]
			switch {
			case ev.ask != nil:
				ev.ask()
			case ev.w != nil:
				e.report(ev)
			default:
				e.hand(ev, e.batchBuf[at:at+ev.n], e.batchBuf[at+ev.n:])
				at += ev.n + max(ev.attached, 0)
			}
		}
	}
}

// take swaps the queue for the batch when something waits; false ends the run.
func (e *localEvents) take() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.queue) == 0 && !e.ended {
		e.changed.Wait()
	}
	if e.ended {
		return false
	}
	clear(e.batch)
	if cap(e.batchBuf) > localKeepBytes {
		e.batchBuf = nil
	}
	if cap(e.batch) > localBlockEvents {
		e.batch = nil
	}
	e.batch, e.queue = e.queue, e.batch[:0]
	e.batchBuf, e.buf = e.buf, e.batchBuf[:0]
	e.samples, e.bytes, e.keys = 0, 0, 0
	e.room.Broadcast()
	return true
}

func (e *localEvents) report(ev *event) {
	e.s.deliver.Lock()
	defer e.s.deliver.Unlock()
	if !ev.w.closed {
		ev.w.deposit(ev.key, ev.alive)
	}
}

// hand gives a sample to its subscribers; the attachment begins rest.
//
//rt:noalloc
func (e *localEvents) hand(ev *event, payload, rest []byte) {
	s := wire.Sample{Key: ev.key, Payload: payload}
	if ev.slot != nil {
		s.Payload, s.Attachment = e.pick(ev.slot)
	} else if ev.attached != noAttachment {
		s.Attachment = rest[:ev.attached:ev.attached]
	}
	e.s.deliver.Lock()
	for _, sub := range ev.subscribers {
		if !sub.closed {
			sub.deposit(s)
		}
	}
	e.s.deliver.Unlock()
}

// pick takes the newest sample out of its slot, which is free for the next.
func (e *localEvents) pick(slot *localSlot) (payload, attachment []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	slot.waiting = false
	slot.payload, slot.outPayload = slot.outPayload, slot.payload
	slot.attachment, slot.outAttachment = slot.outAttachment, slot.attachment
	if slot.attached {
		attachment = slot.outAttachment
	}
	return slot.outPayload, attachment
}
