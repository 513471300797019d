package server

import (
	"context"
	"errors"
	"strings"
	"time"

	"edgert/rt"
	"edgert/wire"
)

const (
	housekeeping = time.Second
	// tokenGrace is how long a robot's token may be gone before its session goes:
	// LeRobot's figure, longer than a reconnect takes.
	tokenGrace = 5 * time.Second
	// idleTimeout closes a session whose robot neither sends nor shows a token.
	idleTimeout = 300 * time.Second
	// tokenTimeout bounds the question which robots are really gone.
	tokenTimeout = 500 * time.Millisecond

	// strangersMax bounds the robots without a session that are told so, and
	// strangerMemory is how long each is remembered.
	strangersMax   = 256
	strangerMemory = 10 * time.Second
	// strangerInterval is the shortest time between two events to one of them.
	strangerInterval = time.Second

	noticesWaiting = 64

	// idleGCObjects is how many heap objects may pile up before an idle server
	// collects by hand; the collector is off while it serves.
	idleGCObjects = 200_000
	// busyGCBytes is how much garbage a server that is never idle collects by
	// hand, between two requests. Robots that behave leave none: it comes from
	// links, queries and pages that come and go, well before the fuse of rt.HoldGC.
	busyGCBytes = 16 << 20
)

var errLate = errors.New("a newer observation was here already")

// notice is an event for a robot that cannot be told from a callback.
type notice struct {
	uuid   string
	header wire.Header
	code   wire.EventCode
	text   string
}

// stranger is a robot that sends without a session.
type stranger struct {
	publisher wire.Publisher
	told      rt.Instant
}

// onObservation is the observation subscriber: find the mailbox, copy, wake the
// worker.
//
// Owner: the transport's receiving goroutines.
//
//rt:noalloc
func (s *Server) onObservation(sample wire.Sample) {
	now := s.clock.Now()
	h, err := wire.ParseHeader(sample.Attachment)
	if err == nil {
		err = h.Check(wire.MsgObservation)
	}
	uuid, keyErr := wire.ClientUUID(sample.Key)
	if keyErr != nil {
		s.stats.malformed.Add(1)
		return
	}
	s.stats.receivedBytes.Add(uint64(len(sample.Payload)))
	session := s.sessions.find(uuid)
	switch {
	case err != nil:
		s.stats.malformed.Add(1)
		s.notify(uuid, h, wire.EventBadObservation, err)
	case len(sample.Payload) > s.observationMax:
		s.stats.malformed.Add(1)
		s.notify(uuid, h, wire.EventBadObservation, errTooLarge)
	case session == nil:
		s.stats.unknown.Add(1)
		s.notify(uuid, h, wire.EventUnknownSession, errNoSession)
	default:
		room := session.box.size.Load()
		newest, replaced := session.deposit(h, sample.Payload, now)
		if session.box.size.Load() != room {
			poke(s.grown)
		}
		if !newest {
			s.stats.late.Add(1)
			// An old client takes an event for the answer to its newest request.
			if session.ours && session.box.overtaken(h) {
				s.queue(notice{session.uuid, h, wire.EventLate, errLate.Error()})
			}
			return
		}
		if replaced {
			s.stats.superseded.Add(1)
		}
		poke(s.worker.wake)
	}
}

// notify queues an event for a robot whose name is only lent.
//
//go:noinline
func (s *Server) notify(uuid string, h wire.Header, code wire.EventCode, why error) {
	s.queue(notice{strings.Clone(uuid), h, code, because(why)})
}

// queue hands an event to the steward to send; when there are too many, it is
// lost and counted.
//
//go:noinline
func (s *Server) queue(n notice) {
	select {
	case s.notices <- n:
	default:
		s.stats.silenced.Add(1)
	}
}

// onToken is the subscriber of the robots' liveliness tokens, of both forms.
//
// Owner: the transport's receiving goroutines.
func (s *Server) onToken(key string, alive bool) {
	if uuid, epoch, err := wire.ParseEpochAlive(s.prefix, key); err == nil {
		if session := s.sessions.find(uuid); session != nil {
			session.epochTokenChanged(epoch, alive, s.clock.Now())
		}
		return
	}
	uuid, err := wire.ClientUUID(key)
	if err != nil {
		return
	}
	if session := s.sessions.find(uuid); session != nil { // the server's own token has none
		session.tokenChanged(alive, s.clock.Now())
	}
}

