// Package servertest holds what a server needs to run in a test's own memory: a
// network without wires and a policy without ONNX Runtime.
package servertest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"edgert/wire"
)

// Network joins the sessions of one test. A publication is delivered before Put
// returns, so a test knows when it has arrived.
type Network struct {
	mu          sync.RWMutex // held for reading while samples are delivered
	subscribers []*declaration
	queryables  []*declaration
	tokens      []*declaration
	watchers    []*declaration
	publishers  []*declaration

	stalled bool                   // guarded by mu
	held    map[string]wire.Sample // by key, guarded by mu
}

// declaration is anything a session announced.
type declaration struct {
	network *Network
	owner   *session
	list    *[]*declaration
	key     string
	sample  func(wire.Sample)
	query   func(wire.Query)
	token   func(string, bool)
}

// NewNetwork returns a network without participants.
func NewNetwork() *Network { return new(Network) }

// Session joins the network.
func (n *Network) Session() wire.Session { return &session{network: n} }

// CountTokens returns how many live tokens match.
func (n *Network) CountTokens(expr string) int {
	n.mu.RLock()
	defer n.mu.RUnlock()
	count := 0
	for _, d := range n.tokens {
		if match(expr, d.key) {
			count++
		}
	}
	return count
}

// Publishers returns how many publishers are declared on key.
func (n *Network) Publishers(key string) (count int) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	for _, d := range n.publishers {
		if d.key == key {
			count++
		}
	}
	return count
}

// Declarations returns how many subscribers, queryables, tokens and token
// subscribers are declared.
func (n *Network) Declarations() int {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return len(n.subscribers) + len(n.queryables) + len(n.tokens) + len(n.watchers)
}

// Undeclare takes d out; a token's watchers see it vanish.
func (d *declaration) Undeclare() error {
	d.network.mu.Lock()
	i := slices.Index(*d.list, d)
	if i >= 0 {
		*d.list = slices.Delete(slices.Clone(*d.list), i, i+1)
	}
	watchers := d.network.watchers
	d.network.mu.Unlock()
	if i >= 0 && d.list == &d.network.tokens {
		notify(watchers, d.key, false)
	}
	return nil
}

func notify(watchers []*declaration, key string, alive bool) {
	for _, w := range watchers {
		if match(w.key, key) {
			w.token(key, alive)
		}
	}
}

// match reports whether key lies in expr, whose segments may be *.
func match(expr, key string) bool {
	for {
		e, moreExpr, hasExpr := strings.Cut(expr, "/")
		k, moreKey, hasKey := strings.Cut(key, "/")
		if e != "*" && e != k || hasExpr != hasKey {
			return false
		}
		if !hasExpr {
			return true
		}
		expr, key = moreExpr, moreKey
	}
}

type session struct {
	network *Network

	mu     sync.Mutex // guards closed
	closed bool
}

func (s *session) declare(list *[]*declaration, d *declaration) (*declaration, error) {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return nil, wire.ErrClosed
	}
	d.network, d.owner, d.list = s.network, s, list
	s.network.mu.Lock()
	defer s.network.mu.Unlock()
	*list = append(slices.Clone(*list), d)
	return d, nil
}

func (s *session) Publisher(key string, _ wire.QoS) (wire.Publisher, error) {
	d, err := s.declare(&s.network.publishers, &declaration{key: key})
	return &publisher{d}, err
}

func (s *session) Subscribe(expr string, deposit func(wire.Sample)) (wire.Declaration, error) {
	return s.declare(&s.network.subscribers, &declaration{key: expr, sample: deposit})
}

func (s *session) Queryable(expr string, answer func(wire.Query)) (wire.Declaration, error) {
	return s.declare(&s.network.queryables, &declaration{key: expr, query: answer})
}

func (s *session) Token(key string) (wire.Declaration, error) {
	d, err := s.declare(&s.network.tokens, &declaration{key: key})
	if err == nil {
		s.network.mu.RLock()
		watchers := s.network.watchers
		s.network.mu.RUnlock()
		notify(watchers, key, true)
	}
	return d, err
}

