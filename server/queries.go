package server

import (
	"cmp"
	"fmt"
	"strings"

	"edgert/policy"
	"edgert/server/acl"
	"edgert/wire"
)

// queriesWaiting bounds the status, session and reset queries that wait for the
// housekeeping; the next one is refused at once.
const queriesWaiting = 256

// query is one and what answers it: with a nil body it stays without a reply.
type query struct {
	wire.Query
	reply func(wire.Query) (key string, body []byte)
}

// queries are those that ask for the server's status and that open, close and
// reset sessions.
//
// Owner: housekeeping.
type queries struct {
	*service
	waiting chan query
	events  *events
}

// enqueue leaves queries to housekeeping: a callback must not declare things.
//
// Owner: the transport's receiving goroutines.
func (q *queries) enqueue(reply func(wire.Query) (string, []byte)) func(wire.Query) {
	return func(asked wire.Query) {
		select {
		case q.waiting <- query{asked, reply}:
		default:
			q.stats.lostQuery.Add(1)
			_ = asked.ReplyErr([]byte("server busy: too many queries are waiting")) // the asker times out instead
			asked.Finish()
		}
	}
}

func (q *queries) answer(asked query) {
	defer asked.Finish()
	key, body := asked.reply(asked.Query)
	if body == nil {
		return
	}
	if err := asked.Reply(key, body); err != nil {
		q.log.Warn("a reply was not sent", "key", key, "why", err)
	}
}

func (q *queries) status(wire.Query) (key string, body []byte) {
	return wire.StatusKey(q.prefix), wire.AppendStatus(nil, &wire.Status{
		Capabilities:     q.capabilities(),
		MinSchemaVersion: wire.MinSchemaVersion, MaxSchemaVersion: wire.SchemaVersion,
		ActiveSessions: len(q.sessions.all()), MaxSessions: q.limit,
		ServerID: q.id, ServerLoad: q.load(), Draining: q.draining.Load(), Device: q.placement.Device.String(),
	})
}

func (q *queries) capabilities() wire.Capabilities {
	c := q.caps
	c.WarmedUp = q.warmed.Load()
	return c
}

// session answers an open or a close. An open that names another server is not
// answered: one of several replicas takes it.
func (q *queries) session(asked wire.Query) (key string, reply []byte) {
	key, body := wire.SessionKey(q.prefix), asked.Payload()
	op, err := wire.ParseOp(body)
	if err == nil && op == wire.OpClose {
		ack := wire.ResetAck{OK: true}
		var c wire.SessionClose
		if err := wire.ParseSessionClose(&c, body); err != nil {
			ack = wire.ResetAck{Error: err.Error()}
		} else if err := q.close(&c, asked.From()); err != nil {
			ack = wire.ResetAck{Error: err.Error()}
		}
		return key, wire.AppendResetAck(nil, &ack)
	}
	var o wire.SessionOpen
	if err == nil {
		err = wire.ParseSessionOpen(&o, body)
	}
	if err != nil {
		q.stats.refused[refusedMalformed].Add(1)
		return key, wire.AppendSessionAck(nil, &wire.SessionAck{
			Error: "server error: " + err.Error(), SchemaVersion: wire.SchemaVersion, ServerLoad: q.load(), ServerID: q.id,
		})
	}
	if o.ServerID != "" && o.ServerID != q.id {
		return key, nil
	}
	ack := q.open(&o, asked.From())
	return key, wire.AppendSessionAck(nil, &ack)
}

// robotSession is session at the key of one robot, who may be the only one that is
// let to it: the body must name the same.
func (q *queries) robotSession(asked wire.Query) (key string, reply []byte) {
	key = asked.Key()
	named, _ := wire.ClientUUID(key)
	uuid, err := acl.Asker(asked.Payload())
	if err != nil || uuid == named {
		_, reply = q.session(asked)
		return key, reply
	}
	q.stats.refused[refusedMalformed].Add(1)
	text := fmt.Sprintf("key names client %s, body names %s", pyString(named), pyString(uuid))
	if op, _ := wire.ParseOp(asked.Payload()); op == wire.OpClose {
		return key, wire.AppendResetAck(nil, &wire.ResetAck{Error: text})
	}
	return key, wire.AppendSessionAck(nil, &wire.SessionAck{Error: text, SchemaVersion: wire.SchemaVersion, ServerLoad: q.load(), ServerID: q.id})
}

