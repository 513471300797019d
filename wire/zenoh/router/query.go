package router

import (
	"errors"
	"slices"
	"time"

	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
	"github.com/edge-rt/edge-rt/wire/zenoh/keyexpr"
	"github.com/edge-rt/edge-rt/wire/zenoh/link"
	"github.com/edge-rt/edge-rt/wire/zenoh/remote"
)

const (
	queryBytes    = 1 << 10 // memory of a waiting query
	waitingBytes  = 48      // memory for each link to which a query was relayed
	maxQueryBytes = 4 << 20 // largest memory of all waiting queries together
)

// query is a query that is not finished. One link sent it under its own number; the router relayed it to other links
// under a number of ours.
type query struct {
	// Constant.
	asker    *face
	id       uint32 // the asker's number for the query
	number   uint32 // our number for the query
	qos      codec.QoS
	watchdog *time.Timer
	cost     int // bytes of this query in Router.queryBytes and in the account of the asker's link

	waiting map[*face]bool // links that have not finished; guarded by Router.mu
	over    bool           // the query is finished or expired, or the asker's link has ended; guarded by Router.mu
}

// request relays a query to the links with matching queryables.
func (f *face) request(m *codec.Request) {
	r := f.r
	q := &query{
		asker:   f,
		id:      m.ID,
		qos:     m.QoS.Data(),
		waiting: map[*face]bool{},
	}
	key, ok := f.numbers.Key(m.Expr)
	if ok && !f.mayAsk(q, key, m.Query.Payload) {
		return
	}
	r.mu.Lock()
	var to []*face
	if ok && !f.gone {
		to = r.queryables(key, m.Target, f)
	}
	_, twice := f.queries[m.ID]
	q.cost = queryBytes + len(to)*waitingBytes
	if slices.Contains(to, r.port.face) {
		q.cost += len(m.Query.Payload) // the session keeps the payload
	}
	if len(to) > 0 && (len(f.queries) >= maxQueries || twice || r.queryBytes+q.cost > maxQueryBytes ||
		!f.hold(q.cost)) {
		r.counters.Queries.Add(1)
		to = nil
	}
	if len(to) == 0 {
		r.mu.Unlock()
		if !twice {
			q.sendFinal()
		}
		return
	}
	r.queryBytes += q.cost
	q.number = r.id()
	for _, o := range to {
		q.waiting[o] = true
	}
	r.queries[q.number], f.queries[q.id] = q, q
	q.watchdog = time.AfterFunc(remote.QueryTime(m), q.expire)
	r.mu.Unlock()

	out := codec.Message{Kind: codec.KindRequest, Request: *m}
	out.Request.ID = q.number
	out.Request.Envelope = codec.Envelope{QoS: q.qos, Timestamp: m.Timestamp}
	out.Request.Expr = codec.Key(key)
	var msg []byte
	how := link.Delivery{QoS: q.qos, Reliable: true, MaxWait: relayPatience}
	for _, o := range to {
		if o.link == nil {
			lent := out // a copy, so that out itself stays on the stack
			r.port.client.Handle(&lent, f.who.origin)
			continue
		}
		if msg == nil {
			msg = codec.AppendMessage(nil, &out)
		}
		if err := o.link.Send(msg, how); err != nil {
			// A query waits for only one congested link, not for each. It does not wait for a link that has ended.
			how.NoWait = how.NoWait || errors.Is(err, link.ErrCongested)
			r.finished(o, q.number) // a queryable that cannot be reached counts as finished
		}
	}
	if f.link != nil && (len(to) > 1 || to[0].link != nil) {
		r.counters.RelayedQueries.Add(1)
	}
}

// queryables finds the links to which a query on key is relayed. It leaves out links that the asker reaches directly.
// Called with mu held.
func (r *Router) queryables(key string, target codec.Target, asker *face) (to []*face) {
	if target == codec.BestMatching {
		if best := nearest(r.index.Matches(codec.DeclareQueryable, key), key, asker); best != nil {
			return []*face{best}
		}
	}
	accepts := anyHolder
	if target == codec.AllComplete {
		accepts = func(e *entry, h *holder) bool { return h.info.complete && keyexpr.Includes(e.key, key) }
	}
	asker.reach(codec.DeclareQueryable, key, accepts, func(f *face) { to = append(to, f) })
	return to
}

// nearest returns the link with the nearest complete queryable whose key includes key.
func nearest(found []*entry, key string, asker *face) (best *face) {
	var distance uint16
	for _, e := range found {
		if !keyexpr.Includes(e.key, key) {
			continue
		}
		for i := range e.holders {
			h := &e.holders[i]
			if h.info.complete && asker.relays(h.face) && (best == nil || h.info.distance < distance) {
				best, distance = h.face, h.info.distance
			}
		}
	}
	return best
}

// response relays a reply, with the whole key, to the link that sent the query. If this link has no room in time, the
// reply is dropped and counted. If try is set, response does not wait for room.
func (f *face) response(m *codec.Response, try bool) error {
	key, ok := f.numbers.OptionalKey(m.Expr)
	if !ok {
		return nil
	}
	r := f.r
	r.mu.Lock()
	q := r.queries[m.ID]
	known := q != nil && q.waiting[f]
	r.mu.Unlock()
	if !known {
		return nil
	}
	out := codec.Message{Kind: codec.KindResponse, Response: *m}
	o := &out.Response
	o.ID, o.Envelope = q.id, codec.Envelope{QoS: q.qos, Timestamp: m.Timestamp}
	o.Expr = codec.Expr{Sender: true}
	if key != "" {
		o.Expr = codec.Key(key)
	}
	if q.asker.link == nil {
		lent := out // a copy, so that out itself stays on the stack
		r.port.client.Handle(&lent, wire.Origin{})
		return nil
	}
	err := q.asker.link.Send(codec.AppendMessage(nil, &out), link.Delivery{
		QoS:      q.qos,
		Reliable: true,
		NoWait:   try,
		MaxWait:  relayPatience,
	})
	switch {
	case f.link == nil:
	case err == nil:
		r.counters.RelayedReplies.Add(1)
	default:
		r.counters.RelayDropped.Add(1)
	}
	return err
}

// finished records that a link has sent all its replies to a query.
func (r *Router) finished(f *face, number uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if q := r.queries[number]; q != nil {
		q.finish(f)
	}
}

// finish records that the query no longer waits for a link. Called with Router.mu held.
func (q *query) finish(f *face) {
	if q.waiting[f] {
		delete(q.waiting, f)
		if len(q.waiting) == 0 {
			q.end(true)
		}
	}
}

// expire ends a query that its queryables have not finished in time.
func (q *query) expire() {
	r := q.asker.r
	r.mu.Lock()
	defer r.mu.Unlock()
	q.end(true)
}

// end removes a query. If final is set, it sends the asker the end of the replies; final is false if the asker has
// vanished. Called with Router.mu held.
func (q *query) end(final bool) {
	if q.over {
		return
	}
	q.over = true
	q.watchdog.Stop()
	r := q.asker.r
	delete(r.queries, q.number)
	delete(q.asker.queries, q.id)
	r.queryBytes -= q.cost
	q.asker.hold(-q.cost)
	if final {
		q.sendFinal()
	}
}

func (q *query) sendFinal() {
	q.asker.send(codec.Final{Envelope: codec.Envelope{QoS: q.qos}, ID: q.id}.Message(),
		link.Delivery{QoS: q.qos | codec.Block, Reliable: true, Unbounded: true})
}
