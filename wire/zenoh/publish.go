package zenoh

import (
	"errors"
	"slices"
	"sync"

	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
	"github.com/edge-rt/edge-rt/wire/zenoh/keyexpr"
	"github.com/edge-rt/edge-rt/wire/zenoh/link"
)

// publisher sends samples on one key to every link with a subscriber for it.
type publisher struct {
	// Constant after Publisher.
	s   *Session
	key string
	how link.Delivery

	// Guarded by mu. A Put holds mu while it copies the sample and while it waits for room.
	mu      sync.Mutex
	push    codec.Push
	closed  bool
	epoch   uint64 // the session's epoch at the last search for receivers
	targets []target
	nobody  error        // the reason why there are no receivers
	links   []*link.Link // scratch space of aim
}

// target is a link with a subscriber for a publisher's samples, and the publisher's slot on this link.
type target struct {
	link *link.Link
	slot *link.Slot
}

// Publisher declares a publisher. When the session is linked to a router, the router gets all samples. When the session
// listens, only links with a subscriber for the key get them.
func (s *Session) Publisher(key string, qos wire.QoS) (wire.Publisher, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	if keyexpr.HasWildcard(key) {
		return nil, errors.New("wire/zenoh: publisher on " + key + ", want a key without wildcards")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, wire.ErrClosed
	}
	p := &publisher{s: s, key: key, how: link.Delivery{QoS: qosByte(qos), Reliable: qos.Reliable}}
	p.push = codec.Push{Expr: codec.Key(key), Envelope: codec.Envelope{QoS: p.how.QoS}}
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

// Put queues a sample on every link with a subscriber for it.
//
//rt:noalloc
func (p *publisher) Put(payload, attachment []byte) error {
	_, err := p.put(payload, attachment, false)
	return err
}

// PutLatest queues a sample in the publisher's own slot, on every link with a subscriber for it. It replaces the slot's
// earlier sample if the writer has not begun to send that.
//
//rt:noalloc
func (p *publisher) PutLatest(payload, attachment []byte) (replaced bool, err error) {
	return p.put(payload, attachment, true)
}

//rt:noalloc
func (p *publisher) put(payload, attachment []byte, latest bool) (replaced bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.prepare(payload, attachment); err != nil {
		return false, err
	}
	err = p.nobody
	for i := range p.targets {
		t := &p.targets[i]
		var older bool
		var e error
		if latest {
			older, e = t.link.PushLatest(t.slot, &p.push, p.how)
		} else {
			e = t.link.Push(&p.push, p.how)
		}
		replaced = replaced || older
		if e != nil && !errors.Is(e, link.ErrClosed) && err == nil {
			err = e
		}
	}
	p.push.Data.Payload, p.push.Data.Attachment = nil, nil
	return replaced, err
}

// prepare updates the targets and puts the sample into p.push. Called with p.mu held.
func (p *publisher) prepare(payload, attachment []byte) error {
	if p.closed {
		return wire.ErrClosed
	}
	if p.epoch != p.s.epoch.Load() {
		if err := p.aim(); err != nil {
			return err
		}
	}
	p.push.Data.Payload, p.push.Data.Attachment = payload, attachment
	return nil
}

// aim finds the links with a subscriber for the publisher's samples. A link that is already a target keeps its slot.
// Called with p.mu held.
func (p *publisher) aim() error {
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return wire.ErrClosed
	}
	p.epoch = s.epoch.Load()
	p.links = p.links[:0]
	p.nobody = wire.ErrDisconnected
	if s.up != nil {
		p.links, p.nobody = s.up.Receivers(p.links, p.key), nil
	}
	old := p.targets
	p.targets = make([]target, 0, len(p.links))
	for _, l := range p.links {
		t := target{l, nil}
		if i := slices.IndexFunc(old, func(o target) bool { return o.link == l }); i >= 0 {
			t.slot = old[i].slot
		} else {
			t.slot = new(link.Slot)
		}
		p.targets = append(p.targets, t)
	}
	clear(p.links) // leaves no reference to an ended link
	return nil
}

// Undeclare ends the publisher.
func (p *publisher) Undeclare() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	return nil
}
