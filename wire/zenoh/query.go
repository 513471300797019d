package zenoh

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"edgert/wire"
	"edgert/wire/zenoh/codec"
	"edgert/wire/zenoh/keyexpr"
	"edgert/wire/zenoh/link"
)

// Time that a queryable has when the querier does not say, and what it has
// beyond the querier's own timeout before the query is ended for it.
const (
	defaultQueryTimeout = 10 * time.Second
	maxQueryTimeout     = time.Hour
	queryGrace          = time.Second
)

const (
	inquiryBytes    = 1 << 10 // what a waiting query costs beside its payload
	askedBytes      = 48      // and what each link that it was passed on to costs
	maxInquiryBytes = 4 << 20 // of all waiting queries
)

var errQueryOver = errors.New("wire/zenoh: the query is finished or its querier is gone")

// queryable is an own queryable.
type queryable struct {
	object
	answer func(wire.Query)
	closed bool // guarded by Session.deliver
}

// Undeclare returns when answer is not running and will not be called.
func (q *queryable) Undeclare() error {
	err := q.object.Undeclare()
	q.s.deliver.Lock()
	q.closed = true
	q.s.deliver.Unlock()
	return err
}

// inquiry is one question that we answer: every matching queryable of ours has
// its share, and links to which it was relayed have theirs together.
type inquiry struct {
	// Constant.
	s        *Session
	face     *face  // who asks, or nil for ourselves, and then
	get      *get   // who collects
	id       uint32 // of the face's choice
	qos      codec.QoS
	key      string
	payload  []byte // nil unless own queryables are asked
	watchdog *time.Timer
	shares   []*share

	over     atomic.Bool // finished, expired or cancelled: nothing may be sent any more
	onReader atomic.Bool // the queryables are being called, on the link's reader
	cost     int         // of Session.inquiryBytes; guarded by Session.mu
	linked   bool        // cost is held for the face too; guarded by Session.mu
	unread   int         // queryables that still may look at it; guarded by Session.mu
	left     int         // shares not finished, and one for all links; guarded by Session.mu
	relayed  *question   // guarded by Session.mu
}

// share is a wire.Query: one queryable's part in an inquiry.
type share struct {
	*inquiry
	queryable *queryable
	finished  atomic.Bool
}

// request asks the queryables that match, ours and those of other links. Owner:
// the link's reader.
func (f *face) request(m *codec.Request) {
	s := f.s
	q := &inquiry{s: s, face: f, id: m.ID, qos: relayedQoS(m.QoS)}
	var ok bool
	q.key, ok = f.key(m.Expr)
	s.mu.Lock()
	var own []*object
	var links []*face
	if ok && !f.gone {
		own, links = s.answerers(q.key, m.Target, f)
	}
	_, twice := f.inquiries[m.ID]
	cost := inquiryBytes + len(links)*askedBytes
	if len(own) > 0 {
		cost += len(m.Query.Payload)
	}
	if len(own)+len(links) > 0 && (len(f.inquiries) >= maxInquiries || twice || !s.afford(f, cost)) {
		s.refused.Queries.Add(1)
		own, links = nil, nil
	}
	if len(own)+len(links) == 0 {
		s.mu.Unlock()
		if !twice {
			q.sendFinal()
		}
		return
	}
	q.cost, q.linked, q.unread = cost, true, len(own)
	if len(own) > 0 {
		q.payload = bytes.Clone(m.Query.Payload)
	}
	if q.relayed = s.askedOf(links); q.relayed != nil {
		q.relayed.inquiry = q
		q.left++
	}
	q.open(own, queryTime(m.TimeoutMS))
	f.inquiries[m.ID] = q
	s.mu.Unlock()
	if q.relayed != nil {
		out := *m
		out.Envelope = codec.Envelope{QoS: q.qos, Timestamp: m.Timestamp}
		out.Expr = codec.Key([]byte(q.key))
		q.relayed.send(s, links, &out, link.Delivery{QoS: q.qos, Reliable: true, MaxWait: relayPatience})
		s.relayed.Queries.Add(1)
	}
	if len(own) > 0 {
		q.onReader.Store(true)
		q.ask()
		q.onReader.Store(false)
	}
}

// afford takes what a query costs until our queryables have finished with it,
// which may be long after its link has gone. Called with mu held.
func (s *Session) afford(f *face, cost int) bool {
	if s.inquiryBytes+cost > maxInquiryBytes || !f.link.Charge(cost) {
		return false
	}
	s.inquiryBytes += cost
	return true
}

