package zenoh

import (
	"fmt"

	"edgert/wire"
	"edgert/wire/zenoh/codec"
	"edgert/wire/zenoh/keyexpr"
)

// object is something of ours that others are told of: a subscriber, a
// queryable or a token.
type object struct {
	s    *Session
	kind codec.DeclareKind
	id   uint32
	key  string

	entry *entry // while it is declared; guarded by Session.mu

	sub       *subscriber // the one that is set, by kind
	queryable *queryable
}

// Subscribe calls deposit for every sample whose key matches.
func (s *Session) Subscribe(key string, deposit func(wire.Sample)) (wire.Declaration, error) {
	sub := &subscriber{deposit: deposit}
	sub.object = object{s: s, kind: codec.DeclareSubscriber, key: key, sub: sub}
	if err := s.announce(&sub.object); err != nil {
		return nil, err
	}
	return sub, nil
}

// Queryable calls answer for every query whose key matches.
func (s *Session) Queryable(key string, answer func(wire.Query)) (wire.Declaration, error) {
	q := &queryable{answer: answer}
	q.object = object{s: s, kind: codec.DeclareQueryable, key: key, queryable: q}
	if err := s.announce(&q.object); err != nil {
		return nil, err
	}
	return q, nil
}

// Token declares a liveliness token: others see its key as long as the session
// reaches them.
func (s *Session) Token(key string) (wire.Declaration, error) {
	t := &object{s: s, kind: codec.DeclareToken, key: key}
	if err := s.announce(t); err != nil {
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

// announce adds an object and tells those who should know.
func (s *Session) announce(o *object) error {
	if err := checkKey(o.key); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return wire.ErrClosed
	}
	o.id = s.id()
	s.adopt(o)
	return nil
}

// Undeclare takes the object back. It does nothing a second time.
func (o *object) Undeclare() error {
	s := o.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.entry != nil {
		s.abandon(o)
		o.entry = nil
	}
	return nil
}

// Undeclare returns when no deposit is running and none will.
func (sub *subscriber) Undeclare() error {
	err := sub.object.Undeclare()
	sub.s.deliver.Lock()
	sub.closed = true
	sub.s.deliver.Unlock()
	return err
}
