package server

import (
	"strings"

	"edgert/wire"
)

const eventsWaiting = 64

// events are those for robots whose observations were refused on arrival, where
// nothing may be published: they wait for the housekeeping.
type events struct {
	*service
	waiting chan event

	// Owner: housekeeping.
	writer eventWriter
}

type event struct {
	uuid   string
	header wire.Header
	code   wire.EventCode
	text   string
}

func newEvents(s *service) *events {
	return &events{service: s, waiting: make(chan event, eventsWaiting)}
}

// queue has an event sent to a robot whose name is only lent. When there are too
// many, it is lost and counted.
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
	e.writer.put(session.actions, &ev.header, &wire.Event{Code: ev.code, Text: ev.text, Seq: ev.header.SeqID, ServerID: e.id, Nonce: session.nonce})
}

// putClosed tells a robot that its session has ended here.
func (e *events) putClosed(s *Session, why string) {
	h := s.header()
	e.writer.put(s.actions, &h, &wire.Event{Code: wire.EventUnknownSession, Text: why, ServerID: e.id, Nonce: s.nonce})
}
