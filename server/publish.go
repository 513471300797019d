package server

import (
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/server/audit"
	"github.com/edge-rt/edge-rt/server/batch"
	"github.com/edge-rt/edge-rt/wire"
)

const eventTextMax = 1024 // bytes

// A robot that has repeated its request may do so again while the answer is on the way. For
// 1/echoShare of the inference's duration, at most echoMost, the same request is not answered
// again.
const (
	echoShare = 10
	echoMost  = 200 * time.Millisecond
)

// publisher sends a robot its chunk, or an event with the reason why there is no chunk.
//
// Owner: worker.
type publisher struct {
	*service
	chunk      wire.ActionChunk
	payload    []byte
	attachment []byte
	events     eventWriter
}

func newPublisher(s *service) publisher {
	const besideMatrices = 1024
	size := 2*4*s.meta.ChunkSize*s.meta.ActionDim + besideMatrices
	return publisher{service: s, payload: make([]byte, 0, size), attachment: make([]byte, 0, wire.HeaderSize)}
}

// answer ends the turns of a run that is over.
//
//rt:noalloc
func (w *worker) answer(b *buffer, e batch.Ended) {
	for i := range b.used {
		if t := &b.turns[i]; t.session != nil {
			w.answerOne(t, &e)
		}
	}
}

// answerOne ends the turn of a row that ran.
//
//rt:noalloc
func (w *worker) answerOne(t *turn, e *batch.Ended) {
	f := &t.filled
	t.Decode, t.Inference = t.ready.Sub(t.begun), e.At.Sub(e.Begun)
	t.QueueWait = e.Begun.Sub(t.request.At) - t.Decode // waiting for its turn and for the device
	t.Batch, t.Row = e.Size, t.row-t.buffer.first
	t.Controls, t.Task = f.Controls, f.task.text
	t.Stale, t.Cameras = uint32(f.stale), w.tensors.contract.Cameras
	t.session.countPictures(w.stats, f.stale, f.stray, f.squeezed)
	err := e.Err
	switch {
	case err != nil:
		t.Outcome = audit.InferenceFailed
	case t.err != nil:
		t.Outcome, err = audit.NotFinite, t.err
	default:
		w.stats.wait.record(t.QueueWait)
		w.stats.decode.record(t.Decode)
		w.stats.inference.record(t.Inference)
		w.pace.served(t.Inference)
		w.stats.modes[t.Controls.Mode].Add(1)
		w.stats.spans[f.spans].Add(1)
		w.tensors.remember(t.row, t.session, f)
	}
	w.close(t, err)
}

// close ends a turn, with the chunk in its row or the reason why there is no chunk.
//
//rt:noalloc
func (w *worker) close(t *turn, err error) {
	s, r := t.session, t.request
	var reply []byte
	switch {
	case err == nil:
		reply = w.publisher.publish(t, w.tensors)
	case w.sick.Load() != nil || t.Outcome != audit.BadObservation && w.stopped():
		w.stats.outcomes[t.Outcome].Add(1)
		t.Why = eventText(err) // Serve informs all robots that the server leaves
	default:
		w.stats.outcomes[t.Outcome].Add(1)
		w.publisher.refuse(t, err)
	}
	t.At = w.clock.Now()
	t.Service = t.At.Sub(r.At)
	if t.Rows > 0 {
		w.stats.service.record(t.Service)
		s.answered.Add(1)
		s.shown.service.Store(int64(t.Service))
	} else {
		s.shown.failed.Add(1)
	}
	w.audit.Add(&t.Record, r.Body, reply)
	if err == nil && t.Outcome != audit.Unsent &&
		s.mailbox.DropAnswered(r, t.At.Add(min(t.Inference/echoShare, echoMost))) {
		w.stats.superseded.Add(1)
		s.shown.superseded.Add(1)
	}
	s.inHand.Store(false)
	w.pool.Return(r)
	t.session, t.request = nil, nil
}

// stopped reports whether the server leaves.
//
//rt:noalloc
func (w *worker) stopped() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

