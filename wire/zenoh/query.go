package zenoh

import (
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

var errQueryOver = errors.New("wire/zenoh: the query is finished or its querier is gone")

// queryable is an own queryable.
type queryable struct {
	object
	answer   func(wire.Query)
	complete bool // it promises to know every value under its key
	closed   bool // guarded by Session.deliver
}

// Undeclare returns when answer is not running and will not be called.
func (q *queryable) Undeclare() error {
	err := q.object.Undeclare()
	q.s.deliver.Lock()
	q.closed = true
	q.s.deliver.Unlock()
	return err
}

// inquiry is one request of a remote; every matching queryable has its share.
type inquiry struct {
	// Constant.
	face       *face
	id         uint32
	qos        codec.QoS
	key        string
	parameters string
	payload    []byte
	attachment []byte
	watchdog   *time.Timer

	over     atomic.Bool // finished, expired or cancelled: nothing may be sent any more
	onReader atomic.Bool // the queryables are being called, on the link's reader
	left     int         // shares not finished, guarded by Session.mu
}

// share is a wire.Query: one queryable's part in an inquiry.
type share struct {
	*inquiry
	queryable *queryable
	finished  atomic.Bool
}

// request asks the queryables that match. Owner: the link's reader.
func (f *face) request(m *codec.Request) {
	s := f.s
	key, ok := f.key(m.Expr)
	q := &inquiry{face: f, id: m.ID, qos: m.QoS, key: key, parameters: string(m.Query.Parameters),
		payload: clone(m.Query.Payload), attachment: clone(m.Query.Attachment)}
	var shares []*share
	s.mu.Lock()
	if ok {
		for _, o := range s.objects {
			if o.queryable != nil && o.answers(key, m.Target) {
				shares = append(shares, &share{inquiry: q, queryable: o.queryable})
			}
		}
	}
	_, twice := f.inquiries[m.ID]
	if len(shares) > 0 && (len(f.inquiries) >= maxInquiries || twice) {
		s.refused.Queries.Add(1)
		shares = nil
	}
	if len(shares) == 0 {
		s.mu.Unlock()
		if !twice {
			q.sendFinal()
		}
		return
	}
	q.left = len(shares)
	q.watchdog = time.AfterFunc(queryTime(m.TimeoutMS), q.expire)
	f.inquiries[m.ID] = q
	s.mu.Unlock()
	q.onReader.Store(true)
	s.deliver.Lock()
	for _, sh := range shares {
		if sh.queryable.closed {
			sh.Finish()
		} else {
			sh.queryable.answer(sh)
		}
	}
	s.deliver.Unlock()
	q.onReader.Store(false)
}

// answers reports whether a queryable is one that a question on key is for.
func (o *object) answers(key string, target codec.Target) bool {
	if target == codec.AllComplete {
		return o.queryable.complete && keyexpr.Includes(o.key, key)
	}
	return keyexpr.Intersects(o.key, key)
}

func clone(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append([]byte{}, b...)
}

func queryTime(ms uint64) time.Duration {
	if ms == 0 {
		return defaultQueryTimeout + queryGrace
	}
	return time.Duration(min(ms, uint64(maxQueryTimeout.Milliseconds())))*time.Millisecond + queryGrace
}

func (q *inquiry) Key() string        { return q.key }
func (q *inquiry) Parameters() string { return q.parameters }
func (q *inquiry) Payload() []byte    { return q.payload }
func (q *inquiry) Attachment() []byte { return q.attachment }

// Reply sends one reply. Its key must match the query's.
func (q *share) Reply(key string, payload []byte) error {
	return q.ReplyWith(wire.Sample{Key: key, Payload: payload})
}

// ReplyWith is Reply with everything that a sample can carry.
func (q *share) ReplyWith(sample wire.Sample) error {
	key := sample.Key
	data, err := dataOf(q.face.s, sample)
	if err != nil {
		return err
	}
	if err := checkKey(key); err != nil {
		return err
	}
	if !keyexpr.Intersects(key, q.key) && !anyKey(q.parameters) {
		return fmt.Errorf("wire/zenoh: reply on %q to a query on %q, want a key that matches it", key, q.key)
	}
	return q.respond(key, data, false)
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
		Responder: codec.Entity{ZID: q.face.s.zid, ID: q.queryable.id}, Data: data,
	}}
	// On the reader a reply must not wait for the writer's peer: it would hold
	// up every other link's callbacks.
	return q.face.link.Send(codec.AppendMessage(nil, &m), link.How{QoS: q.qos, Reliable: true, Try: q.onReader.Load()})
}

// Finish ends this queryable's part; the last one ends the query. It does
// nothing a second time.
func (q *share) Finish() {
	if q.finished.Swap(true) {
		return
	}
	s := q.face.s
	s.mu.Lock()
	q.left--
	last := q.left == 0
	if last {
		q.forget()
	}
	s.mu.Unlock()
	if last && !q.over.Swap(true) {
		q.sendFinal()
	}
}

// forget takes the inquiry out of its link's table. Called with s.mu held.
func (q *inquiry) forget() {
	q.watchdog.Stop()
	if q.face.inquiries[q.id] == q {
		delete(q.face.inquiries, q.id)
	}
}

// expire ends an inquiry whose queryables did not.
func (q *inquiry) expire() {
	q.face.s.mu.Lock()
	q.forget()
	q.face.s.mu.Unlock()
	if !q.over.Swap(true) {
		q.sendFinal()
	}
}

// cancel drops an inquiry whose link is gone. Called with s.mu held.
func (q *inquiry) cancel() {
	q.watchdog.Stop()
	q.over.Store(true)
}

func (q *inquiry) sendFinal() {
	m := codec.Message{Kind: codec.KindFinal, Final: codec.Final{Envelope: codec.Envelope{QoS: q.qos}, ID: q.id}}
	q.face.send(&m, link.How{QoS: q.qos | codec.Block, Reliable: true, Try: true})
}
