package zenoh

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
	"github.com/edge-rt/edge-rt/wire/zenoh/keyexpr"
	"github.com/edge-rt/edge-rt/wire/zenoh/link"
	"github.com/edge-rt/edge-rt/wire/zenoh/remote"
)

const (
	maxInQueries = 1024    // queries that wait for their last reply
	inQueryBytes = 1 << 10 // memory of a query without its payload
	maxInBytes   = 4 << 20 // largest memory of all waiting queries together
)

var errQueryOver = errors.New("wire/zenoh: the query is finished or its querier is gone")

// inQuery is a query that several of our queryables may answer. Each of them gets its own wire.Query.
type inQuery struct {
	// Constant.
	s        *Session
	up       upstream    // the upstream that sent the query
	from     wire.Origin // the querier
	id       uint32      // the upstream's number for the query
	qos      codec.QoS
	key      string
	payload  []byte
	cost     int // bytes of this query in Session.inBytes
	watchdog *time.Timer
	parts    []*query

	over    atomic.Bool // finished, expired or cancelled: no more replies may be sent
	calling atomic.Bool // the queryables are being called
	left    int         // parts that are not finished; guarded by Session.mu
}

// query is a wire.Query: the part of one queryable in an inQuery.
type query struct {
	*inQuery
	queryable *object
	finished  atomic.Bool
}

// request calls the matching queryables for a query of the upstream.
func (s *Session) request(up upstream, from wire.Origin, key string, m *codec.Request) {
	q := &inQuery{
		s:    s,
		up:   up,
		from: from,
		id:   m.ID,
		qos:  m.QoS.Data(),
		key:  key,
		cost: inQueryBytes + len(m.Query.Payload),
	}
	s.mu.Lock()
	own := s.own(codec.DeclareQueryable, key)
	_, twice := s.inQueries[m.ID]
	many := s.router == nil && len(s.inQueries) >= maxInQueries // a router already limits the queries of each link
	if len(own) > 0 && (twice || many || s.inBytes+q.cost > maxInBytes) {
		s.counters.Queries.Add(1)
		own = nil
	}
	if len(own) == 0 {
		if !twice {
			q.sendFinal()
		}
		s.mu.Unlock()
		return
	}
	q.payload = bytes.Clone(m.Query.Payload)
	s.inBytes += q.cost
	s.inQueries[q.id] = q
	for _, o := range own {
		q.parts = append(q.parts, &query{inQuery: q, queryable: o})
	}
	q.left = len(own)
	q.watchdog = time.AfterFunc(remote.QueryTime(m), q.expire)
	s.mu.Unlock()
	q.ask()
}

// ask calls the queryables.
func (q *inQuery) ask() {
	q.s.deliver.Lock()
	defer q.s.deliver.Unlock()
	q.calling.Store(true)
	defer q.calling.Store(false)
	for _, part := range q.parts {
		if part.queryable.closed || q.over.Load() {
			part.Finish()
		} else {
			part.queryable.answer(part)
		}
	}
}

func (q *inQuery) Key() string       { return q.key }
func (q *inQuery) Payload() []byte   { return q.payload }
func (q *inQuery) From() wire.Origin { return q.from }

// Reply sends one reply. Its key must match the query's.
func (q *query) Reply(key string, payload []byte) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if !keyexpr.Intersects(key, q.key) {
		return fmt.Errorf("wire/zenoh: reply on %q to a query on %q, want a key that matches it", key, q.key)
	}
	return q.respond(key, payload, false)
}

// ReplyErr sends an error as a reply.
func (q *query) ReplyErr(payload []byte) error { return q.respond(q.key, payload, true) }

func (q *query) respond(key string, payload []byte, failed bool) error {
	if q.finished.Load() || q.over.Load() {
		return errQueryOver
	}
	m := codec.Response{
		Envelope:  codec.Envelope{QoS: q.qos},
		ID:        q.id,
		Expr:      codec.Key(key),
		Err:       failed,
		Responder: codec.Entity{ZID: q.s.zid, ID: q.queryable.number},
		Data:      codec.Data{Payload: payload},
	}.Message()
	// A reply from within the callback must not wait for the querier's link, because all other callbacks would wait,
	// too.
	return q.up.Send(m, link.Delivery{QoS: q.qos, Reliable: true, NoWait: q.calling.Load()})
}

// Finish ends this queryable's part of the query. The last part to end ends the query. A second call does nothing.
func (q *query) Finish() {
	if q.finished.Swap(true) {
		return
	}
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	if q.left--; q.left == 0 {
		q.s.inBytes -= q.cost
		q.end()
	}
}

// end ends the query and sends its querier the end of the replies, unless the query has already ended. Called with s.mu
// held.
func (q *inQuery) end() {
	q.watchdog.Stop()
	if q.s.inQueries[q.id] == q {
		delete(q.s.inQueries, q.id)
	}
	if !q.over.Swap(true) {
		q.sendFinal()
	}
}

// expire ends a query that its queryables have not finished in time.
func (q *inQuery) expire() {
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	q.end()
}

// cancel drops a query whose querier has vanished. Called with s.mu held.
func (q *inQuery) cancel() {
	q.over.Store(true)
	q.end()
}

func (q *inQuery) sendFinal() {
	m := codec.Final{Envelope: codec.Envelope{QoS: q.qos}, ID: q.id}.Message()
	q.up.Send(m, link.Delivery{QoS: q.qos | codec.Block, Reliable: true, Unbounded: true})
}
