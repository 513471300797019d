package server

import (
	"errors"
	"log/slog"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/server/audit"
	"github.com/edge-rt/edge-rt/server/batch"
	"github.com/edge-rt/edge-rt/server/queue"
	"github.com/edge-rt/edge-rt/server/quota"
	"github.com/edge-rt/edge-rt/wire"
)

// A robot that repeats its request when it gets no answer may do so once more while the answer is on the way. So for
// 1/echoShare of the inference's duration, at most echoMost, the server drops such a repeat.
const (
	echoShare = 10
	echoMost  = 200 * time.Millisecond
)

// chunkBytes returns the size of an encoded chunk.
func chunkBytes(m *policy.Meta) int {
	const besideMatrices = 1024
	return 2*4*m.ChunkSize*m.ActionDim + besideMatrices
}

// publisher sends a robot its chunk, or an event with the reason why there is no chunk.
//
// Owner: worker.
type publisher struct {
	// Constant after New.
	id       string // server_id
	model    string // digest of the policy
	clock    rt.Clock
	log      *slog.Logger
	sessions *registry
	stats    *stats
	pool     *queue.Pool   // pool of the mailboxes
	audit    *audit.Writer // nil: no request is recorded
	engine   *engine       // the engine, whose rows have the chunks
	leaving  chan struct{} // closed when the server shuts down

	chunk      wire.ActionChunk
	payload    []byte
	attachment []byte
	events     eventWriter
}

// answer ends the requests in the slots of a run that has ended.
//
//rt:noalloc
func (p *publisher) answer(b *buffer, e batch.Ended) {
	for i := range b.used {
		if t := &b.slots[i]; t.session != nil {
			p.answerOne(t, &e)
		}
	}
}

// answerOne ends the request of a slot whose row has run.
//
//rt:noalloc
func (p *publisher) answerOne(t *slot, e *batch.Ended) {
	f := &t.filled
	t.Decode, t.Inference = t.ready.Sub(t.begun), e.At.Sub(e.Begun)
	t.QueueWait = e.Begun.Sub(t.request.At) - t.Decode // wait for its turn and for the device
	t.Batch, t.Row = e.Size, t.row-t.buffer.first
	t.Controls, t.Task = f.Controls, f.task.text
	t.Stale, t.Cameras = uint32(f.stale), p.engine.tensors.contract.Cameras
	t.session.countPictures(p.stats, f.stale, f.stray, f.squeezed)
	if k, held := t.session.meter.Used(e.At, t.Inference/time.Duration(e.Size)); held {
		p.stats.held[k].Add(1)
	}
	err := e.Err
	switch {
	case err != nil:
		t.Outcome = audit.InferenceFailed
	case t.err != nil:
		t.Outcome, err = audit.NotFinite, t.err
	default:
		p.stats.wait.record(t.QueueWait)
		p.stats.decode.record(t.Decode)
		p.stats.inference.record(t.Inference)
		p.engine.tally.inference.Record(t.Inference)
		p.engine.tally.pace.served(t.Inference)
		p.stats.modes[t.Controls.Mode].Add(1)
		p.stats.spans[f.spans].Add(1)
		p.engine.tensors.remember(t.row, t.session, f)
	}
	p.close(t, err)
}

// close ends the request of a slot: it sends the chunk in the slot's row or, if err is not nil, an event with the
// reason why there is no chunk.
//
//rt:noalloc
func (p *publisher) close(t *slot, err error) {
	s, r := t.session, t.request
	var reply []byte
	switch {
	case err == nil:
		reply = p.publish(t, p.engine.tensors)
	case p.engine.failed.Load() != nil || t.Outcome != audit.BadObservation && p.stopped():
		p.stats.outcomes[t.Outcome].Add(1)
		t.Why = eventText(err) // Serve informs all robots that the server shuts down
	default:
		p.stats.outcomes[t.Outcome].Add(1)
		p.refuse(t, err)
	}
	t.At = p.clock.Now()
	t.Service = t.At.Sub(r.At)
	if t.Rows > 0 {
		p.stats.service.record(t.Service)
		p.engine.tally.answered.Add(1)
		s.answered.Add(1)
		s.shown.service.Store(int64(t.Service))
	} else {
		p.engine.tally.failed.Add(1)
		s.shown.failed.Add(1)
	}
	t.Model = p.model
	p.audit.Add(&t.Record, r.Body, reply)
	if err == nil && t.Outcome != audit.Unsent &&
		s.mailbox.DropAnswered(r, t.At.Add(min(t.Inference/echoShare, echoMost))) {
		p.stats.superseded.Add(1)
		s.shown.superseded.Add(1)
	}
	s.inHand.Store(false)
	p.pool.Return(r)
	t.session, t.request = nil, nil
}

// stopped reports whether the server shuts down.
//
//rt:noalloc
func (p *publisher) stopped() bool {
	select {
	case <-p.leaving:
		return true
	default:
		return false
	}
}

// publish sends the chunk in the slot's row of out, and returns its encoded body, which is valid until the next call.
// The chunk replaces an earlier chunk of the robot that the link has not begun to send, so that a robot that reads
// slowly gets the newest chunk.
//
//rt:noalloc
func (p *publisher) publish(t *slot, out *tensors) (payload []byte) {
	c := &p.chunk
	out.chunk(c, t.row, &t.Header, &t.filled)
	c.QueueWaitMs, c.InferenceMs = ms(t.QueueWait), ms(t.Decode+t.Inference)
	c.SupersededSeqs = t.session.mailbox.TakeSuperseded()
	c.ServerLoad = p.sessions.load()
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

// refuse sends the robot an event with the reason why there is no chunk, and logs the reason. If the robot got such an
// event a moment before, refuse only counts the new one. The event's code is unavailable while the policy's program is
// away. Otherwise it is bad_observation, even after a failure of the model, because a repeat would fail as well.
//
//go:noinline
func (p *publisher) refuse(t *slot, err error) {
	t.Why = eventText(err)
	if !t.session.refusals.allow(p.clock.Now()) {
		p.stats.silenced.Add(1)
		return
	}
	p.log.Warn("no chunk", "client", t.session.uuid, "session", t.session.id, "seq", t.Header.SeqID, "why", err)
	code := wire.EventBadObservation
	if errors.Is(err, policy.ErrAway) {
		code = wire.EventUnavailable
	}
	p.events.put(t.session, &t.Header, code, t.Why)
}

// quotaInterval is the least time between two events that inform a robot of its quota.
const quotaInterval = time.Second

// hold informs a robot that it waits for its quota.
//
//rt:noalloc
func (p *publisher) hold(s *session, k quota.Kind, now rt.Instant) {
	// a client of the draft would treat the event as a lost chunk
	if s.extended && (s.heldTold == 0 || now.Sub(s.heldTold) >= quotaInterval) {
		s.heldTold = now
		p.informQuota(s, k)
	}
}

//go:noinline
func (p *publisher) informQuota(s *session, k quota.Kind) {
	p.events.inform(s, wire.EventQuota, s.meter.Says(k))
}

// passOver informs a robot that other robots are served first, because its actions would end before its chunk could
// arrive. It does so once for each observation.
//
//rt:noalloc
func (p *publisher) passOver(s *session) {
	h, ok := s.mailbox.PassOver()
	if !ok {
		return
	}
	p.stats.passedOver.Add(1)
	s.shown.passedOver.Add(1)
	switch {
	case !s.extended: // a client of the draft would treat the event as a lost chunk
	case s.refusals.allow(p.clock.Now()):
		p.events.put(s, &h, wire.EventLate, lateText)
	default:
		p.stats.silenced.Add(1)
	}
}
