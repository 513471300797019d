package zenoh

import (
	"errors"
	"sync"
	"sync/atomic"

	"edgert/wire"
	"edgert/wire/zenoh/codec"
	"edgert/wire/zenoh/keyexpr"
	"edgert/wire/zenoh/link"
)

// publisher sends samples on one key to every link that wants them, and to the
// own subscribers.
type publisher struct {
	// Constant.
	s   *Session
	key string
	how link.Delivery

	stale atomic.Bool // links or subscribers have changed

	mu      sync.Mutex // held while a Put copies, or waits when it blocks
	push    codec.Push // guarded by mu
	targets []target   // guarded by mu
	closed  bool       // guarded by mu
	nobody  error      // why there are no targets; guarded by mu

	// For the session's own subscribers, guarded by mu.
	own  []*subscriber
	slot localSlot
}

// target is a link that wants a publisher's samples, and the place of the newest
// there.
type target struct {
	link *link.Link
	slot *link.Slot
}

// Publisher declares a publisher. A router gets all its samples, links that have
// no subscriber for the key get none.
func (s *Session) Publisher(key string, qos wire.QoS) (wire.Publisher, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	if keyexpr.HasWildcard(key) {
		return nil, errors.New("wire/zenoh: publisher on " + key + ", want a key without wildcards")
	}
	p := &publisher{s: s, key: key, how: link.Delivery{QoS: qosByte(qos), Reliable: qos.Reliable}}
	p.push = codec.Push{Expr: codec.Key([]byte(key)), Envelope: codec.Envelope{QoS: p.how.QoS}}
	p.stale.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, wire.ErrClosed
	}
	s.publishers[p] = true
	s.aimers.add(key, p)
	return p, nil
}

func qosByte(q wire.QoS) codec.QoS {
	b := codec.QoS(q.Priority & 7)
	if b == 0 {
		b = codec.QoS(wire.Data)
	}
	if q.Block {
		b |= codec.Block
	}
	if q.Express {
		b |= codec.Express
	}
	return b
}

// Put queues a sample on every link that wants it.
//
//rt:noalloc
func (p *publisher) Put(payload, attachment []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.prepare(payload, attachment); err != nil {
		return err
	}
	first := p.nobody
	if len(p.own) > 0 {
		if err := p.s.events.sample(p); err != nil && first == nil {
			first = err
		}
	}
	for i := range p.targets {
		if err := p.targets[i].link.Push(&p.push, p.how); err != nil && err != link.ErrClosed && first == nil {
			first = err
		}
	}
	p.push.Data.Payload, p.push.Data.Attachment = nil, nil
	return first
}

// PutLatest queues a sample in the publisher's own slot on every link that wants
// it, where it replaces one whose first byte has not left.
//
//rt:noalloc
func (p *publisher) PutLatest(payload, attachment []byte) (replaced bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.prepare(payload, attachment); err != nil {
		return false, err
	}
	err = p.nobody
	if len(p.own) > 0 {
		replaced = p.s.events.latest(p)
	}
	for i := range p.targets {
		t := &p.targets[i]
		r, e := t.link.PushLatest(t.slot, &p.push, p.how)
		replaced = replaced || r
		if e != nil && e != link.ErrClosed && err == nil {
			err = e
		}
	}
	p.push.Data.Payload, p.push.Data.Attachment = nil, nil
	return replaced, err
}

// prepare brings the targets up to date and the sample into place. Called with
// p.mu held.
func (p *publisher) prepare(payload, attachment []byte) error {
	if p.closed {
		return wire.ErrClosed
	}
	if p.stale.CompareAndSwap(true, false) {
		if err := p.aim(); err != nil {
			p.stale.Store(true)
			return err
		}
	}
	p.push.Data.Payload, p.push.Data.Attachment = payload, attachment
	return nil
}

// aim finds who wants the publisher's samples; slots of links that stay are
// kept. Called with p.mu held.
func (p *publisher) aim() error {
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return wire.ErrClosed
	}
	p.nobody = nil
	if len(s.faces) == 0 && len(s.listeners) == 0 {
		p.nobody = wire.ErrDisconnected
	}
	old := p.targets
	p.targets, p.own = nil, nil
	s.aiming++
	add := func(f *face) {
		if f.aimed == s.aiming {
			return
		}
		f.aimed = s.aiming
		t := target{link: f.link}
		for _, o := range old {
			if o.link == f.link {
				t.slot = o.slot
			}
		}
		if t.slot == nil {
			t.slot = new(link.Slot)
		}
		p.targets = append(p.targets, t)
	}
	for _, e := range s.matches(codec.DeclareSubscriber, p.key) {
		for _, o := range e.own {
			p.own = append(p.own, o.sub)
		}
		for i := range e.holders {
			add(e.holders[i].face)
		}
	}
	for _, f := range s.north {
		if f.kind == upstream || !f.ready {
			add(f)
		}
	}
	return nil
}

// retarget makes publishers look at their links again: all of them for "", else
// those that a subscriber on key concerns. Called with mu held.
func (s *Session) retarget(key string) {
	if key == "" {
		for p := range s.publishers {
			p.stale.Store(true)
		}
		return
	}
	for _, all := range s.aimers.matching(key) {
		for p := range all.who {
			p.stale.Store(true)
		}
	}
}

// Undeclare ends the publisher.
func (p *publisher) Undeclare() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.publishers[p] {
		delete(s.publishers, p)
		s.aimers.remove(p.key, p)
	}
	return nil
}
