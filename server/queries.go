package server

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/edge-rt/edge-rt/server/acl"
	"github.com/edge-rt/edge-rt/server/front"
	"github.com/edge-rt/edge-rt/server/peers"
	"github.com/edge-rt/edge-rt/wire"
)

// queriesWaiting bounds the status, session and reset queries that wait for the housekeeping. A query beyond the bound
// is refused at once.
const queriesWaiting = 256

// query is a query with the function that answers it. When that function returns a nil body, no reply is sent.
type query struct {
	wire.Query
	reply func(wire.Query) (key string, body []byte)
}

// queries answers the queries that ask for the server's status, and the queries that open, close and reset sessions.
//
// Owner: housekeeping.
type queries struct {
	prefix   string // beginning of the service's keys
	id       string // server_id
	device   string // device that computes the policy
	log      *slog.Logger
	phase    *phase
	sessions *registry
	others   *peers.Others
	stats    *stats
	tasks    *taskReader
	opener   *opener
	waiting  chan query
}

// enqueue returns a handler that passes queries on to housekeeping, because a callback of the transport must not
// declare anything, as an open does.
//
// Owner: the transport's receiving goroutines.
func (q *queries) enqueue(reply func(wire.Query) (string, []byte)) func(wire.Query) {
	return func(asked wire.Query) {
		select {
		case q.waiting <- query{asked, reply}:
		default:
			q.stats.lostQuery.Add(1)
			// without this reply the query only times out
			_ = asked.ReplyErr([]byte("server busy: too many queries are waiting"))
			asked.Finish()
		}
	}
}

// answerWaiting answers the queries that still wait when the server no longer accepts queries, because a robot that
// queries all servers waits until each has answered.
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
	inputs, outputs := features(q.opener.meta, q.tasks.reads)
	return wire.StatusKey(q.prefix), wire.Append(nil, &wire.Status{
		Capabilities:     q.opener.capabilities(len(q.sessions.all())),
		MinSchemaVersion: wire.MinSchemaVersion,
		MaxSchemaVersion: wire.SchemaVersion,
		ActiveSessions:   q.sessions.count(),
		MaxSessions:      q.sessions.capacity(),
		ServerID:         q.id,
		ServerLoad:       q.sessions.load(),
		Draining:         q.phase.draining.Load(),
		Device:           q.device,
		Inputs:           inputs,
		Outputs:          outputs,
	})
}

// answers reports whether this server answers for a robot that names no server. The server that
// holds the robot's session answers. If there is no session, exactly one of all servers answers,
// even when the query names no robot.
func (q *queries) answers(uuid string) bool {
	return q.sessions.find(uuid) != nil || q.others.Answers(uuid)
}

// session answers an open or a close. It does not answer an open that names another server. When an open names no
// server, one of all servers answers it.
func (q *queries) session(asked wire.Query) (key string, reply []byte) {
	key, body := wire.SessionKey(q.prefix), asked.Payload()
	op, err := wire.ParseOp(body)
	if err == nil && op == wire.OpClose {
		return key, q.closing(body, asked.From())
	}
	var o wire.SessionOpen
	if err == nil {
		err = wire.Parse(&o, body)
	}
	if o.ServerID != "" && o.ServerID != q.id || o.ServerID == "" && !q.answers(o.ClientUUID) {
		return key, nil
	}
	if err != nil {
		return key, q.malformed("server error: " + err.Error())
	}
	ack := q.opener.open(&o, asked.From())
	return key, wire.Append(nil, &ack)
}

// malformed counts a malformed open and returns its refusal.
func (q *queries) malformed(text string) []byte {
	q.stats.refused[refusedMalformed].Add(1)
	return wire.Append(nil, &wire.SessionAck{
		Error:         text,
		SchemaVersion: wire.SchemaVersion,
		ServerLoad:    q.sessions.load(),
		ServerID:      q.id,
	})
}

// robotSession answers, as session does, a query at the key of one robot. Access rules may let only that robot use the
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
	err = errOtherClient(named, uuid)
	reply = q.malformed(err.Error())
	if op, _ := wire.ParseOp(asked.Payload()); op == wire.OpClose {
		reply = acked(err)
	}
	return key, reply
}

func errOtherClient(key, body string) error {
	return fmt.Errorf("key names client %s, body names %s", pyString(key), pyString(body))
}

// acked returns the answer to a close or a reset that ended with err.
func acked(err error) []byte {
	ack := wire.ResetAck{OK: err == nil}
	if err != nil {
		ack.Error = err.Error()
	}
	return wire.Append(nil, &ack)
}

// closing returns the answer to a close, or nil when another server answers it.
func (q *queries) closing(body []byte, from wire.Origin) []byte {
	var c wire.SessionClose
	err := wire.Parse(&c, body)
	if !q.answers(c.ClientUUID) {
		return nil
	}
	if err == nil {
		err = q.opener.close(&c, from)
	}
	return acked(err)
}

// reset starts an episode. Key and body must name the same robot, because a router's access rules check only the key.
func (q *queries) reset(asked wire.Query) (key string, body []byte) {
	key = asked.Key()
	var m wire.Reset
	err := wire.Parse(&m, asked.Payload())
	if !q.answers(m.ClientUUID) {
		return key, nil
	}
	uuid, _ := wire.ClientUUID(key)
	session := q.sessions.find(m.ClientUUID)
	switch {
	case err != nil:
	case uuid != m.ClientUUID && !strings.ContainsAny(uuid, "*$"):
		err = errOtherClient(uuid, m.ClientUUID)
	case session == nil:
		err = errors.New(front.UnknownClient + pyString(m.ClientUUID))
	default:
		if err = q.announce(session, m.Task); err == nil {
			session.reset(int64(m.EpisodeID))
		}
	}
	return key, acked(err)
}

// announce tokenises the task that a reset names, before the first observation with that task arrives. When the policy
// cannot read the task, announce returns an error and the session's task stays as it was.
func (q *queries) announce(s *session, text string) error {
	if text == "" {
		return nil
	}
	announced, err := q.tasks.read(text)
	if err == nil {
		s.announced.Store(announced)
	}
	return err
}
