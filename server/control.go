package server

import (
	"cmp"
	"fmt"
	"strings"

	"edgert/policy"
	"edgert/wire"
)

// queriesWaiting bounds the status, session and reset queries that wait for the
// steward; the next one is refused at once.
const queriesWaiting = 256

type queryKind uint8

const (
	statusQuery queryKind = iota
	sessionQuery
	resetQuery
)

type query struct {
	wire.Query
	kind queryKind
}

// enqueue hands a query to the steward: opening a session declares things,
// which a callback must not.
//
// Owner: the transport's receiving goroutines.
func (s *Server) enqueue(kind queryKind) func(wire.Query) {
	return func(q wire.Query) {
		select {
		case s.queries <- query{q, kind}:
		default:
			s.stats.lostQuery.Add(1)
			_ = q.ReplyErr([]byte("server busy: too many queries are waiting")) // the asker times out instead
			q.Finish()
		}
	}
}

// answer replies to one query and finishes it.
//
// Owner: steward.
func (s *Server) answer(q query) {
	defer q.Finish()
	key, body, silent := q.Key(), []byte(nil), false
	switch q.kind {
	case statusQuery:
		key = wire.StatusKey(s.prefix)
		status := s.status()
		body = wire.AppendStatus(nil, &status)
	case sessionQuery:
		key = wire.SessionKey(s.prefix)
		body, silent = s.session(q.Payload())
	case resetQuery:
		body = s.reset(key, q.Payload())
	}
	if silent {
		return
	}
	if err := q.Reply(key, body); err != nil {
		s.log.Warn("a reply was not sent", "key", key, "why", err)
	}
}

func (s *Server) status() wire.Status {
	return wire.Status{
		Capabilities:     s.capabilities(),
		MinSchemaVersion: wire.MinSchemaVersion, MaxSchemaVersion: wire.SchemaVersion,
		ActiveSessions: len(s.sessions.all()), MaxSessions: s.limit,
		ServerID: s.id, ServerLoad: s.load(), Draining: s.draining.Load(),
	}
}

func (s *Server) capabilities() wire.Capabilities {
	c := s.caps
	c.WarmedUp = s.warmed.Load()
	return c
}

func (s *Server) load() float64 { return float64(len(s.sessions.all())) / float64(s.limit) }

// session answers an open or a close. silent is true for an open that names
// another server: one of several replicas takes it.
func (s *Server) session(body []byte) (reply []byte, silent bool) {
	op, err := wire.ParseOp(body)
	if err == nil && op == wire.OpClose {
		var c wire.SessionClose
		if err := wire.ParseSessionClose(&c, body); err != nil {
			return wire.AppendResetAck(nil, &wire.ResetAck{Error: err.Error()}), false
		}
		s.close(&c)
		return wire.AppendResetAck(nil, &wire.ResetAck{OK: true}), false
	}
	var o wire.SessionOpen
	if err == nil {
		err = wire.ParseSessionOpen(&o, body)
	}
	if err != nil {
		s.stats.refused[refusedMalformed].Add(1)
		return wire.AppendSessionAck(nil, &wire.SessionAck{
			Error: "server error: " + err.Error(), SchemaVersion: wire.SchemaVersion, ServerLoad: s.load(), ServerID: s.id,
		}), false
	}
	if o.ServerID != "" && o.ServerID != s.id {
		return nil, true
	}
	ack := s.open(&o)
	return wire.AppendSessionAck(nil, &ack), false
}

// open validates and registers a session. The robot's earlier session, if
// there is one, is replaced and gives its publisher to the new one.
func (s *Server) open(o *wire.SessionOpen) wire.SessionAck {
	ack := wire.SessionAck{SchemaVersion: wire.SchemaVersion, ServerID: s.id, Draining: s.draining.Load()}
	judged := admission{caps: s.caps, views: s.meta.Cameras, cfg: &s.cfg, limit: s.limit, active: s.sessions.others(o.ClientUUID), open: o}
	r := judged.judge()
	if r == nil && ack.Draining {
		r = &refusal{refusedDraining, drainingText}
	}
	if r == nil {
		r, ack.HeldBy = s.taken(o)
	}
	var session *Session
	if r == nil {
		var err error
		if session, err = s.newSession(o, judged.downgraded); err != nil {
			r = &refusal{refusedInternal, "server error: " + err.Error()}
		}
	}
	if r != nil {
		s.stats.refused[r.reason].Add(1)
		s.log.Warn("session refused", "client", o.ClientUUID, "reason", r.reason.String(), "why", r.text)
		ack.Error, ack.ServerLoad = r.text, s.load()
		ack.RetryAfterMs = r.reason.retryAfter()
		return ack
	}
	s.admit(session)
	s.log.Info("session open", "client", session.uuid, "robot", o.RobotType, "host", o.Host, "fps", o.FPS, "rtc", session.rtc,
		"sessions", fmt.Sprintf("%d/%d", len(s.sessions.all()), s.limit), "warnings", len(judged.warnings))
	ack.Accepted, ack.Warnings, ack.SessionID = true, judged.warnings, session.id
	ack.Capabilities, ack.ServerLoad = s.capabilities(), s.load()
	ack.SupportsRTC, ack.Nonce = session.rtc, session.nonce
	return ack
}

