// Package local connects clients in this process to a server, in addition to the server's network. A front, which
// speaks the protocol of foreign clients, opens such a client for each foreign client. The server receives these
// clients' queries, tokens and samples like those of the network; other servers and robots do not receive them.
package local

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh/keyexpr"
)

// Bus joins a server's session to clients in this process.
//
// A callback runs on the goroutine of the side that sends, one at a time for each declaration.
type Bus struct {
	network wire.Session

	mu       sync.Mutex // held while declared is replaced
	declared atomic.Pointer[[]*declaration]
}

// Join returns a bus for a server on network. The bus does not close network.
func Join(network wire.Session) *Bus {
	b := &Bus{network: network}
	b.declared.Store(&[]*declaration{})
	return b
}

// Server returns the session of the server: it reaches the network and all clients.
func (b *Bus) Server() wire.Session { return &server{b.network, b} }

// Client returns the session of one client, which reaches the server only. The server counts the client's sessions by
// the parameter from, the origin of the client's queries.
func (b *Bus) Client(from wire.Origin) wire.Session { return &client{bus: b, from: from} }

type kind uint8

const (
	subscriber kind = iota
	queryable
	token
	watcher // the watcher of tokens
)

// declaration is one declaration of one side.
type declaration struct {
	bus    *Bus
	server bool // the server has declared it; false: a client has
	kind   kind
	key    string
	sample func(wire.Sample)
	query  func(wire.Query)
	token  func(string, bool)

	mu   sync.Mutex // held during the callback
	gone bool       // no further callback; guarded by mu
}

func (b *Bus) all() []*declaration { return *b.declared.Load() }

func (b *Bus) declare(d *declaration) *declaration {
	d.bus = b
	b.mu.Lock()
	defer b.mu.Unlock()
	list := append(slices.Clone(b.all()), d)
	b.declared.Store(&list)
	return d
}

// Undeclare removes d and waits for a callback that is running. Watchers get the end of a token only when the token's
// last declaration is removed.
func (d *declaration) Undeclare() error {
	b := d.bus
	b.mu.Lock()
	list := slices.Clone(b.all())
	i := slices.Index(list, d)
	if i >= 0 {
		list = slices.Delete(list, i, i+1)
		b.declared.Store(&list)
	}
	b.mu.Unlock()
	d.mu.Lock()
	d.gone = true
	d.mu.Unlock()
	if i >= 0 && d.kind == token && !slices.ContainsFunc(list, func(o *declaration) bool {
		return o.kind == token && o.key == d.key
	}) {
		b.report(d.key, false, !d.server)
	}
	return nil
}

// deliver passes a sample to the matching subscribers of one side and reports whether there was such a subscriber.
//
//rt:noalloc
func (b *Bus) deliver(s wire.Sample, toServer bool) (delivered bool) {
	for _, d := range b.all() {
		if d.kind == subscriber && d.server == toServer && keyexpr.Intersects(d.key, s.Key) {
			d.mu.Lock()
			if !d.gone {
				d.sample(s)
				delivered = true
			}
			d.mu.Unlock()
		}
	}
	return delivered
}

// report informs the matching watchers of one side that a token appears or vanishes.
func (b *Bus) report(key string, alive, toServer bool) {
	for _, d := range b.all() {
		if d.kind == watcher && d.server == toServer && keyexpr.Intersects(d.key, key) {
			d.report(key, alive)
		}
	}
}

func (d *declaration) report(key string, alive bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.gone {
		d.token(key, alive)
	}
}

// tokens returns the keys of one side's tokens that match expr.
func (b *Bus) tokens(expr string, ofServer bool) (keys []string) {
	for _, d := range b.all() {
		if d.kind == token && d.server == ofServer && keyexpr.Intersects(expr, d.key) && !slices.Contains(keys, d.key) {
			keys = append(keys, d.key)
		}
	}
	return keys
}

// both is a declaration on the network and on the bus.
type both struct{ network, local wire.Declaration }

func (p both) Undeclare() error {
	_ = p.local.Undeclare() // never fails
	return p.network.Undeclare()
}

// server is the session of the server. All methods that it does not define are those of the
// network's session.
type server struct {
	wire.Session
	bus *Bus
}

// Unwrap returns the network's session, for callers that need methods beyond those of wire.Session.
func (s *server) Unwrap() wire.Session { return s.Session }

func (s *server) Publisher(key string, qos wire.QoS) (wire.Publisher, error) {
	p, err := s.Session.Publisher(key, qos)
	if err != nil {
		return nil, err
	}
	return &publisher{p, s.bus, key}, nil
}

func (s *server) add(d *declaration, network wire.Declaration, err error) (wire.Declaration, error) {
	if err != nil {
		return nil, err
	}
	d.server = true
	return both{network, s.bus.declare(d)}, nil
}

func (s *server) Subscribe(expr string, deposit func(wire.Sample)) (wire.Declaration, error) {
	network, err := s.Session.Subscribe(expr, deposit)
	return s.add(&declaration{kind: subscriber, key: expr, sample: deposit}, network, err)
}

func (s *server) Queryable(expr string, answer func(wire.Query)) (wire.Declaration, error) {
	network, err := s.Session.Queryable(expr, answer)
	return s.add(&declaration{kind: queryable, key: expr, query: answer}, network, err)
}

func (s *server) Token(key string) (wire.Declaration, error) {
	network, err := s.Session.Token(key)
	shown, err := s.add(&declaration{kind: token, key: key}, network, err)
	if err == nil {
		s.bus.report(key, true, false)
	}
	return shown, err
}

func (s *server) SubscribeTokens(expr string, deposit func(string, bool)) (wire.Declaration, error) {
	network, err := s.Session.SubscribeTokens(expr, deposit)
	watching := &declaration{kind: watcher, key: expr, token: deposit}
	declared, err := s.add(watching, network, err)
	if err == nil {
		for _, key := range s.bus.tokens(expr, false) {
			watching.report(key, true)
		}
	}
	return declared, err
}

// Tokens lists the tokens of the network and the clients' tokens that match expr.
func (s *server) Tokens(ctx context.Context, expr string, timeout time.Duration) ([]string, error) {
	keys, err := s.Session.Tokens(ctx, expr, timeout)
	return append(keys, s.bus.tokens(expr, false)...), err
}

// publisher sends the server's samples to the clients that subscribe to the key. If there is no such client, it sends
// them to the network, because a robot is on one side only.
type publisher struct {
	wire.Publisher
	bus *Bus
	key string
}

//rt:noalloc
func (p *publisher) Put(payload, attachment []byte) error {
	if p.bus.deliver(wire.Sample{Key: p.key, Payload: payload, Attachment: attachment}, false) {
		return nil
	}
	return p.Publisher.Put(payload, attachment)
}

//rt:noalloc
func (p *publisher) PutLatest(payload, attachment []byte) (replaced bool, err error) {
	if p.bus.deliver(wire.Sample{Key: p.key, Payload: payload, Attachment: attachment}, false) {
		return false, nil
	}
	return p.Publisher.PutLatest(payload, attachment)
}
