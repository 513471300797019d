package server

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/server/acl"
	"github.com/edge-rt/edge-rt/server/audit"
	"github.com/edge-rt/edge-rt/server/batch"
	"github.com/edge-rt/edge-rt/server/capacity"
	"github.com/edge-rt/edge-rt/server/memory"
	"github.com/edge-rt/edge-rt/server/quota"
	"github.com/edge-rt/edge-rt/wire"
)

// queriesWaiting bounds the status, session and reset queries that wait for the housekeeping; a
// further one is refused at once.
const queriesWaiting = 256

// query is a query with the function that answers it: a nil body sends no reply.
type query struct {
	wire.Query
	reply func(wire.Query) (key string, body []byte)
}

// queries answers the queries for the server's status and those that open, close and reset
// sessions.
//
// Owner: housekeeping.
type queries struct {
	*service
	waiting chan query
	counted chan struct{} // cap 1: the number of sessions has changed
	events  *events
	receive func(wire.Sample) // handler of observations
	room    wire.Declaration  // token that announces room for a session; nil: it is not shown
	book    *quota.Book
	auto    *capacity.Auto // max_sessions: auto; nil: it is a number
	sizes   *batch.Sizes   // the worker's expected durations of runs
	typical int64          // bytes that a robot with the policy's cameras needs. Constant
}

// enqueue returns a handler that leaves queries to housekeeping: a callback must not declare
// anything.
//
// Owner: the transport's receiving goroutines.
func (q *queries) enqueue(reply func(wire.Query) (string, []byte)) func(wire.Query) {
	return func(asked wire.Query) {
		select {
		case q.waiting <- query{asked, reply}:
		default:
			q.stats.lostQuery.Add(1)
			// if this fails, the query times out
			_ = asked.ReplyErr([]byte("server busy: too many queries are waiting"))
			asked.Finish()
		}
	}
}

// answerWaiting answers the queries that still wait after the last one has arrived: a robot that
// queries all servers waits for each of them.
func (q *queries) answerWaiting() {
	for {
		select {
		case asked := <-q.waiting:
			q.answer(asked)
		default:
			return
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
		Capabilities:     q.capabilities(len(q.sessions.all())),
		MinSchemaVersion: wire.MinSchemaVersion,
		MaxSchemaVersion: wire.SchemaVersion,
		ActiveSessions:   len(q.sessions.all()),
		MaxSessions:      q.capacity(),
		ServerID:         q.id,
		ServerLoad:       q.load(),
		Draining:         q.draining.Load(),
		Device:           q.placement.Device.String(),
	})
}

// capabilities returns the announcement of the policy, with the expected times of a chunk while the
// given number of other robots ask.
func (q *queries) capabilities(others int) wire.Capabilities {
	c := q.caps
	c.WarmedUp = q.warmed.Load()
	c.InferenceMsMin, c.InferenceMsP99 = ms(time.Duration(q.pace.least.Load())), ms(q.slowest())
	c.QueueWaitMs = ms(q.sizes.Turn(others))
	return c
}

// answers reports whether this server answers for a robot that names no server: the holder of the
// robot's session answers, else exactly one of all servers, also for a query without a robot's id.
func (q *queries) answers(uuid string) bool {
	return q.sessions.find(uuid) != nil || q.others.Answers(uuid)
}

// session answers an open or a close. An open that names another server is not answered. Of several
// replicas one answers an open that names no server.
func (q *queries) session(asked wire.Query) (key string, reply []byte) {
	key, body := wire.SessionKey(q.prefix), asked.Payload()
	op, err := wire.ParseOp(body)
	if err == nil && op == wire.OpClose {
		return key, q.closing(body, asked.From())
	}
	var o wire.SessionOpen
	if err == nil {
		err = wire.ParseSessionOpen(&o, body)
	}
	if o.ServerID != "" && o.ServerID != q.id || o.ServerID == "" && !q.answers(o.ClientUUID) {
		return key, nil
	}
	if err != nil {
		q.stats.refused[refusedMalformed].Add(1)
		return key, wire.AppendSessionAck(nil, &wire.SessionAck{
			Error:         "server error: " + err.Error(),
			SchemaVersion: wire.SchemaVersion,
			ServerLoad:    q.load(),
			ServerID:      q.id,
		})
	}
	ack := q.open(&o, asked.From())
	return key, wire.AppendSessionAck(nil, &ack)
}

