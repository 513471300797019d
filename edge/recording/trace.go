package recording

import (
	"time"

	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/wire/otlp"
)

// tracedRequests is the number of requests that may wait for their answers. An older request counts as unanswered.
const tracedRequests = 32

// traces makes spans from the record's messages. Owner: the record's thread.
type traces struct {
	to   *otlp.Exporter
	wall func() int64 // Unix time of instant 0, in ns
	open [tracedRequests]tracedRequest
}

// tracedRequest is a request that waits for its answer. Seq is 0 in a free slot.
type tracedRequest struct {
	record.Request
	sent    rt.Instant // instant at which the observation left; 0: it has not left
	bytes   int64
	outcome string // outcome of sending
}

// Traces returns a visitor of the record's messages that sends the spans of each request.
// wall returns the Unix time of instant 0, in ns.
func Traces(to *otlp.Exporter, wall func() int64) record.Visitor {
	t := &traces{to: to, wall: wall}
	return record.Visitor{Request: t.request, Sent: t.sent, Chunk: t.chunk}
}

func (t *traces) request(m *record.Request) error {
	slot := &t.open[m.Seq%tracedRequests]
	if slot.Seq != 0 {
		t.finish(slot, m.At, "no answer", 0)
	}
	*slot = tracedRequest{Request: *m}
	return nil
}

func (t *traces) sent(m *record.Sent) error {
	if slot := &t.open[m.Seq%tracedRequests]; slot.Seq == m.Seq {
		slot.sent = m.At
		slot.bytes = m.Bytes
		slot.outcome = m.Outcome
	}
	return nil
}

func (t *traces) chunk(m *record.Chunk) error {
	slot := &t.open[m.Seq%tracedRequests]
	if slot.Seq != m.Seq {
		return nil
	}
	failed := m.Outcome
	if failed == record.Joined {
		failed = ""
	}
	t.finish(slot, m.At, failed, m.Dropped)
	return nil
}

// finish sends the spans of a request that ended, and frees its slot.
func (t *traces) finish(q *tracedRequest, end rt.Instant, failed string, dropped int32) {
	if q.Session == nil || q.Session.ID == "" { // no session was open: no server has spans of this request
		q.Seq = 0
		return
	}
	at := func(i rt.Instant) time.Time { return time.Unix(0, int64(i)+t.wall()) }
	ids := otlp.Of(q.Session.ID, q.Seq)
	t.to.Add(otlp.Span{
		Trace:  ids.Trace,
		ID:     ids.Robot,
		Name:   "request",
		Kind:   otlp.Client,
		Start:  at(q.At),
		End:    at(end),
		Failed: failed,
		Values: [8]otlp.Value{
			{Key: "edge_rt.session", Text: q.Session.ID},
			{Key: "edge_rt.seq", Number: int64(q.Seq)},
			{Key: "edge_rt.episode", Number: int64(q.Episode)},
			{Key: "edge_rt.step", Number: q.Step},
			{Key: "edge_rt.runway_ms", Number: time.Duration(q.Runway).Milliseconds()},
			{Key: "edge_rt.dropped_rows", Number: int64(dropped)},
			{Key: "edge_rt.bytes", Number: q.bytes},
		},
	})
	if q.sent != 0 {
		send := otlp.Span{
			Trace:  ids.Trace,
			ID:     otlp.Part(ids.Robot, 1),
			Parent: ids.Robot,
			Name:   "encode and send",
			Kind:   otlp.Internal,
			Start:  at(q.At),
			End:    at(q.sent),
		}
		if q.outcome != "sent" {
			send.Failed = q.outcome
		}
		t.to.Add(send)
	}
	q.Seq = 0
}
