package server

import (
	"strings"

	"github.com/edge-rt/edge-rt/wire"
)

const eventsWaiting = 64

// events are the events to robots whose observations were refused in the transport's callback,
// which may not publish: housekeeping sends them.
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
