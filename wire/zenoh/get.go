package zenoh

import (
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
	maxReplyBytes = 64 << 20
)

// get collects the replies to one query.
type get struct {
	key     string
	done    chan struct{}  // closed when nobody is left to wait for
	waiting map[*face]bool // guarded by Session.mu
	replies []wire.Reply   // guarded by Session.mu
	bytes   int            // guarded by Session.mu
}

// finish stops waiting for a link. Called with s.mu held.
func (g *get) finish(f *face) {
	if g.waiting[f] {
		delete(g.waiting, f)
		if len(g.waiting) == 0 {
			close(g.done)
		}
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
	g := &get{key: key, done: make(chan struct{}), waiting: map[*face]bool{}}
	s.mu.Lock()
	if err := s.reachable(); err != nil {
		s.mu.Unlock()
		return nil, err
	}
	id := s.id()
	m := codec.Message{Kind: codec.KindRequest, Request: codec.Request{
		Envelope: codec.Envelope{QoS: codec.RequestQoS}, ID: id, Expr: codec.Key([]byte(key)),
		Target: codec.All, TimeoutMS: uint64(timeout.Milliseconds()),
		Query: codec.Query{Consolidation: codec.ConsolidateNone, HasBody: payload != nil, Payload: payload},
	}}
	for _, f := range s.faces {
		if f.answers(key) {
			g.waiting[f] = true
			f.send(&m, link.How{QoS: codec.RequestQoS, Reliable: true, Try: true})
		}
	}
	if len(g.waiting) == 0 {
		close(g.done)
	}
	s.gets[id] = g
	s.mu.Unlock()

	err := await(ctx, g.done, timeout)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.gets, id)
	if s.closed {
		return nil, wire.ErrClosed
	}
	return g.replies, err
}

// await waits for done or the timeout, neither of which is an error.
func await(ctx context.Context, done <-chan struct{}, timeout time.Duration) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
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

// response collects a reply. Owner: the link's reader.
func (f *face) response(m *codec.Response) {
	var key string
	if m.Expr.Scope != 0 || len(m.Expr.Suffix) > 0 {
		var ok bool
		if key, ok = f.key(m.Expr); !ok {
			return
		}
	}
	s := f.s
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.gets[m.ID]
	if g == nil || !g.waiting[f] || m.Data.Delete {
		return
	}
	foreign := !m.Err && !keyexpr.Intersects(key, g.key)
	if foreign || len(g.replies) == maxReplies || g.bytes+len(m.Data.Payload) > maxReplyBytes {
		s.refused.Replies.Add(1)
		return
	}
	g.bytes += len(m.Data.Payload)
	g.replies = append(g.replies, wire.Reply{Key: key, Payload: append([]byte{}, m.Data.Payload...), Err: m.Err})
}

func (s *Session) finishGet(f *face, id uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.gets[id]; g != nil {
		g.finish(f)
	}
}
