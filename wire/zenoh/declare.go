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
	s    *Session
	kind codec.DeclareKind
	key  string

	number   uint32 // unique in the session; constant after announce
	declared bool   // guarded by Session.mu

	sub       *subscriber // exactly one of them is set, by kind
	queryable *queryable
}

// entry holds the subscribers, queryables or tokens on one key, the session's own and those of
// others. The session announces its own to the upstream once, however many they are. Guarded by
// Session.mu.
type entry struct {
	kind   codec.DeclareKind
	key    string
	id     uint32 // its number at the upstream
	own    []*object
	remote int // tokens announced by the upstream
}

// kinds are those of entries, in the order of Session.index.
var kinds = [...]codec.DeclareKind{codec.DeclareSubscriber, codec.DeclareQueryable, codec.DeclareToken}

func (s *Session) tree(kind codec.DeclareKind) *keyexpr.Tree[*entry] { return &s.index[kind/2-1] }

// entry returns the entry of a key, and creates a missing one. Called with mu held.
func (s *Session) entry(kind codec.DeclareKind, key string) *entry {
	t := s.tree(kind)
	e, ok := t.Get(key)
	if !ok {
		e = &entry{kind: kind, key: key, id: s.id()}
		t.Put(key, e)
	}
	return e
}

// release drops an entry without objects. Called with mu held.
func (s *Session) release(e *entry) {
	if len(e.own) == 0 && e.remote == 0 {
		s.tree(e.kind).Delete(e.key)
	}
}

// matches lends the entries of a kind that intersect key, or all for "", until
// the next call. Called with mu held.
func (s *Session) matches(kind codec.DeclareKind, key string) []*entry {
	if key == "" {
		s.matched = s.tree(kind).AppendAll(s.matched[:0])
	} else {
		s.matched = s.tree(kind).AppendMatches(s.matched[:0], key)
	}
	return s.matched
}

// own lists the session's objects of a kind that match. Called with mu held.
func (s *Session) own(kind codec.DeclareKind, key string) (all []*object) {
	for _, e := range s.matches(kind, key) {
		all = append(all, e.own...)
	}
	return all
}

// Subscribe calls deposit for every sample whose key matches.
func (s *Session) Subscribe(key string, deposit func(wire.Sample)) (wire.Declaration, error) {
	sub := &subscriber{deposit: deposit}
	sub.object = object{
		s:    s,
		kind: codec.DeclareSubscriber,
		key:  key,
		sub:  sub,
	}
	if err := sub.announce(); err != nil {
		return nil, err
	}
	return sub, nil
}

// Queryable calls answer for every query whose key matches.
func (s *Session) Queryable(key string, answer func(wire.Query)) (wire.Declaration, error) {
	q := &queryable{answer: answer}
	q.object = object{
		s:         s,
		kind:      codec.DeclareQueryable,
		key:       key,
		queryable: q,
	}
	if err := q.announce(); err != nil {
		return nil, err
	}
	return q, nil
}

// Token declares a liveliness token: others see its key as long as the session
// reaches them.
func (s *Session) Token(key string) (wire.Declaration, error) {
	t := &object{s: s, kind: codec.DeclareToken, key: key}
	if err := t.announce(); err != nil {
		return nil, err
	}
	return t, nil
}

func checkKey(key string) error {
	if err := keyexpr.Check(key); err != nil {
		return fmt.Errorf("wire/zenoh: key %q: %w", key, err)
	}
	return nil
}

// announce adds an object and declares it at the upstream.
func (o *object) announce() error {
	if err := checkKey(o.key); err != nil {
		return err
	}
	s := o.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return wire.ErrClosed
	}
	o.number, o.declared = s.id(), true
	e := s.entry(o.kind, o.key)
	e.own = append(e.own, o)
	if o.kind == codec.DeclareSubscriber {
		s.epoch.Add(1)
	}
	if len(e.own) > 1 {
		return nil
	}
	if o.kind == codec.DeclareToken && e.remote == 0 {
		s.report(o.key, true)
	}
	s.declare(e)
	return nil
}

// declare sends the declaration of an entry to the upstream. Called with mu held.
func (s *Session) declare(e *entry) {
	s.send(codec.Declare{
		Kind: e.kind,
		ID:   e.id,
		Expr: codec.Key(e.key),
	}.Message())
}

// Undeclare withdraws the object. A second call does nothing.
func (o *object) Undeclare() error {
	s := o.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if !o.declared {
		return nil
	}
	o.declared = false
	e := s.entry(o.kind, o.key)
	e.own = slices.DeleteFunc(e.own, func(x *object) bool { return x == o })
	if o.kind == codec.DeclareSubscriber {
		s.epoch.Add(1)
	}
	if len(e.own) > 0 {
		return nil
	}
	if o.kind == codec.DeclareToken && e.remote == 0 {
		s.report(o.key, false)
	}
	s.release(e)
	s.send(codec.Declare{Kind: e.kind + 1, ID: e.id}.Message())
	return nil
}