// robotSession is session at the key of one robot. Access rules may let only that robot use the
// key, so the body must name the same robot.
func (q *queries) robotSession(asked wire.Query) (key string, reply []byte) {
	key = asked.Key()
	named, _ := wire.ClientUUID(key)
	uuid, err := acl.Asker(asked.Payload())
	if err != nil || uuid == named {
		_, reply = q.session(asked)
		return key, reply
	}
	if !q.answers(named) {
		return key, nil
	}
	q.stats.refused[refusedMalformed].Add(1)
	text := fmt.Sprintf("key names client %s, body names %s", pyString(named), pyString(uuid))
	if op, _ := wire.ParseOp(asked.Payload()); op == wire.OpClose {
		return key, wire.AppendResetAck(nil, &wire.ResetAck{Error: text})
	}
	return key, wire.AppendSessionAck(nil, &wire.SessionAck{
		Error:         text,
		SchemaVersion: wire.SchemaVersion,
		ServerLoad:    q.load(),
		ServerID:      q.id,
	})
}

// closing answers a close; nil: another server answers.
func (q *queries) closing(body []byte, from wire.Origin) []byte {
	var c wire.SessionClose
	err := wire.ParseSessionClose(&c, body)
	if !q.answers(c.ClientUUID) {
		return nil
	}
	if err == nil {
		err = q.close(&c, from)
	}
	ack := wire.ResetAck{OK: err == nil}
	if err != nil {
		ack.Error = err.Error()
	}
	return wire.AppendResetAck(nil, &ack)
}

// open validates and registers a session. The robot's earlier session, if there is one, is replaced
// and passes its publisher to the new one. from is the origin of the query, see wire.Query.
func (q *queries) open(o *wire.SessionOpen, from wire.Origin) wire.SessionAck {
	ack := wire.SessionAck{
		SchemaVersion: wire.SchemaVersion,
		ServerID:      q.id,
		Draining:      q.draining.Load(),
		MaxSessions:   int(q.fed.Load()),
	}
	admission, idle := q.admission(o, from)
	r := admission.check()
	if r == nil && ack.Draining {
		r = &refusal{refusedDraining, drainingText}
	}
	if r == nil {
		r = admission.share()
	}
	if r == nil {
		r, idle = q.feeds(o, &admission, idle)
	}
	if r == nil {
		r, ack.HeldBy = q.checkOwner(o, from)
	}
	var session *Session
	if r == nil {
		var err error
		if session, err = q.newSession(o, &admission); errors.Is(err, errNoMemory) {
			r = &refusal{refusedMemory, fmt.Sprintf("no memory for one more session: %v: open at another server, or "+
				"raise memory in the server's manifest", q.memory)}
		} else if err != nil {
			r = &refusal{refusedInternal, "server error: " + err.Error()}
		}
	}
	if r != nil {
		q.stats.refused[r.reason].Add(1)
		q.log.Warn("session refused", "client", o.ClientUUID, "epoch", o.SessionEpoch, "reason", r.reason.String(),
			"why", r.text)
		ack.Error, ack.ServerLoad = r.text, q.load()
		ack.RetryAfterMs = refusals[r.reason].retryAfter
		return ack
	}
	if idle != nil {
		q.evict(idle, "it sends no observation that can be answered, and another robot needs its place: open again")
		q.stats.displaced.Add(1)
	}
	session.from = from
	tags, kept := audit.Tags(o.Tags)
	if session.tags = tags; kept < len(o.Tags) {
		admission.warnings = append(admission.warnings, fmt.Sprintf(
			"%d tags are too long together: the log and the audit have only the first %d", len(o.Tags), kept))
	}
	if err := q.show(session); err != nil {
		q.log.Warn("a session is not announced to the other servers", "client", session.uuid, "session", session.id,
			"why", err)
	}
	q.register(session)
	q.log.Info("session open", "client", session.uuid, "session", session.id, "robot", o.RobotType, "host", o.Host,
		"fps", o.FPS, "rtc", session.rtc,
		"sessions", fmt.Sprintf("%d/%d", len(q.sessions.all()), q.capacity()), "warnings", len(admission.warnings),
		"tags", tagText(o.Tags[:kept]))
	for _, text := range admission.warnings {
		q.log.Warn("session opened with a warning", "client", session.uuid, "session", session.id, "why", text)
	}
	ack.Accepted = true
	ack.Warnings = admission.warnings
	ack.SessionID = session.id
	ack.Capabilities, ack.ServerLoad = q.capabilities(len(q.sessions.all())-1), q.load()
	ack.SupportsRTC = session.rtc
	ack.Nonce = session.nonce
	ack.Simulation = q.meta.SimulationOnly
	return ack
}