// open gives each queryable its share and starts the watchdog. Called with s.mu
// held.
func (q *inquiry) open(own []*object, timeout time.Duration) {
	for _, o := range own {
		q.shares = append(q.shares, &share{inquiry: q, queryable: o.queryable})
	}
	q.left += len(own)
	q.watchdog = time.AfterFunc(timeout+queryGrace, q.expire)
}

// ask calls the queryables.
func (q *inquiry) ask() {
	q.s.deliver.Lock()
	defer q.s.deliver.Unlock()
	for _, sh := range q.shares {
		if sh.queryable.closed || q.over.Load() {
			sh.Finish()
		} else {
			sh.queryable.answer(sh)
		}
	}
}

func queryTime(ms uint64) time.Duration {
	if ms == 0 {
		return defaultQueryTimeout
	}
	return time.Duration(min(ms, uint64(maxQueryTimeout.Milliseconds()))) * time.Millisecond
}

func (q *inquiry) Key() string     { return q.key }
func (q *inquiry) Payload() []byte { return q.payload }

// Reply sends one reply. Its key must match the query's.
func (q *share) Reply(key string, payload []byte) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if !keyexpr.Intersects(key, q.key) {
		return fmt.Errorf("wire/zenoh: reply on %q to a query on %q, want a key that matches it", key, q.key)
	}
	return q.respond(key, codec.Data{Payload: payload}, false)
}

// ReplyErr sends an error as a reply.
func (q *share) ReplyErr(payload []byte) error {
	return q.respond(q.key, codec.Data{Payload: payload}, true)
}

func (q *share) respond(key string, data codec.Data, failed bool) error {
	if q.finished.Load() || q.over.Load() {
		return errQueryOver
	}
	m := codec.Message{Kind: codec.KindResponse, Response: codec.Response{
		Envelope: codec.Envelope{QoS: q.qos}, ID: q.id, Expr: codec.Key([]byte(key)), Err: failed,
		Responder: codec.Entity{ZID: q.s.zid, ID: q.queryable.id}, Data: data,
	}}
	if q.face == nil {
		q.s.mu.Lock()
		defer q.s.mu.Unlock()
		q.get.add(key, &m.Response)
		return nil
	}
	// On the reader a reply must not wait for the writer's peer: it would hold
	// up every other link's callbacks.
	return q.face.link.Send(codec.AppendMessage(nil, &m), link.Delivery{QoS: q.qos, Reliable: true, NoWait: q.onReader.Load()})
}

// Finish ends this queryable's part; the last one ends the query. It does
// nothing a second time.
func (q *share) Finish() {
	if q.finished.Swap(true) {
		return
	}
	q.s.mu.Lock()
	q.unread--
	q.part()
	q.unburden()
	q.s.mu.Unlock()
}

// part ends one share, and with the last one the inquiry. Called with s.mu held.
func (q *inquiry) part() {
	if q.left--; q.left == 0 {
		q.end()
	}
}

// end says once that no more replies will come. Called with s.mu held.
func (q *inquiry) end() {
	q.watchdog.Stop()
	if q.relayed != nil {
		delete(q.s.questions, q.relayed.id)
	}
	if q.face != nil && q.face.inquiries[q.id] == q {
		delete(q.face.inquiries, q.id)
	}
	first := !q.over.Swap(true)
	q.unburden()
	switch {
	case !first:
	case q.face == nil:
		q.get.part()
	default:
		q.sendFinal()
	}
}

// unburden gives back what an inquiry cost: the link's part when it is over, the
// session's when no queryable looks at it any more. Called with s.mu held.
func (q *inquiry) unburden() {
	if !q.over.Load() {
		return
	}
	if q.linked {
		q.linked = false
		q.face.link.Charge(-q.cost)
	}
	if q.unread == 0 {
		q.s.inquiryBytes -= q.cost
		q.cost = 0
	}
}

// expire ends an inquiry whose queryables did not.
func (q *inquiry) expire() {
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	q.end()
}

// cancel drops an inquiry whose querier is gone. Called with s.mu held.
func (q *inquiry) cancel() {
	q.over.Store(true)
	q.end()
}

func (q *inquiry) sendFinal() {
	m := codec.Message{Kind: codec.KindFinal, Final: codec.Final{Envelope: codec.Envelope{QoS: q.qos}, ID: q.id}}
	q.face.send(&m, link.Delivery{QoS: q.qos | codec.Block, Reliable: true, NoWait: true})
}