// taken refuses a second process under the name of one that is there, and says
// where that runs. Who names no instance comes in, as at LeRobot's server.
func (s *Server) taken(o *wire.SessionOpen) (r *refusal, host string) {
	owner := s.sessions.find(o.ClientUUID)
	if o.Instance == "" || owner == nil || owner.instance == o.Instance || !owner.owned(s.clock.Now()) {
		return nil, ""
	}
	host = cmp.Or(owner.host, wire.HostUnknown)
	return &refusal{refusedTaken, fmt.Sprintf("client %s is open on host %s: give one of the two robots another id", pyString(o.ClientUUID), host)}, host
}

// admit registers a session in the place of its robot's earlier one.
func (s *Server) admit(session *Session) {
	if displaced := s.sessions.add(session); displaced != nil {
		s.stats.closed.Add(1)
	}
	s.stats.opened.Add(1)
	s.forgive(session.uuid)
	if s.draining.Load() { // it began meanwhile, and this robot was not told
		s.events.put(session.actions, drainingHeader(session), drainingEvent)
	}
}

// newSession prepares a session with a publisher on its robot's action key.
func (s *Server) newSession(o *wire.SessionOpen, downgraded bool) (*Session, error) {
	session := newSession(o.ClientUUID)
	session.rtc = o.RTCEnabled && !downgraded
	if session.rtc {
		session.past = policy.NewHistory(s.meta.ChunkSize, s.meta.ActionDim)
	}
	session.ours = o.ServerID != "" || o.SessionEpoch > 0
	session.noise = policy.NewNoiseKey(s.caps.ModelSHA256, o.ClientUUID)
	session.instance, session.host = o.Instance, o.Host
	if o.Instance != "" {
		session.nonce = randomNonce()
	}
	session.seenAt.Store(int64(s.clock.Now()))
	if session.task = o.Task; session.task == "" {
		session.task = s.cfg.DefaultTask
	}
	if o.SessionEpoch > 0 {
		session.tokenEpoch.Store(int64(o.SessionEpoch))
	}
	if old := s.sessions.find(o.ClientUUID); old != nil {
		session.actions = old.actions
		return session, nil
	}
	key, err := wire.ActionKey(s.prefix, o.ClientUUID)
	if err != nil {
		return nil, err
	}
	session.actions, err = s.network.Publisher(key, wire.ActionQoS)
	return session, err
}

// close ends the session that c names; a stale session id is ignored, and a
// robot without a session has nothing to close.
func (s *Server) close(c *wire.SessionClose) {
	session := s.sessions.find(c.ClientUUID)
	if session == nil || c.SessionID != "" && c.SessionID != session.id {
		return
	}
	s.drop(session, "the client closed it")
}

// drop takes a session out and forgets its publisher.
//
// Owner: steward.
func (s *Server) drop(session *Session, why string) {
	if !s.sessions.remove(session) {
		return
	}
	s.stats.closed.Add(1)
	s.log.Info("session closed", "client", session.uuid, "why", why, "sessions", fmt.Sprintf("%d/%d", len(s.sessions.all()), s.limit),
		"stale_pictures", session.stalePictures.Load(), "warned_pictures", session.warnedPictures.Load())
	if err := session.actions.Undeclare(); err != nil {
		s.log.Warn("a publisher was not withdrawn", "client", session.uuid, "why", err)
	}
}

// reset starts an episode. The key and the body must name the same robot: a
// router's access rules look at the key, so the body must not be able to reach
// further.
func (s *Server) reset(key string, body []byte) []byte {
	ack := wire.ResetAck{OK: true}
	var m wire.Reset
	err := wire.ParseReset(&m, body)
	uuid, _ := wire.ClientUUID(key)
	session := s.sessions.find(m.ClientUUID)
	switch {
	case err != nil:
		ack = wire.ResetAck{Error: err.Error()}
	case uuid != m.ClientUUID && !strings.ContainsAny(uuid, "*$"):
		ack = wire.ResetAck{Error: fmt.Sprintf("key names client %s, body names %s", pyString(uuid), pyString(m.ClientUUID))}
	case session == nil:
		ack = wire.ResetAck{Error: "unknown client " + pyString(m.ClientUUID)}
	default:
		session.reset(int64(m.EpisodeID))
	}
	return wire.AppendResetAck(nil, &ack)
}
