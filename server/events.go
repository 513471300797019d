package server

import (
	"strings"
	"time"

	"edgert/rt"
	"edgert/wire"
)

const (
	eventsWaiting = 64

	// unknownMax bounds the robots without a session that get events, and
	// unknownMemory is how long each is remembered.
	unknownMax    = 256
	unknownMemory = 10 * time.Second
	// unknownInterval is the shortest time between two events to one of them.
	unknownInterval = time.Second
)

// events are those for robots whose observations were refused on arrival, where
// nothing may be published: they wait for the housekeeping.
type events struct {
	*service
	waiting chan event

	// Owner: housekeeping.
	writer  eventWriter
	unknown map[string]unknownRobot // by uuid
}

type event struct {
	uuid   string
	header wire.Header
	code   wire.EventCode
	text   string
}

// unknownRobot is one that sends without a session.
type unknownRobot struct {
	publisher wire.Publisher
	sent      rt.Instant // the last event
}

func newEvents(s *service) *events {
	return &events{service: s, waiting: make(chan event, eventsWaiting), unknown: make(map[string]unknownRobot)}
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
	sent := false
	if session := e.sessions.find(ev.uuid); session == nil {
		sent = e.sendUnknown(ev)
	} else if ev.code == wire.EventUnknownSession { // it opened meanwhile
		return
	} else if sent = session.warnings.allow(e.clock.Now()); sent {
		e.put(session.actions, ev, session.nonce)
	}
	if !sent {
		e.stats.silenced.Add(1)
	}
}

func (e *events) sendUnknown(ev event) (sent bool) {
	now := e.clock.Now()
	robot, ok := e.unknown[ev.uuid]
	if ok && now.Sub(robot.sent) < unknownInterval {
		return false
	}
	if !ok {
		key, err := wire.ActionKey(e.prefix, ev.uuid)
		if err != nil || len(e.unknown) >= unknownMax {
			return false
		}
		if robot.publisher, err = e.network.Publisher(key, wire.ActionQoS); err != nil {
			return false
		}
		e.log.Warn("observations without a session", "client", ev.uuid, "why", ev.text)
	}
	e.put(robot.publisher, ev, 0)
	robot.sent = now
	e.unknown[ev.uuid] = robot
	return true
}

func (e *events) put(p wire.Publisher, ev event, nonce int64) {
	e.writer.put(p, &ev.header, &wire.Event{Code: ev.code, Text: ev.text, Seq: ev.header.SeqID, ServerID: e.id, Nonce: nonce})
}

func (e *events) forget(uuid string) {
	if robot, ok := e.unknown[uuid]; ok {
		_ = robot.publisher.Undeclare() // it stays declared at worst
		delete(e.unknown, uuid)
	}
}

func (e *events) forgetSilent(now rt.Instant) {
	for uuid, robot := range e.unknown {
		if now.Sub(robot.sent) > unknownMemory {
			e.forget(uuid)
		}
	}
}