// open validates and registers a session. The robot's earlier session, if
// there is one, is replaced and gives its publisher to the new one. from names who
// asks, see wire.Query.
func (q *queries) open(o *wire.SessionOpen, from string) wire.SessionAck {
	ack := wire.SessionAck{SchemaVersion: wire.SchemaVersion, ServerID: q.id, Draining: q.draining.Load()}
	admission := admission{caps: q.caps, cameras: q.meta.Cameras, cfg: &q.cfg, tasks: &q.tasks, observed: q.meta.Steps(), limit: q.limit, active: q.sessions.others(o.ClientUUID), open: o}
	r := admission.check()
	if r == nil && ack.Draining {
		r = &refusal{refusedDraining, drainingText}
	}
	if r == nil {
		r, ack.HeldBy = q.checkOwner(o, from)
	}
	var session *Session
	if r == nil {
		var err error
		if session, err = q.newSession(o, admission.opened, admission.downgraded); err != nil {
			r = &refusal{refusedInternal, "server error: " + err.Error()}
		}
	}
	if r != nil {
		q.stats.refused[r.reason].Add(1)
		q.log.Warn("session refused", "client", o.ClientUUID, "reason", r.reason.String(), "why", r.text)
		ack.Error, ack.ServerLoad = r.text, q.load()
		ack.RetryAfterMs = refusals[r.reason].retryAfter
		return ack
	}
	session.from = from
	q.register(session)
	q.log.Info("session open", "client", session.uuid, "robot", o.RobotType, "host", o.Host, "fps", o.FPS, "rtc", session.rtc,
		"sessions", fmt.Sprintf("%d/%d", len(q.sessions.all()), q.limit), "warnings", len(admission.warnings), "tags", tagText(o.Tags))
	for _, text := range admission.warnings {
		q.log.Warn("session opened with a warning", "client", session.uuid, "why", text)
	}
	ack.Accepted, ack.Warnings, ack.SessionID = true, admission.warnings, session.id
	ack.Capabilities, ack.ServerLoad = q.capabilities(), q.load()
	ack.SupportsRTC, ack.Nonce = session.rtc, session.nonce
	return ack
}

// tagText is a robot's tags for the log: k=v, with commas.
func tagText(tags []wire.Tag) string {
	all := make([]string, len(tags))
	for i, t := range tags {
		all[i] = t.Key + "=" + t.Value
	}
	return strings.Join(all, ",")
}

// checkOwner refuses a second process under the name of one that is there, and says
// where that runs. A client that names no instance is known by its link or
// certificate; behind a router nobody can tell it from another such client.
func (q *queries) checkOwner(o *wire.SessionOpen, from string) (r *refusal, host string) {
	owner := q.sessions.find(o.ClientUUID)
	switch {
	case owner == nil || !owner.owned(q.clock.Now()):
		return nil, ""
	case owner.instance == o.Instance && (o.Instance != "" || owner.from == from):
		return nil, ""
	case o.Instance == "" && from != "" && owner.from == from:
		return nil, ""
	}
	host = cmp.Or(owner.host, wire.HostUnknown)
	return &refusal{refusedTaken, fmt.Sprintf("client %s is open on host %s: give one of the two robots another id", pyString(o.ClientUUID), host)}, host
}

func (q *queries) register(session *Session) {
	if displaced := q.sessions.add(session); displaced != nil {
		q.stats.closed.Add(1)
	}
	q.stats.opened.Add(1)
	q.events.forget(session.uuid)
	if q.draining.Load() { // it began meanwhile, without an event for this robot
		q.events.writer.putDraining(q.id, session, drainingText)
	}
}

