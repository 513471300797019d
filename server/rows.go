package server

import (
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/server/audit"
	"github.com/edge-rt/edge-rt/server/queue"
)

// fillSlack is how much earlier than necessary the rows of the next run are filled: a timer may be
// late by that much.
const fillSlack = time.Millisecond

// buffer is one of the model's buffers with the requests in its rows.
//
// Owner: worker.
type buffer struct {
	index, first int // first: the model's row that is row 0 of the buffer
	turns        []turn
	used         int          // rows that have been assigned
	oldest       rt.Instant   // arrival of the oldest request
	begun        rt.Instant   // when filling of the first row began
	since        atomic.Int64 // begun, for any goroutine
	filling      atomic.Int32 // rows that are being filled
}

// requests returns the number of rows with a request.
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

// turn is the request in a row and its result. It belongs to the crew while a thread of the crew
// fills the row.
type turn struct {
	session      *Session // nil: the row is empty
	request      *queue.Request
	buffer       *buffer
	row          int // of the model
	filled       filled
	err          error      // why the row cannot be used; nil: it can
	begun, ready rt.Instant // begin and end of filling
	audit.Record
}

// choose assigns rows of the next buffer to the robots that the scheduler puts first. While a run
// is under way it waits as long as the rows can still be filled in time, so that later requests are
// considered and the chosen observations are fresh.
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
	alone := w.running == nil && b.used == 0 && rows == 1 // the crew would not be faster
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

// next returns the buffer whose rows are filled for the next run, nil when all are in use.
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

// look lists the waiting robots. A robot whose request is in hand is left out: its waiting request
// may name rows of the chunk that is being computed, and the other robots have their turn first.
//
//rt:noalloc
func (w *worker) look() {
	w.list, w.waiting = w.sessions.all(), w.waiting[:0]
	for i, s := range w.list {
		if s.inHand.Load() {
			continue
		}
		if since, deadline, ok := s.mailbox.Waiting(); ok {
			w.waiting = append(w.waiting, queue.Waiting{
				ID:       s.uuid,
				Robot:    i,
				Since:    since,
				Deadline: deadline,
				Group:    s.place.Group(),
			})
		}
	}
}

// give assigns the next row of b to a request.
//
//rt:noalloc
func (w *worker) give(b *buffer, s *Session, r *queue.Request, now rt.Instant) *turn {
	if b.used == 0 {
		b.oldest = r.At
		b.begun = now
		w.open = b
		b.since.Store(int64(now))
	}
	t := &b.turns[b.used]
	b.used++
	b.filling.Add(1)
	b.oldest = min(b.oldest, r.At)
	*t = turn{
		session: s,
		request: r,
		buffer:  b,
		row:     b.first + b.used - 1,
		Record: audit.Record{
			ClientUUID: s.uuid,
			SessionID:  s.id,
			Tags:       s.tags,
			Task:       s.opened.text,
			RTC:        s.rtc,
			Header:     r.Header,
		},
	}
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

// fill fills the row of a turn, or sets the turn's error. A panic becomes an error, too: an
// unforeseen observation costs its robot a chunk, but never stops the server.
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
	w.log.Error("DECODING PANICKED: the observation is refused; please report it", "client", s.uuid, "session", s.id,
		"panic", p, "stack", string(debug.Stack()))
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