// steward does what may take time and may allocate: queries, events to
// strangers, and the garbage of robots that left. It ends with ctx.
func (s *Server) steward(ctx context.Context) {
	tick := time.NewTicker(housekeeping)
	defer tick.Stop()
	for {
		select {
		case q := <-s.queries:
			s.answer(q)
		case n := <-s.notices:
			s.tell(n)
		case <-s.grown:
			s.allow()
		case <-tick.C:
			s.housekeep(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// tell sends an event to a robot, at most one per interval.
func (s *Server) tell(n notice) {
	event := wire.Event{Code: n.code, Text: n.text, Seq: n.header.SeqID}
	now := s.clock.Now()
	if session := s.sessions.find(n.uuid); session != nil {
		switch {
		case n.code == wire.EventUnknownSession: // it opened meanwhile
		case session.warned.due(now):
			s.events.put(session.actions, &n.header, &event)
		default:
			s.stats.silenced.Add(1)
		}
		return
	}
	known, ok := s.strangers[n.uuid]
	if ok && now.Sub(known.told) < strangerInterval {
		s.stats.silenced.Add(1)
		return
	}
	if !ok {
		key, err := wire.ActionKey(s.prefix, n.uuid)
		if err != nil || len(s.strangers) >= strangersMax {
			s.stats.silenced.Add(1)
			return
		}
		if known.publisher, err = s.network.Publisher(key, wire.ActionQoS); err != nil {
			s.stats.silenced.Add(1)
			return
		}
		s.log.Warn("observations without a session", "client", n.uuid, "why", n.text)
	}
	s.events.put(known.publisher, &n.header, &event)
	known.told = now
	s.strangers[n.uuid] = known
}

// forgive forgets that a robot was a stranger.
func (s *Server) forgive(uuid string) {
	if known, ok := s.strangers[uuid]; ok {
		_ = known.publisher.Undeclare() // it stays declared at worst
		delete(s.strangers, uuid)
	}
}

// housekeep runs about once a second.
func (s *Server) housekeep(ctx context.Context) {
	now := s.clock.Now()
	for uuid, known := range s.strangers {
		if now.Sub(known.told) > strangerMemory {
			s.forgive(uuid)
		}
	}
	s.tellStale()
	s.collectSessions(ctx, now)
	s.collectHeap()
}

// collectSessions closes the sessions of robots that are gone: the token
// vanished and stayed away, or nothing was heard for long. A token that another
// link still shows saves the session, and so does being cut off ourselves.
func (s *Server) collectSessions(ctx context.Context, now rt.Instant) {
	var gone []*Session
	for _, session := range s.sessions.all() {
		if s.gone(session, now) != "" {
			gone = append(gone, session)
		}
	}
	if len(gone) == 0 || !s.network.Connected() {
		return
	}
	present := make(map[string]bool)
	for _, wildcard := range []string{wire.ClientAliveWildcard(s.prefix), wire.EpochAliveWildcard(s.prefix)} {
		keys, err := s.network.Tokens(ctx, wildcard, tokenTimeout)
		if err != nil {
			s.log.Warn("cannot ask which robots are there; their sessions stay", "why", err)
			return
		}
		for _, key := range keys {
			rest, _ := strings.CutPrefix(key, s.prefix+"/")
			uuid, _, _ := strings.Cut(rest, "/")
			present[uuid] = true
		}
	}
	for _, session := range gone {
		why := s.gone(session, now) // it may have sent meanwhile
		switch {
		case why == "":
		case present[session.uuid]:
			session.droppedAt.Store(0)
			session.seenAt.Store(int64(now))
		default:
			s.drop(session, why)
		}
	}
}

func (s *Server) gone(session *Session, now rt.Instant) (why string) {
	dropped := rt.Instant(session.droppedAt.Load())
	switch {
	case dropped != 0 && now.Sub(dropped) > tokenGrace:
		return "liveliness token dropped"
	case now.Sub(rt.Instant(session.seenAt.Load())) > idleTimeout:
		return "idle timeout"
	}
	return ""
}

// allow moves the collector's fuse by what the mailboxes take.
func (s *Server) allow() {
	var mailboxes int64
	for _, session := range s.sessions.all() {
		mailboxes += session.box.size.Load()
	}
	s.gc.Allow(mailboxes)
}

// collectHeap has garbage collected by hand when no robot was served since it
// last looked, so that the collector never has to run while one waits, and
// between two requests when much has piled up meanwhile.
func (s *Server) collectHeap() {
	served := s.stats.outcomes[answered].Load()
	idle := served == s.servedBefore
	s.servedBefore = served
	s.allow() // fewer sessions, too
	heap := rt.ReadHeap()
	switch {
	case heap.Cycles != s.collected.Cycles: // the worker, the fuse, or the transport
		s.collected = heap
	case idle && heap.Allocs-s.collected.Allocs > idleGCObjects,
		heap.Bytes-s.collected.Bytes > busyGCBytes:
		s.worker.collectNext()
	}
}