// publish sends the chunk in out's row of the turn and lends its body until the next call. It
// replaces a chunk that has not begun to leave: a robot that reads slowly gets the newest chunk,
// not the oldest.
//
//rt:noalloc
func (p *publisher) publish(t *turn, out *tensors) (payload []byte) {
	c := &p.chunk
	out.chunk(c, t.row, &t.Header, &t.filled)
	c.QueueWaitMs, c.InferenceMs = ms(t.QueueWait), ms(t.Decode+t.Inference)
	c.SupersededSeqs = t.session.mailbox.TakeSuperseded()
	c.ServerLoad = p.load()
	if c.HasT {
		c.ServerID = p.id
	}
	c.Nonce = t.session.nonce
	t.Superseded, t.Rows = c.SupersededSeqs, c.ChunkRobot.Rows
	if c.HasN {
		t.First = c.N + 1
	}
	p.payload = wire.AppendActionChunk(p.payload[:0], c)
	p.attachment = wire.AppendHeader(p.attachment[:0], t.Header.Reply(wire.MsgActionChunk))
	replaced, err := t.session.actions.PutLatest(p.payload, p.attachment)
	if err != nil {
		t.Outcome, t.Why = audit.Unsent, eventText(err)
	} else {
		p.stats.sentBytes.Add(uint64(len(p.payload)))
	}
	if replaced {
		p.stats.replaced.Add(1)
	}
	p.stats.outcomes[t.Outcome].Add(1)
	return p.payload
}

// refuse sends the robot an event with the reason why there is no chunk, and logs it. A failure of
// the model is a bad_observation, too, because a repeat would fail as well.
//
//go:noinline
func (p *publisher) refuse(t *turn, err error) {
	t.Why = eventText(err)
	if !t.session.refusals.allow(p.clock.Now()) {
		p.stats.silenced.Add(1)
		return
	}
	p.log.Warn("no chunk", "client", t.session.uuid, "session", t.session.id, "seq", t.Header.SeqID, "why", err)
	p.events.put(t.session.actions, &t.Header, &wire.Event{
		Code:     wire.EventBadObservation,
		Text:     t.Why,
		Seq:      t.Header.SeqID,
		ServerID: p.id,
		Nonce:    t.session.nonce,
	})
}

// tellLate informs a robot that other robots are served first, because its actions end before its
// chunk could come.
//
//go:noinline
func (p *publisher) tellLate(s *Session, h *wire.Header) {
	if !s.extended { // a client of the draft takes any event for a lost chunk
		return
	}
	if !s.refusals.allow(p.clock.Now()) {
		p.stats.silenced.Add(1)
		return
	}
	p.events.put(s.actions, h, &wire.Event{
		Code:     wire.EventLate,
		Text:     lateText,
		Seq:      h.SeqID,
		ServerID: p.id,
		Nonce:    s.nonce,
	})
}

//go:noinline
func eventText(err error) string {
	text := err.Error()
	return strings.ToValidUTF8(text[:min(len(text), eventTextMax)], "")
}

// eventWriter publishes events; it owns their buffers.
type eventWriter struct{ body, header []byte }

// put publishes an event with the header of the observation that it answers. A lost event is no
// worse than the chunk that was not sent.
func (w *eventWriter) put(p wire.Publisher, h *wire.Header, e *wire.Event) {
	w.body = wire.AppendEvent(w.body[:0], e)
	w.header = wire.AppendHeader(w.header[:0], h.Reply(wire.MsgEvent))
	_ = p.Put(w.body, w.header)
}

const (
	lateText     = "your actions end before a chunk can come: robots that can still be served go first"
	drainingText = "server is draining: open elsewhere"
	sickText     = "this server's device failed and it restarts: open elsewhere"
)

// retryAfterDraining is after how many ms a robot without another server may ask again: about the
// time of a restart.
const retryAfterDraining = 1000

func (w *eventWriter) putDraining(id string, s *Session, text string) {
	h := s.header()
	w.put(s.actions, &h, &wire.Event{
		Code:         wire.EventDraining,
		Text:         text,
		RetryAfterMs: retryAfterDraining,
		ServerID:     id,
		Nonce:        s.nonce,
	})
}
