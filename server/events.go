package server

import (
	"strings"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/wire"
)

const eventsWaiting = 64

// events are the events to robots whose observations were refused in the transport's callback,
// which may not publish: housekeeping sends them.
type events struct {
	clock    rt.Clock
	sessions *registry
	stats    *stats
	id       string // server_id
	waiting  chan event

	// Owner: housekeeping.
	writer eventWriter
}

type event struct {
	uuid   string
	header wire.Header
	code   wire.EventCode
	text   string
}

// queue has an event sent to a robot; uuid is only lent. When too many events wait, it is dropped
// and counted.
//
// Owner: any goroutine.
//
//go:noinline
func (e *events) queue(uuid string, h wire.Header, code wire.EventCode, why error) {
	select {
	case e.waiting <- event{strings.Clone(uuid), h, code, eventText(why)}:
	default:
		e.stats.silenced.Add(1)
	}
}

// send sends an event to a robot, at most one per interval.
func (e *events) send(ev event) {
	session := e.sessions.find(ev.uuid)
	if session == nil || !session.warnings.allow(e.clock.Now()) {
		e.stats.silenced.Add(1)
		return
	}
	e.writer.put(session.actions, &ev.header, &wire.Event{
		Code:     ev.code,
		Text:     ev.text,
		Seq:      ev.header.SeqID,
		ServerID: e.id,
		Nonce:    session.nonce,
	})
}

// putClosed informs a robot that its session has ended here.
func (e *events) putClosed(s *Session, why string) {
	h := s.header()
	e.writer.put(s.actions, &h, &wire.Event{
		Code:     wire.EventUnknownSession,
		Text:     why,
		ServerID: e.id,
		Nonce:    s.nonce,
	})
}

const eventTextMax = 1024 // bytes

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
	failedText   = "this server's device failed and it restarts: open elsewhere"
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
