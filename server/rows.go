package server

import (
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"edgert/rt"
	"edgert/server/audit"
	"edgert/server/queue"
)

// fillSlack is how much earlier than needed the rows of the next run are filled: a
// timer may be late by so much.
const fillSlack = time.Millisecond

// buffer is one of the model's and the requests in its rows.
//
// Owner: worker.
type buffer struct {
	index, first int // first: its row 0 among the model's
	turns        []turn
	used         int          // rows that were given out
	oldest       rt.Instant   // when the first of the requests came
	begun        rt.Instant   // when the first row began to be filled
	since        atomic.Int64 // begun, for any goroutine
	filling      atomic.Int32 // rows that are being filled
}

// requests is how many of the rows have one.
//
//rt:noalloc
func (b *buffer) requests() (n int) {
	for i := range b.used {
		if b.turns[i].session != nil {
			n++
		}
	}
	return n
}

// turn is the request in a row and what becomes of it. While the crew has it in hand
// it is the crew's.
type turn struct {
	session      *Session // nil: the row is empty
	request      *queue.Request
	buffer       *buffer
	row          int // of the model
	filled       filled
	err          error      // why the row is of no use; nil: it is
	begun, ready rt.Instant // of filling
	audit.Record
}

// choose gives rows of the buffer that runs next to the robots whose turn it is. While
// a run goes on it does so as late as the rows can still be filled in time: what
// comes until then has its chance, and what is chosen is new.
//
//rt:noalloc
func (w *worker) choose(now rt.Instant) bool {
	b := w.next()
	if b == nil || b.used == len(b.turns) {
		return false
	}
	if early := w.ends.Add(-2*w.fillTook - fillSlack); w.running != nil && now < early {
		w.wakeAt(early)
		return false
	}
	w.look()
	if len(w.waiting) == 0 {
		return false
	}
	rows := w.sizes.Choose(min(b.used+len(w.waiting), len(b.turns))) - b.used
	if rows <= 0 {
		return false
	}
	took := w.sizes.Took(w.sizes.Fit(b.used + rows))
	end := now.Add(w.fillTook + took)
	if w.running != nil {
		end = max(end, w.ends.Add(took))
	}
	w.scheduler.Order(w.waiting, rows, now, end, took)
	for _, passed := range w.waiting[min(rows, len(w.waiting)):] {
		if passed.Late {
			w.gaveWay(w.list[passed.Robot])
		}
	}
	alone := w.running == nil && b.used == 0 && rows == 1 // nobody to hand it to would be faster
	for _, chosen := range w.waiting[:min(rows, len(w.waiting))] {
		s := w.list[chosen.Robot]
		r := s.mailbox.Take()
		if r == nil {
			continue // a reset emptied the mailbox in between
		}
		t := w.give(b, s, r, now)
		if alone {
			w.prepare(w.tensors, t)
		} else {
			w.crew.Do(t)
		}
	}
	return true
}

// next is the buffer whose rows are filled for the next run; nil: all are in use.
//
//rt:noalloc
func (w *worker) next() *buffer {
	if w.open != nil {
		return w.open
	}
	for _, b := range w.buffers {
		if b != w.running && b != w.queued {
			return b
		}
	}
	return nil
}

// look finds the robots that wait. One whose request is in hand does not: its answer
// may be what its next request names, and others are to have their turn.
//
//rt:noalloc
func (w *worker) look() {
	w.list, w.waiting = w.sessions.all(), w.waiting[:0]
	for i, s := range w.list {
		if s.inHand.Load() {
			continue
		}
		if since, deadline, ok := s.mailbox.Waiting(); ok {
			w.waiting = append(w.waiting, queue.Waiting{ID: s.uuid, Robot: i, Since: since, Deadline: deadline, Group: s.place.Group()})
		}
	}
}

// give gives the next row of b to a request.
//
//rt:noalloc
func (w *worker) give(b *buffer, s *Session, r *queue.Request, now rt.Instant) *turn {
	if b.used == 0 {
		b.oldest, b.begun, w.open = r.At, now, b
		b.since.Store(int64(now))
	}
	t := &b.turns[b.used]
	b.used++
	b.filling.Add(1)
	b.oldest = min(b.oldest, r.At)
	*t = turn{session: s, request: r, buffer: b, row: b.first + b.used - 1, Record: audit.Record{
		ClientUUID: s.uuid, SessionID: s.id, Tags: s.tags, Task: s.opened.text, RTC: s.rtc, Header: r.Header,
	}}
	s.inHand.Store(true)
	if runway, ok := r.Runway(); ok {
		w.stats.runway.record(runway)
		s.shown.runway.Store(int64(runway))
	}
	return t
}

// prepare decodes the request of a turn into its row.
//
// Owner: the goroutine that with belongs to.
//
//rt:noalloc
func (w *worker) prepare(with *tensors, t *turn) {
	t.begun = w.clock.Now()
	if w.fill(with, t); t.err == nil {
		t.session.episode.Store(int64(t.Header.EpisodeID))
	}
	t.ready = w.clock.Now()
	if t.buffer.filling.Add(-1) == 0 && with != w.tensors {
		wake(w.work)
	}
}

// fill fills the row of a turn, or says in it why not. A panic becomes an error, too: an
// observation that nobody thought of costs its robot a chunk, and nobody the server.
//
//rt:noalloc
func (w *worker) fill(with *tensors, t *turn) {
	defer func() {
		if p := recover(); p != nil {
			t.err = w.decodingPanicked(t.session, p)
		}
	}()
	t.filled, t.err = with.fill(t.row, t.session, t.Header.SeqID, t.request.Body)
}

//go:noinline
func (w *worker) decodingPanicked(s *Session, p any) error {
	w.log.Error("DECODING PANICKED: the observation is refused; please report it", "client", s.uuid, "session", s.id, "panic", p, "stack", string(debug.Stack()))
	return fmt.Errorf("server: decoding this observation panicked: %v", p)
}

//rt:noalloc
func (w *worker) gaveWay(s *Session) {
	if h, ok := s.mailbox.GaveWay(); ok {
		w.stats.gaveWay.Add(1)
		s.shown.gaveWay.Add(1)
		w.publisher.tellLate(s, &h)
	}
}
