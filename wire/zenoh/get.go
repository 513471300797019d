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
	maxReplyBytes = DefaultMemory // one largest message, and others
)

// get collects the replies to one question of ours.
type get struct {
	// Constant.
	key string
	any bool // replies on any key are welcome
	how wire.Consolidation

	done    chan struct{}  // closed when nobody is left to wait for
	left    int            // who is: links together, own queryables together; guarded by Session.mu
	replies []wire.Reply   // guarded by Session.mu
	newest  map[string]int // the place of each key's last reply; guarded by Session.mu
	bytes   int            // guarded by Session.mu
}

// part ends one of those who are waited for. Called with s.mu held.
func (g *get) part() {
	if g.left--; g.left == 0 {
		close(g.done)
	}
}

// welcome reports whether a reply's key is one that was asked for.
func (g *get) welcome(key string, failed bool) bool {
	return failed || g.any || keyexpr.Intersects(key, g.key)
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
	g := &get{key: q.Key, any: anyKey(q.Parameters), how: q.Consolidation, done: make(chan struct{}), newest: map[string]int{}}
	s.mu.Lock()
	own, links := s.answerers(q.Key, m.Target, nil)
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
		ours = &inquiry{s: s, get: g, qos: m.QoS, key: q.Key, parameters: q.Parameters,
			payload: clone(q.Payload), attachment: clone(q.Attachment)}
		g.left++
		ours.open(own, q.Timeout)
	}
	if g.left == 0 {
		close(g.done)
	}
	s.mu.Unlock()
	if asked != nil {
		asked.send(s, links, &m, link.How{QoS: m.QoS, Reliable: true})
	}
	if ours != nil {
		s.events.add(event{ask: ours.ask})
	}
	err = s.await(ctx, g.done, q.Timeout)

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

// requestOf is a question on the wire.
func requestOf(q *wire.Question) (m codec.Request, err error) {
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
	return codec.Request{
		Envelope: codec.Envelope{QoS: codec.RequestQoS}, Expr: codec.Key([]byte(q.Key)),
		Target: targets[q.Target], TimeoutMS: uint64(q.Timeout.Milliseconds()),
		Query: codec.Query{Consolidation: consolidations[q.Consolidation], Parameters: []byte(q.Parameters), Attachment: q.Attachment,
			HasBody: q.Payload != nil || q.Encoding != wire.Encoding{}, Encoding: encoding, Payload: q.Payload},
	}, nil
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