// admission returns the inputs of the checks of an open. idle is a session that would have to give
// way, nil when no session has to or may.
func (q *queries) admission(o *wire.SessionOpen, from wire.Origin) (a admission, idle *Session) {
	a = admission{
		caps:     q.caps,
		cameras:  q.meta.Cameras,
		cfg:      &q.cfg,
		tasks:    &q.tasks,
		observed: q.meta.Steps(),
		meta:     q.meta,
		open:     o,
		limit:    q.limit,
		active:   q.sessions.others(o.ClientUUID),
		place:    q.book.Place(from),
		memory:   q.memory,
		promised: q.promised.Load(),
		asked:    observationBytes(q.meta, &q.caps, o),
	}
	if own := q.sessions.find(o.ClientUUID); own != nil {
		a.own = own.place
		a.promised -= own.memory
	}
	if a.active < a.limit && a.promised+sessionNeed(q.meta, a.asked) <= q.memory.Promisable() {
		return a, nil
	}
	if idle = q.idler(o.ClientUUID, a.place, 0); idle != nil {
		a.active--
		a.promised -= idle.memory
	}
	return a, idle
}

// idler returns a session that may give way to a newcomer: its robot vanished without ever showing
// a token; or it has not streamed since it opened, at least idleGrace ago, and its link and host
// have at least as many sessions as the newcomer's would have then. Of several it takes one of the
// link with the most sessions, the oldest of these. Robots with a rate below fps are left alone.
func (q *queries) idler(newcomer string, place quota.Place, fps float64) (idle *Session) {
	now := q.clock.Now()
	for _, s := range q.sessions.all() {
		if s.uuid == newcomer || fps > 0 && q.auto.Robot(s.fps, 0).FPS < fps {
			continue
		}
		if s.vanished(now) {
			return s
		}
		if s.streams() || now.Sub(s.since) < idleGrace || !s.place.Above(place) {
			continue
		}
		if idle == nil || s.place.Above(idle.place) || !idle.place.Above(s.place) && s.since < idle.since {
			idle = s
		}
	}
	return idle
}

// tagText formats a robot's tags for the log: k=v, separated by commas.
func tagText(tags []wire.Tag) string {
	all := make([]string, len(tags))
	for i, t := range tags {
		all[i] = t.Key + "=" + t.Value
	}
	return strings.Join(all, ",")
}

// checkOwner refuses a second process under the name of a running one, and returns the host of that
// one. A client that names no instance is identified by its link or certificate; after a router two
// such clients cannot be distinguished.
func (q *queries) checkOwner(o *wire.SessionOpen, from wire.Origin) (r *refusal, host string) {
	owner := q.sessions.find(o.ClientUUID)
	if other, elsewhere := q.others.Holder(o.ClientUUID); elsewhere && owner == nil && o.Instance != "" &&
		other.Mark != wire.HeldMark("", "") && other.Mark != wire.HeldMark(o.ClientUUID, o.Instance) {
		// The server that holds the session knows whether that robot is still alive, and accepts
		// the new one if it is not.
		return &refusal{refusedTaken,
			fmt.Sprintf("client %s is open at server %s: give one of the two robots another id", pyString(o.ClientUUID),
				other.Server)}, wire.HostUnknown
	}
	switch {
	case owner == nil || !owner.owned(q.clock.Now()):
		return nil, ""
	case owner.instance == o.Instance && (o.Instance != "" || owner.from == from):
		return nil, ""
	case o.Instance == "" && from.Name != "" && owner.from == from:
		return nil, ""
	}
	host = cmp.Or(owner.host, wire.HostUnknown)
	return &refusal{refusedTaken, fmt.Sprintf("client %s is open on host %s: give one of the two robots another id",
		pyString(o.ClientUUID), host)}, host
}

