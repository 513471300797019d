package zenoh

import (
	"fmt"
	"slices"

	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
	"github.com/edge-rt/edge-rt/wire/zenoh/keyexpr"
)

// object is one of our declarations, which the session announces to its upstream: a subscriber, a
// queryable or a token.
type object struct {
	// Constant after announce.
	s       *Session
	kind    codec.DeclareKind
	key     string
	deposit func(wire.Sample) // callback of a subscriber
	answer  func(wire.Query)  // callback of a queryable
	number  uint32            // unique in the session

	declared bool // guarded by Session.mu
	closed   bool // guarded by Session.deliver
}

// entry holds the subscribers, queryables or tokens on one key: the session's own objects, and the number of the other
// nodes' tokens. The session announces the key to the upstream once, even if it has several objects on the key. Guarded
// by Session.mu.
type entry struct {
	kind   codec.DeclareKind
	key    string
	id     uint32 // number of the entry at the upstream
	own    []*object
	remote int // tokens announced by the upstream
}

// entry returns the entry of a key, and creates a missing one. Called with mu held.
func (s *Session) entry(kind codec.DeclareKind, key string) *entry {
	t := s.index.Tree(kind)
	e, ok := t.Get(key)
	if !ok {
		e = &entry{kind: kind, key: key, id: s.id()}
		t.Put(key, e)
	}
	return e
}

// release removes an entry without objects and tokens. Called with mu held.
func (s *Session) release(e *entry) {
	if len(e.own) == 0 && e.remote == 0 {
		s.index.Tree(e.kind).Delete(e.key)
	}
}

// own lists the session's objects of a kind that match. Called with mu held.
func (s *Session) own(kind codec.DeclareKind, key string) (all []*object) {
	for _, e := range s.index.Matches(kind, key) {
		all = append(all, e.own...)
	}
	return all
}

// Subscribe calls deposit for every sample whose key matches.
func (s *Session) Subscribe(key string, deposit func(wire.Sample)) (wire.Declaration, error) {
	return s.announce(&object{kind: codec.DeclareSubscriber, key: key, deposit: deposit})
}

// Queryable calls answer for every query whose key matches.
func (s *Session) Queryable(key string, answer func(wire.Query)) (wire.Declaration, error) {
	return s.announce(&object{kind: codec.DeclareQueryable, key: key, answer: answer})
}

// Token declares a liveliness token. Other sessions see its key as alive as long as they can reach this session.
func (s *Session) Token(key string) (wire.Declaration, error) {
	return s.announce(&object{kind: codec.DeclareToken, key: key})
}

func checkKey(key string) error {
	if err := keyexpr.Check(key); err != nil {
		return fmt.Errorf("wire/zenoh: key %q: %w", key, err)
	}
	return nil
}

// announce adds an object and declares it at the upstream.
func (s *Session) announce(o *object) (wire.Declaration, error) {
	if err := checkKey(o.key); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, wire.ErrClosed
	}
	o.s = s
	o.number = s.id()
	o.declared = true
	e := s.entry(o.kind, o.key)
	e.own = append(e.own, o)
	if o.kind == codec.DeclareSubscriber {
		s.epoch.Add(1)
	}
	if len(e.own) > 1 {
		return o, nil
	}
	if o.kind == codec.DeclareToken && e.remote == 0 {
		s.report(o.key, true)
	}
	s.declare(e)
	return o, nil
}

// declare sends the declaration of an entry to the upstream. Called with mu held.
func (s *Session) declare(e *entry) {
	s.send(codec.Declare{
		Kind: e.kind,
		ID:   e.id,
		Expr: codec.Key(e.key),
	}.Message())
}

// Undeclare withdraws the object. When it returns, the object's callback is not running and will not be called again. A
// second call does nothing.
func (o *object) Undeclare() error {
	o.withdraw()
	o.s.deliver.Lock()
	o.closed = true
	o.s.deliver.Unlock()
	return nil
}

func (o *object) withdraw() {
	s := o.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if !o.declared {
		return
	}
	o.declared = false
	e := s.entry(o.kind, o.key)
	e.own = slices.DeleteFunc(e.own, func(x *object) bool { return x == o })
	if o.kind == codec.DeclareSubscriber {
		s.epoch.Add(1)
	}
	if len(e.own) > 0 {
		return
	}
	if o.kind == codec.DeclareToken && e.remote == 0 {
		s.report(o.key, false)
	}
	s.release(e)
	s.send(codec.Declare{Kind: e.kind + 1, ID: e.id}.Message())
}
