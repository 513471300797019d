package server

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/server/audit"
	"github.com/edge-rt/edge-rt/server/batch"
	"github.com/edge-rt/edge-rt/server/queue"
)

// buffer is one of the model's buffers with the requests in its rows.
//
// Owner: worker.
type buffer struct {
	index, first int // first: the model's row that is row 0 of the buffer
	slots        []slot
	used         int          // rows that have been assigned
	oldest       rt.Instant   // arrival of the oldest request
	begun        rt.Instant   // time at which filling of the first row began
	since        atomic.Int64 // the same instant as begun, for any goroutine
	filling      atomic.Int32 // number of rows that are being filled
}

// requests returns the number of rows with a request.
//
//rt:noalloc
func (b *buffer) requests() (n int) {
	for i := range b.used {
		if b.slots[i].session != nil {
			n++
		}
	}
	return n
}

// slot is the request in a row and its result. While a thread of the filler fills the row, only that thread may use the
// slot.
type slot struct {
	session      *session // nil: the row is empty
	request      *queue.Request
	buffer       *buffer
	row          int // index of the row in the model
	filled       filled
	err          error      // the reason why the row cannot be used; nil: it can be used
	begun, ready rt.Instant // start and end of filling
	audit.Record
}

// assign assigns the next row to a request.
//
//rt:noalloc
func (b *buffer) assign(s *session, r *queue.Request, now rt.Instant) *slot {
	if b.used == 0 {
		b.oldest = r.At
		b.begun = now
		b.since.Store(int64(now))
	}
	t := &b.slots[b.used]
	b.used++
	b.filling.Add(1)
	b.oldest = min(b.oldest, r.At)
	*t = slot{
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
	return t
}

// filler fills rows from observations, in the worker's thread or in the filler's threads.
type filler struct {
	clock   rt.Clock
	log     *slog.Logger
	own     *tensors   // tensors of the worker's own thread
	fills   []*tensors // tensors of the other threads
	threads *batch.Threads[*slot]
	work    queue.Signal // wakes the worker when the threads have filled all rows of a buffer
}

// newFiller returns a filler with a thread for each element of fills but the first, which is for the worker's thread.
// The parameter rows is the number of slots that may wait for these threads.
func newFiller(clock rt.Clock, log *slog.Logger, fills []*tensors, rows int) *filler {
	f := &filler{
		clock: clock,
		log:   log,
		own:   fills[0],
		fills: fills[1:],
		work:  queue.NewSignal(),
	}
	var work []func(*slot)
	for _, with := range f.fills {
		work = append(work, func(t *slot) { f.prepare(with, t) })
	}
	f.threads = batch.NewThreads(rows, work)
	return f
}

// close ends the threads after their last row.
func (f *filler) close() (err error) {
	f.threads.Close()
	for _, t := range append(f.fills, f.own) {
		err = errors.Join(err, t.close())
	}
	return err
}

// prepare decodes the request of a slot into its row.
//
// Owner: the goroutine that owns these tensors.
//
//rt:noalloc
func (f *filler) prepare(with *tensors, t *slot) {
	t.begun = f.clock.Now()
	if f.fill(with, t); t.err == nil {
		t.session.episode.Store(int64(t.Header.EpisodeID))
	}
	t.ready = f.clock.Now()
	if t.buffer.filling.Add(-1) == 0 && with != f.own {
		f.work.Wake()
	}
}

// fill fills the row of a slot, or sets the slot's error. A panic becomes the slot's error, too. So
// an observation of an unforeseen kind costs its robot a chunk, but never stops the server.
//
//rt:noalloc
func (f *filler) fill(with *tensors, t *slot) {
	defer func() {
		if p := recover(); p != nil {
			t.err = f.decodingPanicked(t.session, p)
		}
	}()
	t.filled, t.err = with.fill(t.row, t.session, t.Header.SeqID, t.request.Body)
	if t.err == nil {
		with.inform(t.row, t.session, &t.filled, &t.Header)
	}
}

//go:noinline
func (f *filler) decodingPanicked(s *session, p any) error {
	f.log.Error("DECODING PANICKED: the observation is refused; please report it", "client", s.uuid, "session", s.id,
		"panic", p, "stack", string(debug.Stack()))
	return fmt.Errorf("server: decoding this observation panicked: %v", p)
}