func (q *queries) register(session *Session) {
	session.place = session.place.Enter()
	q.promised.Add(session.memory)
	if displaced := q.sessions.add(session); displaced != nil {
		q.stats.closed.Add(1)
		q.release(displaced)
		if displaced.held != nil {
			_ = displaced.held.Undeclare() // at worst it stays declared
		}
	}
	q.stats.opened.Add(1)
	wake(q.counted)
	if q.draining.Load() { // draining began meanwhile, without an event for this robot
		q.events.writer.putDraining(q.id, session, drainingText)
	}
}

// release gives back the memory and the place of a session.
func (q *queries) release(s *Session) {
	s.mailbox.Close()
	s.place.Leave()
	q.promised.Add(-s.memory)
	q.memory.Give(memory.Sessions, sessionMemory(q.meta))
}

var errNoMemory = errors.New("no memory")

func (q *queries) newSession(o *wire.SessionOpen, a *admission) (*Session, error) {
	own := sessionMemory(q.meta)
	if !q.memory.Take(memory.Sessions, own) {
		q.pool.DropFree()
		if !q.memory.Take(memory.Sessions, own) {
			return nil, errNoMemory
		}
	}
	session := newSession(o.ClientUUID, q.pool, a.asked)
	session.opened = a.opened
	session.place = a.place
	session.memory = sessionNeed(q.meta, a.asked)
	session.rtc = o.RTCEnabled && !a.downgraded
	if session.rtc {
		session.history = policy.NewHistory(q.meta.ChunkSize, q.meta.ActionDim)
	}
	session.extended = o.ServerID != "" || o.SessionEpoch > 0
	session.noise = policy.NewNoiseKey(q.caps.ModelSHA256, o.ClientUUID)
	session.instance, session.host = o.Instance, o.Host
	if o.Instance != "" {
		session.nonce = randomNonce()
	}
	session.since, session.fps = q.clock.Now(), o.FPS
	session.seenAt.Store(int64(session.since))
	session.epoch = o.SessionEpoch
	if o.SessionEpoch > 0 {
		session.tokenEpoch.Store(int64(o.SessionEpoch))
	}
	if old := q.sessions.find(o.ClientUUID); old != nil {
		session.actions, session.obs = old.actions, old.obs
		return session, nil
	}
	if err := q.listen(session); err != nil {
		_ = session.withdraw() // at worst it stays declared
		q.memory.Give(memory.Sessions, own)
		return nil, err
	}
	return session, nil
}

// listen declares the publisher of a robot's chunks and the subscriber of its observations. Only
// the holder of the session subscribes, so that no other server infers, too.
func (q *queries) listen(s *Session) error {
	action, err1 := wire.ActionKey(q.prefix, s.uuid)
	obs, err2 := wire.ObsKey(q.prefix, s.uuid)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	var err error
	if s.actions, err = q.network.Publisher(action, wire.ActionQoS); err != nil {
		return err
	}
	s.obs, err = q.network.Subscribe(obs, q.receive)
	return err
}

// token returns the session's token for the other servers.
func (q *queries) token(s *Session) wire.Held {
	return wire.Held{
		UUID:   s.uuid,
		Server: q.id,
		Mark:   wire.HeldMark(s.uuid, s.instance),
		Epoch:  s.epoch,
	}
}

// show announces the session to the other servers.
func (q *queries) show(s *Session) error {
	h := q.token(s)
	key, err := wire.HeldKey(q.prefix, h.UUID, h.Server, h.Mark, h.Epoch)
	if err != nil {
		return err
	}
	s.held, err = q.network.Token(key)
	return err
}

