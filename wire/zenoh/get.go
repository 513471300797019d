package zenoh

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"edgert/wire"
	"edgert/wire/zenoh/codec"
	"edgert/wire/zenoh/keyexpr"
	"edgert/wire/zenoh/link"
)

// Bounds of what one Get collects.
const (
	maxReplies    = 4096
	maxReplyBytes = DefaultMemory // one largest message, and others
)

// get collects the replies to one question of ours.
type get struct {
	// Constant.
	s   *Session
	key string

	done    chan struct{} // closed when nobody is left to wait for
	left    int           // who is: links together, own queryables together; guarded by Session.mu
	replies []wire.Reply  // guarded by Session.mu
	bytes   int           // guarded by Session.mu
}

// part ends one of those who are waited for. Called with s.mu held.
func (g *get) part() {
	if g.left--; g.left == 0 {
		close(g.done)
	}
}

// add keeps a reply with its own copy of what m lends. One too many, or with a
// key that was not asked for, is counted. Deletions are none. Called with s.mu
// held.
func (g *get) add(key string, m *codec.Response) {
	switch payload := m.Data.Payload; {
	case m.Data.Delete:
	case !m.Err && !keyexpr.Intersects(key, g.key), len(g.replies) == maxReplies, g.bytes+len(payload) > maxReplyBytes:
		g.s.refused.Replies.Add(1)
	default:
		g.bytes += len(payload)
		g.replies = append(g.replies, wire.Reply{Key: key, Payload: append([]byte{}, payload...), Err: m.Err})
	}
}

// Get asks every queryable that matches, wherever it is, and returns all
// replies, several on one key included. When ctx ends first its error is
// returned with the replies so far.
func (s *Session) Get(ctx context.Context, key string, payload []byte, timeout time.Duration) ([]wire.Reply, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	if timeout < time.Millisecond {
		return nil, fmt.Errorf("wire/zenoh: get %s: timeout %v, want at least 1ms", key, timeout)
	}
	g := &get{s: s, key: key, done: make(chan struct{})}
	s.mu.Lock()
	own, links := s.answerers(key, codec.All, nil)
	if err := s.reachable(); err != nil && (s.closed || len(own) == 0) {
		s.mu.Unlock()
		return nil, err
	}
	asked := s.askedOf(links)
	if asked != nil {
		asked.get = g
		g.left++
	}
	var ours *inquiry
	if len(own) > 0 {
		ours = &inquiry{s: s, get: g, qos: codec.RequestQoS, key: key, payload: bytes.Clone(payload)}
		g.left++
		ours.open(own, timeout)
	}
	if g.left == 0 {
		close(g.done)
	}
	s.mu.Unlock()
	if asked != nil {
		m := codec.Request{Envelope: codec.Envelope{QoS: codec.RequestQoS}, Expr: codec.Key([]byte(key)),
			Target: codec.All, TimeoutMS: uint64(timeout.Milliseconds()),
			Query: codec.Query{Consolidation: codec.ConsolidateNone, HasBody: payload != nil, Payload: payload}}
		asked.send(s, links, &m, link.Delivery{QoS: m.QoS, Reliable: true})
	}
	if ours != nil {
		s.events.add(event{ask: ours.ask})
	}
	err := s.await(ctx, g.done, timeout)

	s.mu.Lock()
	defer s.mu.Unlock()
	if asked != nil {
		delete(s.questions, asked.id)
	}
	if ours != nil {
		ours.cancel()
	}
	if s.closed {
		return nil, wire.ErrClosed
	}
	return g.replies, err
}

// await waits for done, the timeout or Close, neither of which is an error.
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

// reachable reports why nobody can be asked. Called with mu held.
func (s *Session) reachable() error {
	switch {
	case s.closed:
		return wire.ErrClosed
	case len(s.faces) == 0 && len(s.listeners) == 0:
		return wire.ErrDisconnected
	}
	return nil
}