func (s *session) SubscribeTokens(expr string, deposit func(string, bool)) (wire.Declaration, error) {
	d, err := s.declare(&s.network.watchers, &declaration{key: expr, token: deposit})
	if err != nil {
		return nil, err
	}
	s.network.mu.RLock()
	tokens := s.network.tokens
	s.network.mu.RUnlock()
	for _, t := range tokens {
		notify([]*declaration{d}, t.key, true)
	}
	return d, nil
}

func (s *session) Tokens(_ context.Context, expr string, _ time.Duration) (keys []string, err error) {
	s.network.mu.RLock()
	defer s.network.mu.RUnlock()
	for _, t := range s.network.tokens {
		if match(expr, t.key) {
			keys = append(keys, t.key)
		}
	}
	return keys, nil
}

func (s *session) Get(ctx context.Context, key string, payload []byte, timeout time.Duration) ([]wire.Reply, error) {
	s.network.mu.RLock()
	queryables := s.network.queryables
	s.network.mu.RUnlock()
	var asked []*query
	for _, d := range queryables {
		if match(d.key, key) || match(key, d.key) {
			q := &query{key: key, payload: payload, done: make(chan struct{})}
			asked = append(asked, q)
			d.query(q)
		}
	}
	limit := time.NewTimer(timeout)
	defer limit.Stop()
	var replies []wire.Reply
	for _, q := range asked {
		select {
		case <-q.done:
			replies = append(replies, q.replies...)
		case <-limit.C:
			return replies, nil
		case <-ctx.Done():
			return replies, ctx.Err()
		}
	}
	return replies, nil
}

func (s *session) Connected() bool { return true }

// Close withdraws everything, as the death of a link does.
func (s *session) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	n := s.network
	for _, list := range []*[]*declaration{&n.subscribers, &n.queryables, &n.tokens, &n.watchers, &n.publishers} {
		n.mu.RLock()
		mine := slices.Clone(*list)
		n.mu.RUnlock()
		for _, d := range mine {
			if d.owner == s {
				_ = d.Undeclare() // never fails
			}
		}
	}
	return nil
}

type publisher struct{ *declaration }

// Put delivers to every subscriber that matches.
func (p *publisher) Put(payload, attachment []byte) error {
	p.network.mu.RLock()
	defer p.network.mu.RUnlock()
	for _, d := range p.network.subscribers {
		if match(d.key, p.key) {
			d.sample(wire.Sample{Key: p.key, Payload: payload, Attachment: attachment})
		}
	}
	return nil
}

// PutLatest delivers like Put or, while the network is stalled, replaces what
// waits on the key.
func (p *publisher) PutLatest(payload, attachment []byte) (replaced bool, err error) {
	p.network.mu.Lock()
	if p.network.stalled {
		defer p.network.mu.Unlock()
		_, replaced = p.network.held[p.key]
		p.network.held[p.key] = wire.Sample{Payload: slices.Clone(payload), Attachment: slices.Clone(attachment)}
		return replaced, nil
	}
	p.network.mu.Unlock()
	return false, p.Put(payload, attachment)
}

// Stall is a link without room: what PutLatest publishes waits, of each key the
// newest, until the returned function delivers it.
func (n *Network) Stall() (resume func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stalled, n.held = true, map[string]wire.Sample{}
	return func() {
		n.mu.Lock()
		held := n.held
		n.stalled = false
		n.mu.Unlock()
		for key, s := range held {
			p := publisher{&declaration{network: n, key: key}}
			_ = p.Put(s.Payload, s.Attachment) // never fails
		}
	}
}

// query is one request to one queryable; its replies are read after done.
type query struct {
	key     string
	payload []byte
	replies []wire.Reply
	done    chan struct{}
}

func (q *query) Key() string     { return q.key }
func (q *query) Payload() []byte { return q.payload }
func (q *query) Finish()         { close(q.done) }

func (q *query) Reply(key string, payload []byte) error {
	q.replies = append(q.replies, wire.Reply{Key: key, Payload: slices.Clone(payload)})
	return nil
}

func (q *query) ReplyErr(payload []byte) error {
	q.replies = append(q.replies, wire.Reply{Payload: slices.Clone(payload), Err: true})
	return nil
}
