// Package servertest holds the parts that a server needs in a test: a network in memory and a
// policy without ONNX Runtime.
package servertest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/local"
	"github.com/edge-rt/edge-rt/wire/zenoh/keyexpr"
)

// Network connects the sessions of one test. A publication reaches the subscribers of all its sessions, and has arrived
// when Put returns.
type Network struct {
	mu       sync.RWMutex // held for reading while samples are delivered
	declared []*declaration

	joined  int                    // number of sessions so far, guarded by mu
	notices int                    // changes of tokens that not all subscribers have yet, guarded by mu
	stalled bool                   // guarded by mu
	held    map[string]wire.Sample // waiting samples by key, guarded by mu
}

type kind uint8

const (
	subscriber kind = iota
	queryable
	token
	tokenSubscriber
	publisher
)

// declaration is any declaration of a session.
type declaration struct {
	kind
	network *Network
	key     string
	sample  func(wire.Sample)  // a subscriber's callback
	query   func(wire.Query)   // a queryable's callback
	token   func(string, bool) // a token subscriber's callback
}

// NewNetwork returns a network without participants.
func NewNetwork() *Network { return new(Network) }

// Session returns a new session on the network. Its queries have an origin that no other session has.
func (n *Network) Session() wire.Session {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.joined++
	return session{n, wire.Origin{Name: fmt.Sprint("link ", n.joined), Host: fmt.Sprint("host ", n.joined)}}
}

// Routed returns a new session that joins the network through a router, so that the origin of its queries is unknown.
func (n *Network) Routed() wire.Session { return session{n, wire.Origin{}} }

// CountTokens returns how many live tokens match, or -1 while the subscribers to tokens do not all have the last
// change.
func (n *Network) CountTokens(expr string) int {
	n.mu.RLock()
	pending := n.notices > 0
	n.mu.RUnlock()
	if pending {
		return -1
	}
	return len(n.find(token, expr))
}

// Publishers returns how many publishers are declared on key.
func (n *Network) Publishers(key string) int { return len(n.find(publisher, key)) }

// Declarations returns how many subscribers, queryables, tokens and token
// subscribers are declared.
func (n *Network) Declarations() (count int) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	for _, d := range n.declared {
		if d.kind != publisher {
			count++
		}
	}
	return count
}

func (n *Network) find(k kind, expr string) (found []*declaration) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	for _, d := range n.declared {
		if d.kind == k && keyexpr.Intersects(expr, d.key) {
			found = append(found, d)
		}
	}
	return found
}

func (n *Network) declare(d *declaration) *declaration {
	d.network = n
	n.mu.Lock()
	n.declared = append(n.declared, d)
	if d.kind == token {
		n.notices++
	}
	n.mu.Unlock()
	return d
}

// Undeclare removes d. When d is the last token on its key, the subscribers to tokens see that the token vanishes.
func (d *declaration) Undeclare() error {
	n := d.network
	n.mu.Lock()
	i := slices.Index(n.declared, d)
	if i >= 0 {
		n.declared = slices.Delete(n.declared, i, i+1)
	}
	vanishes := i >= 0 && d.kind == token &&
		!slices.ContainsFunc(n.declared, func(o *declaration) bool { return o.kind == token && o.key == d.key })
	if vanishes {
		n.notices++
	}
	n.mu.Unlock()
	if vanishes {
		n.notify(d.key, false)
	}
	return nil
}

func (n *Network) notify(key string, alive bool) {
	for _, s := range n.find(tokenSubscriber, key) {
		s.token(key, alive)
	}
	n.mu.Lock()
	n.notices--
	n.mu.Unlock()
}

type session struct {
	*Network
	origin wire.Origin
}

func (s session) Publisher(key string, _ wire.QoS) (wire.Publisher, error) {
	return s.declare(&declaration{kind: publisher, key: key}), nil
}

func (s session) Subscribe(expr string, deposit func(wire.Sample)) (wire.Declaration, error) {
	return s.declare(&declaration{kind: subscriber, key: expr, sample: deposit}), nil
}

func (s session) Queryable(expr string, answer func(wire.Query)) (wire.Declaration, error) {
	return s.declare(&declaration{kind: queryable, key: expr, query: answer}), nil
}

func (s session) Token(key string) (wire.Declaration, error) {
	d := s.declare(&declaration{kind: token, key: key})
	s.notify(key, true)
	return d, nil
}

func (s session) SubscribeTokens(expr string, deposit func(string, bool)) (wire.Declaration, error) {
	d := s.declare(&declaration{kind: tokenSubscriber, key: expr, token: deposit})
	for _, t := range s.find(token, expr) {
		deposit(t.key, true)
	}
	return d, nil
}

func (s session) Tokens(_ context.Context, expr string, _ time.Duration) (keys []string, err error) {
	for _, t := range s.find(token, expr) {
		keys = append(keys, t.key)
	}
	return keys, nil
}

func (s session) Get(ctx context.Context, key string, payload []byte, timeout time.Duration) ([]wire.Reply, error) {
	var asked []*local.Query
	for _, d := range s.find(queryable, key) {
		q := local.NewQuery(key, s.origin, payload)
		asked = append(asked, q)
		d.query(q)
	}
	return local.Await(ctx, asked, timeout)
}

func (s session) Connected() bool { return true }

func (s session) Close() error { return nil }

// Put delivers to every matching subscriber.
func (d *declaration) Put(payload, attachment []byte) error {
	d.network.mu.RLock()
	defer d.network.mu.RUnlock()
	for _, s := range d.network.declared {
		if s.kind == subscriber && keyexpr.Intersects(s.key, d.key) {
			s.sample(wire.Sample{Key: d.key, Payload: payload, Attachment: attachment})
		}
	}
	return nil
}

// PutLatest delivers as Put does. While the network is stalled, the sample waits, and replaces an earlier sample that
// waits on the key.
func (d *declaration) PutLatest(payload, attachment []byte) (replaced bool, err error) {
	n := d.network
	n.mu.Lock()
	if n.stalled {
		defer n.mu.Unlock()
		_, replaced = n.held[d.key]
		n.held[d.key] = wire.Sample{Payload: slices.Clone(payload), Attachment: slices.Clone(attachment)}
		return replaced, nil
	}
	n.mu.Unlock()
	return false, d.Put(payload, attachment)
}

// Stall simulates a link without room. The newest publication by PutLatest on each key waits until resume delivers it.
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
			d := declaration{network: n, key: key}
			_ = d.Put(s.Payload, s.Attachment) // never fails
		}
	}
}
