package zenoh

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
	"github.com/edge-rt/edge-rt/wire/zenoh/keyexpr"
	"github.com/edge-rt/edge-rt/wire/zenoh/link"
)

// Bounds of the replies that one Get collects.
const (
	maxReplies    = 4096
	maxReplyBytes = DefaultMemory // enough for one largest message and smaller ones
)

// outQuery is a query of this session, and collects its replies.
type outQuery struct {
	// Constant after Get has made it.
	s   *Session
	key string

	// Guarded by Session.mu.
	pending
	replies []wire.Reply
	bytes   int
}

// pending is a request to the upstream that waits for answers. Guarded by Session.mu.
type pending struct {
	done chan struct{} // closed with the last answer; constant
	over bool
}

// finish records the last answer. Called with Session.mu held.
func (p *pending) finish() {
	if !p.over {
		p.over = true
		close(p.done)
	}
}

// add keeps a reply, with a copy of the bytes that m lends. It drops and counts a reply above the bound, or one whose
// key does not match the query. A deletion is not a reply. Called with s.mu held.
func (q *outQuery) add(key string, m *codec.Response) {
	switch payload := m.Data.Payload; {
	case m.Data.Delete:
	case !m.Err && !keyexpr.Intersects(key, q.key), len(q.replies) == maxReplies, q.bytes+len(payload) > maxReplyBytes:
		q.s.counters.Replies.Add(1)
	default:
		q.bytes += len(payload)
		q.replies = append(q.replies, wire.Reply{Key: key, Payload: append([]byte{}, payload...), Err: m.Err})
	}
}

// response handles a reply from the upstream.
func (s *Session) response(key string, m *codec.Response) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.outQueries[m.ID]; q != nil && !q.over {
		q.add(key, m)
	}
}

// Get queries every matching queryable of other sessions and returns all replies, even several on one key. When ctx
// ends first, Get returns the replies so far with the error of ctx.
func (s *Session) Get(ctx context.Context, key string, payload []byte, timeout time.Duration) ([]wire.Reply, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	if timeout < time.Millisecond {
		return nil, fmt.Errorf("wire/zenoh: get %s: timeout %v, want at least 1ms", key, timeout)
	}
	q := &outQuery{s: s, key: key, pending: pending{done: make(chan struct{})}}
	s.mu.Lock()
	if err := s.reachable(); err != nil {
		s.mu.Unlock()
		return nil, err
	}
	id, up := s.id(), s.up
	s.outQueries[id] = q
	s.mu.Unlock()
	m := codec.Request{
		Envelope:  codec.Envelope{QoS: codec.RequestQoS},
		ID:        id,
		Expr:      codec.Key(key),
		Target:    codec.All,
		TimeoutMS: uint64(timeout.Milliseconds()),
		Query:     codec.Query{Consolidation: codec.ConsolidateNone, HasBody: payload != nil, Payload: payload},
	}.Message()
	err := up.Send(m, link.Delivery{QoS: codec.RequestQoS, Reliable: true})
	if err == nil || errors.Is(err, link.ErrClosed) { // the end of the link finishes q
		err = s.await(ctx, q.done, timeout)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.outQueries, id)
	if s.closed {
		return nil, wire.ErrClosed
	}
	return q.replies, err
}

// await waits for done, the timeout, Close or the end of ctx. Only the end of ctx is an error.
func (s *Session) await(ctx context.Context, done <-chan struct{}, timeout time.Duration) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case <-s.ctx.Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