// yield gives up the sessions of robots that another server holds, too. A robot that has moved
// knows its new server; another robot of the same name is informed that it must open again.
func (q *queries) yield() {
	for _, session := range q.sessions.all() {
		other, elsewhere := q.others.Holder(session.uuid)
		if !elsewhere {
			continue
		}
		gives, moved := q.others.Gives(q.token(session), other)
		switch {
		case gives && moved:
			q.drop(session, "it is open at "+other.Server)
		case gives:
			q.evict(session, "another robot of this name is open at "+other.Server)
		}
	}
}

// announceRoom shows or withdraws the token by which replicas share out the robots that name no
// server.
func (q *queries) announceRoom() {
	room := q.serving.Load() && !q.draining.Load() && len(q.sessions.all()) < q.capacity() &&
		q.promised.Load()+q.typical <= q.memory.Promisable()
	var err error
	switch {
	case room && q.room == nil:
		q.room, err = q.network.Token(wire.ReplicaRoomKey(q.prefix, q.id))
	case !room:
		err = q.withdrawRoom()
	}
	if err != nil {
		q.log.Warn("the room for sessions is not announced to the other servers", "why", err)
	}
}

func (q *queries) withdrawRoom() error {
	if q.room == nil {
		return nil
	}
	token := q.room
	q.room = nil
	return token.Undeclare()
}

// close ends the session that c names; a stale session id is ignored, and so is a close of a robot
// without a session. A close without an id is refused unless it comes from the link or certificate
// that opened the session.
func (q *queries) close(c *wire.SessionClose, from wire.Origin) error {
	session := q.sessions.find(c.ClientUUID)
	switch {
	case session == nil || c.SessionID != "" && c.SessionID != session.id:
		return nil
	case c.SessionID == "" && (from.Name == "" || from != session.from):
		return fmt.Errorf("client %s: a close without session_id is accepted only from the link that opened the "+
			"session: name the session_id of the open's answer", pyString(c.ClientUUID))
	}
	q.drop(session, "the client closed it")
	return nil
}

// evict drops a session whose robot may still take it for open, and informs the robot.
func (q *queries) evict(session *Session, why string) {
	if session.extended { // a client of the draft takes any event for a lost chunk
		q.events.putClosed(session, why)
	}
	q.drop(session, why)
}

// drop removes a session and withdraws its declarations.
func (q *queries) drop(session *Session, why string) {
	if !q.sessions.remove(session) {
		return
	}
	q.release(session)
	q.stats.closed.Add(1)
	q.log.Info("session closed", "client", session.uuid, "session", session.id, "why", why,
		"sessions", fmt.Sprintf("%d/%d", len(q.sessions.all()), q.capacity()),
		"stale_pictures", session.stalePictures.Load(), "warned_pictures", session.strayPictures.Load())
	if err := session.withdraw(); err != nil {
		q.log.Warn("a session was not withdrawn", "client", session.uuid, "session", session.id, "why", err)
	}
	wake(q.counted)
}

// reset starts an episode. Key and body must name the same robot: a router's access rules check the
// key only.
func (q *queries) reset(asked wire.Query) (key string, body []byte) {
	key = asked.Key()
	ack := wire.ResetAck{OK: true}
	var m wire.Reset
	err := wire.ParseReset(&m, asked.Payload())
	if !q.answers(m.ClientUUID) {
		return key, nil
	}
	uuid, _ := wire.ClientUUID(key)
	session := q.sessions.find(m.ClientUUID)
	switch {
	case err != nil:
		ack = wire.ResetAck{Error: err.Error()}
	case uuid != m.ClientUUID && !strings.ContainsAny(uuid, "*$"):
		ack = wire.ResetAck{Error: fmt.Sprintf("key names client %s, body names %s", pyString(uuid),
			pyString(m.ClientUUID))}
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

// announce tokenises the task that a reset names, before the first observation with that task
// arrives. A task that the policy cannot read changes nothing.
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
