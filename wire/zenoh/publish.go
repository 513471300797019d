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

// publisher sends samples on one key to every link that wants them.
type publisher struct {
	// Constant.
	s   *Session
	id  uint32 // of its interest in subscribers
	key string
	how link.How

	stale atomic.Bool // links or their subscribers have changed

	mu      sync.Mutex // held while a Put copies, or waits when it blocks
	push    codec.Push // guarded by mu
	targets []target   // guarded by mu
	closed  bool       // guarded by mu
}

// target is a link that wants a publisher's samples, and the place of the newest
// there.
type target struct {
	link *link.Link
	slot *link.Slot
}

// Publisher declares a publisher. Nothing is sent for it; the links that have no
// subscriber for its key are passed over.
func (s *Session) Publisher(key string, qos wire.QoS) (wire.Publisher, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	if keyexpr.Wild(key) {
		return nil, errors.New("wire/zenoh: publisher on " + key + ", want a key without wildcards")
	}
	p := &publisher{s: s, key: key, how: link.How{QoS: qosByte(qos), Reliable: qos.Reliable}}
	p.push = codec.Push{Expr: codec.Key([]byte(key)), Envelope: codec.Envelope{QoS: p.how.QoS}}
	p.stale.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, wire.ErrClosed
	}
	p.id = s.id()
	s.publishers[p] = true
	for _, f := range s.faces {
		if f.kind == upstream {
			f.interest(p.interest())
		}
	}
	return p, nil
}

// interest asks an upstream who subscribes to the publisher's key.
func (p *publisher) interest() codec.Interest {
	return codec.Interest{ID: p.id, Mode: codec.InterestCurrentFuture, About: codec.AboutSubscribers,
		Restricted: true, Expr: codec.Key([]byte(p.key))}
}

// Matching reports whether anybody is known to subscribe to the key.
func (p *publisher) Matching() bool {
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.faces {
		if intersectsAny(f.subscribers, p.key) {
			return true
		}
	}
	return false
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
	return p.put(payload, attachment)
}

func (p *publisher) put(payload, attachment []byte) error {
	if err := p.prepare(payload, attachment); err != nil {
		return err
	}
	var first error
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
	for i := range p.targets {
		t := &p.targets[i]
		r, e := t.link.Latest(t.slot, &p.push, p.how)
		replaced = replaced || r
		if e != nil && e != link.ErrClosed && err == nil {
			err = e
		}
	}
	p.push.Data.Payload, p.push.Data.Attachment = nil, nil
	return replaced, err
}

// PutWith is Put with everything that a sample can carry.
func (p *publisher) PutWith(sample wire.Sample) error {
	data, err := dataOf(p.s, sample)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.push.Data = data
	err = p.put(sample.Payload, sample.Attachment)
	p.push.Data = codec.Data{}
	return err
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

// aim finds the links that want the publisher's samples; slots of links that
// stay are kept. Called with p.mu held.
func (p *publisher) aim() error {
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return wire.ErrClosed
	}
	if len(s.faces) == 0 && len(s.listeners) == 0 {
		p.targets = nil
		return wire.ErrDisconnected
	}
	old := p.targets
	p.targets = nil
	for _, f := range s.faces {
		if !f.hears(p.key) {
			continue
		}
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
	return nil
}

// retarget makes publishers look at their links again: all of them for "", else
// those that a subscriber on key concerns. Called with mu held.
func (s *Session) retarget(key string) {
	for p := range s.publishers {
		if key == "" || keyexpr.Intersects(key, p.key) {
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
		for _, f := range s.faces {
			if f.kind == upstream {
				f.interest(codec.Interest{ID: p.id, Mode: codec.InterestFinal})
			}
		}
	}
	return nil
}
