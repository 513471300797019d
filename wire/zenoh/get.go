package zenoh

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

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

// get collects the replies to one question.
type get struct {
	// Constant.
	key string
	any bool // replies on any key are welcome
	how wire.Consolidation

	done    chan struct{}  // closed when nobody is left to wait for
	waiting map[*face]bool // guarded by Session.mu
	replies []wire.Reply   // guarded by Session.mu
	newest  map[string]int // the place of each key's reply, if they are consolidated; guarded by Session.mu
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

// add keeps a reply, or passes over it as the consolidation demands. It reports
// false when there are too many. Called with s.mu held.
func (g *get) add(r wire.Reply) (ok bool) {
	size := len(r.Payload) + len(r.Attachment)
	if g.bytes+size > maxReplyBytes {
		return false
	}
	if g.how != wire.ConsolidateNone && !r.Err {
		if i, known := g.newest[r.Key]; known {
			old := &g.replies[i]
			if r.Time < old.Time {
				return true
			}
			if g.how == wire.ConsolidateLatest {
				g.bytes += size - len(old.Payload) - len(old.Attachment)
				*old = r
				return true
			}
		}
	}
	if len(g.replies) == maxReplies {
		return false
	}
	g.bytes += size
	g.newest[r.Key] = len(g.replies)
	g.replies = append(g.replies, r)
	return true
}

// Get asks every queryable that matches, wherever it is, and returns all
// replies, several on one key included. When ctx ends first its error is
// returned with the replies so far.
func (s *Session) Get(ctx context.Context, key string, payload []byte, timeout time.Duration) ([]wire.Reply, error) {
	return s.Ask(ctx, wire.Question{Key: key, Payload: payload, Timeout: timeout})
}

// Ask asks the queryables that a question is for. When ctx ends first its error
// is returned with the replies so far.
func (s *Session) Ask(ctx context.Context, q wire.Question) ([]wire.Reply, error) {
	m, err := requestOf(&q)
	if err != nil {
		return nil, err
	}
	g := &get{key: q.Key, any: anyKey(q.Parameters), how: q.Consolidation, done: make(chan struct{}),
		waiting: map[*face]bool{}, newest: map[string]int{}}
	s.mu.Lock()
	if err := s.reachable(); err != nil {
		s.mu.Unlock()
		return nil, err
	}
	id := s.id()
	m.Request.ID = id
	for _, f := range s.faces {
		if f.answers(q.Key) {
			g.waiting[f] = true
			f.send(&m, link.How{QoS: codec.RequestQoS, Reliable: true, Try: true})
		}
	}
	if len(g.waiting) == 0 {
		close(g.done)
	}
	s.gets[id] = g
	s.mu.Unlock()

	err = await(ctx, g.done, q.Timeout)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.gets, id)
	if s.closed {
		return nil, wire.ErrClosed
	}
	return g.replies, err
}

// requestOf is a question on the wire.
func requestOf(q *wire.Question) (m codec.Message, err error) {
	if err := checkKey(q.Key); err != nil {
		return m, err
	}
	switch {
	case q.Timeout < time.Millisecond:
		return m, fmt.Errorf("wire/zenoh: ask %s: timeout %v, want at least 1ms", q.Key, q.Timeout)
	case q.Target > wire.TargetComplete || q.Consolidation > wire.ConsolidateLatest:
		return m, fmt.Errorf("wire/zenoh: ask %s: target %d and consolidation %d, want one of wire's constants", q.Key, q.Target, q.Consolidation)
	case len(q.Parameters) > codec.MaxParameters || !utf8.ValidString(q.Parameters):
		return m, fmt.Errorf("wire/zenoh: ask %s: %d bytes of parameters, want at most %d of UTF-8", q.Key, len(q.Parameters), codec.MaxParameters)
	}
	encoding, err := encodingOf(q.Encoding)
	if err != nil {
		return m, err
	}
	return codec.Message{Kind: codec.KindRequest, Request: codec.Request{
		Envelope: codec.Envelope{QoS: codec.RequestQoS}, Expr: codec.Key([]byte(q.Key)),
		Target: targets[q.Target], TimeoutMS: uint64(q.Timeout.Milliseconds()),
		Query: codec.Query{Consolidation: consolidations[q.Consolidation], Parameters: []byte(q.Parameters), Attachment: q.Attachment,
			HasBody: q.Payload != nil || q.Encoding != wire.Encoding{}, Encoding: encoding, Payload: q.Payload},
	}}, nil
}

var (
	targets        = [...]codec.Target{wire.TargetAll: codec.All, wire.TargetBest: codec.BestMatching, wire.TargetComplete: codec.AllComplete}
	consolidations = [...]uint64{wire.ConsolidateNone: codec.ConsolidateNone, wire.ConsolidateMonotonic: codec.ConsolidateMonotonic,
		wire.ConsolidateLatest: codec.ConsolidateLatest}
)

// anyKey reports whether a query takes replies whose keys do not match its own.
func anyKey(parameters string) bool {
	for rest, more := parameters, true; more; {
		var p string
		p, rest, more = strings.Cut(rest, ";")
		if name, _, _ := strings.Cut(p, "="); name == "_anyke" {
			return true
		}
	}
	return false
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
	if g == nil || !g.waiting[f] {
		return
	}
	foreign := !m.Err && !g.any && !keyexpr.Intersects(key, g.key)
	if foreign || !g.add(replyOf(key, m)) {
		s.refused.Replies.Add(1)
	}
}

// replyOf is a reply with its own copies of what m lends.
func replyOf(key string, m *codec.Response) wire.Reply {
	d := &m.Data
	return wire.Reply{Key: key, Payload: append([]byte{}, d.Payload...), Err: m.Err, Attachment: clone(d.Attachment),
		Encoding: wire.Encoding{ID: uint16(d.Encoding.ID), Schema: string(d.Encoding.Schema)}, Time: d.Timestamp.Time, Delete: d.Delete}
}

func (s *Session) finishGet(f *face, id uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.gets[id]; g != nil {
		g.finish(f)
	}
}