func (q *queries) newSession(o *wire.SessionOpen, opened *task, downgraded bool) (*Session, error) {
	session := newSession(o.ClientUUID, q.pool)
	session.opened = opened
	session.rtc = o.RTCEnabled && !downgraded
	if session.rtc {
		session.history = policy.NewHistory(q.meta.ChunkSize, q.meta.ActionDim)
	}
	session.extended = o.ServerID != "" || o.SessionEpoch > 0
	session.noise = policy.NewNoiseKey(q.caps.ModelSHA256, o.ClientUUID)
	session.instance, session.host = o.Instance, o.Host
	if o.Instance != "" {
		session.nonce = randomNonce()
	}
	session.seenAt.Store(int64(q.clock.Now()))
	if o.SessionEpoch > 0 {
		session.tokenEpoch.Store(int64(o.SessionEpoch))
	}
	if old := q.sessions.find(o.ClientUUID); old != nil {
		session.actions = old.actions
		return session, nil
	}
	key, err := wire.ActionKey(q.prefix, o.ClientUUID)
	if err != nil {
		return nil, err
	}
	session.actions, err = q.network.Publisher(key, wire.ActionQoS)
	return session, err
}

// close ends the session that c names; a stale session id is ignored, and a
// robot without a session has nothing to close. Without an id it is refused unless
// the link or certificate that opened the session asks.
func (q *queries) close(c *wire.SessionClose, from string) error {
	session := q.sessions.find(c.ClientUUID)
	switch {
	case session == nil || c.SessionID != "" && c.SessionID != session.id:
		return nil
	case c.SessionID == "" && (from == "" || from != session.from):
		return fmt.Errorf("client %s: a close without session_id counts from the link that opened the session only: name the session_id of the open's answer", pyString(c.ClientUUID))
	}
	q.drop(session, "the client closed it")
	return nil
}

// drop takes a session out and withdraws its publisher.
func (q *queries) drop(session *Session, why string) {
	if !q.sessions.remove(session) {
		return
	}
	q.stats.closed.Add(1)
	q.log.Info("session closed", "client", session.uuid, "why", why, "sessions", fmt.Sprintf("%d/%d", len(q.sessions.all()), q.limit),
		"stale_pictures", session.stalePictures.Load(), "warned_pictures", session.strayPictures.Load())
	if err := session.actions.Undeclare(); err != nil {
		q.log.Warn("a publisher was not withdrawn", "client", session.uuid, "why", err)
	}
}

// reset starts an episode. Key and body must name the same robot: a router's access
// rules look at the key only.
func (q *queries) reset(asked wire.Query) (key string, body []byte) {
	key = asked.Key()
	ack := wire.ResetAck{OK: true}
	var m wire.Reset
	err := wire.ParseReset(&m, asked.Payload())
	uuid, _ := wire.ClientUUID(key)
	session := q.sessions.find(m.ClientUUID)
	switch {
	case err != nil:
		ack = wire.ResetAck{Error: err.Error()}
	case uuid != m.ClientUUID && !strings.ContainsAny(uuid, "*$"):
		ack = wire.ResetAck{Error: fmt.Sprintf("key names client %s, body names %s", pyString(uuid), pyString(m.ClientUUID))}
	case session == nil:
		ack = wire.ResetAck{Error: "unknown client " + pyString(m.ClientUUID)}
	default:
		if err := q.announce(session, m.Task); err != nil {
			ack = wire.ResetAck{Error: err.Error()}
			break
		}
		session.reset(int64(m.EpisodeID))
	}
	return key, wire.AppendResetAck(nil, &ack)
}

// announce reads the task that a reset names, so that the first observation with it
// finds it tokenised. One that the policy cannot read changes nothing.
func (q *queries) announce(s *Session, text string) error {
	if text == "" {
		return nil
	}
	announced, err := q.tasks.read(text)
	if err == nil {
		s.announced.Store(announced)
	}
	return err
}
