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
	e.writer.put(session, &ev.header, ev.code, ev.text)
}

const eventTextMax = 1024 // bytes

//go:noinline
func eventText(err error) string {
	text := err.Error()
	return strings.ToValidUTF8(text[:min(len(text), eventTextMax)], "")
}

// eventWriter publishes events; it owns their buffers.
type eventWriter struct {
	id           string // server_id
	body, header []byte
}

// put publishes an event with the header of the observation that it answers. A lost event is no
// worse than the chunk that was not sent.
func (w *eventWriter) put(s *session, h *wire.Header, code wire.EventCode, text string) {
	e := wire.Event{
		Code:     code,
		Text:     text,
		Seq:      h.SeqID,
		ServerID: w.id,
		Nonce:    s.nonce,
	}
	if code == wire.EventDraining {
		e.RetryAfterMs = retryAfterDraining
	}
	w.body = wire.AppendEvent(w.body[:0], &e)
	w.header = wire.AppendHeader(w.header[:0], h.Reply(wire.MsgEvent))
	_ = s.actions.Put(w.body, w.header)
}

// inform publishes an event that answers no observation.
func (w *eventWriter) inform(s *session, code wire.EventCode, text string) {
	w.put(s, &wire.Header{
		SchemaVersion: wire.SchemaVersion,
		EpisodeID:     uint32(max(0, s.episode.Load())),
		SessionEpoch:  s.epoch,
	}, code, text)
}

const (
	lateText     = "your actions end before a chunk can come: robots that can still be served go first"
	drainingText = "server is draining: open elsewhere"
	failedText   = "this server's device failed and it restarts: open elsewhere"
)

// retryAfterDraining is after how many ms a robot without another server may ask again: about the
// time of a restart.
const retryAfterDraining = 1000
