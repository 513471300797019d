package local

import (
	"context"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh/keyexpr"
)

// client is the session of one client in this process. Closing it undeclares everything.
type client struct {
	bus  *Bus
	from wire.Origin

	mu       sync.Mutex
	declared []*declaration // guarded by mu
	closed   bool           // guarded by mu
}

func (c *client) declare(d *declaration) (*declaration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, wire.ErrClosed
	}
	c.declared = append(c.declared, c.bus.declare(d))
	return d, nil
}

func (c *client) Publisher(key string, _ wire.QoS) (wire.Publisher, error) {
	return sender{c.bus, key}, nil
}

func (c *client) Subscribe(expr string, deposit func(wire.Sample)) (wire.Declaration, error) {
	return c.declare(&declaration{kind: subscriber, key: expr, sample: deposit})
}

func (c *client) Queryable(expr string, answer func(wire.Query)) (wire.Declaration, error) {
	return c.declare(&declaration{kind: queryable, key: expr, query: answer})
}

func (c *client) Token(key string) (wire.Declaration, error) {
	d, err := c.declare(&declaration{kind: token, key: key})
	if err == nil {
		c.bus.report(key, true, true)
	}
	return d, err
}

func (c *client) SubscribeTokens(expr string, deposit func(string, bool)) (wire.Declaration, error) {
	d, err := c.declare(&declaration{kind: watcher, key: expr, token: deposit})
	if err == nil {
		for _, key := range c.bus.tokens(expr, true) {
			d.report(key, true)
		}
	}
	return d, err
}

func (c *client) Tokens(_ context.Context, expr string, _ time.Duration) ([]string, error) {
	return c.bus.tokens(expr, true), nil
}

// Get queries the server's queryables.
func (c *client) Get(ctx context.Context, expr string, payload []byte, timeout time.Duration) ([]wire.Reply, error) {
	var asked []*Query
	for _, d := range c.bus.all() {
		if d.kind != queryable || !d.server || !keyexpr.Intersects(d.key, expr) {
			continue
		}
		q := NewQuery(expr, c.from, payload)
		d.mu.Lock()
		if !d.gone {
			asked = append(asked, q)
			d.query(q)
		}
		d.mu.Unlock()
	}
	return Await(ctx, asked, timeout)
}

// Connected implements wire.Session: the server is in this process.
func (c *client) Connected() bool { return true }

// Close undeclares everything that the client declared.
func (c *client) Close() error {
	c.mu.Lock()
	declared := c.declared
	c.declared, c.closed = nil, true
	c.mu.Unlock()
	for _, d := range declared {
		_ = d.Undeclare() // never fails
	}
	return nil
}

// sender is a client's publisher. It returns an error for a sample that no subscriber receives, because the server then
// has no session for this client.
type sender struct {
	bus *Bus
	key string
}

func (s sender) Undeclare() error { return nil }

func (s sender) Put(payload, attachment []byte) error {
	if !s.bus.deliver(wire.Sample{Key: s.key, Payload: payload, Attachment: attachment}, true) {
		return wire.ErrDisconnected
	}
	return nil
}

func (s sender) PutLatest(payload, attachment []byte) (replaced bool, err error) {
	return false, s.Put(payload, attachment)
}
