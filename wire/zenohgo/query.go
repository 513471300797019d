//go:build zenohc

package zenohgo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	zenohc "github.com/eclipse-zenoh/zenoh-go/zenoh"

	"github.com/edge-rt/edge-rt/wire"
)

// Queryable calls answer for every query whose key matches.
func (s *Session) Queryable(key string, answer func(wire.Query)) (wire.Declaration, error) {
	return declaration(s.declare(key, func(d *declared, k zenohc.KeyExpr) error {
		on := func(q zenohc.Query) {
			asked := &query{s: s, q: q}
			s.later(func() {
				s.deliver.Lock()
				defer s.deliver.Unlock()
				if d.over {
					asked.Finish()
					return
				}
				answer(asked)
			})
		}
		able, err := s.session.DeclareQueryable(k, zenohc.Closure[zenohc.Query]{Call: on}, nil)
		d.undeclare = able.Undeclare
		return err
	}))
}

// query is a query that a queryable received.
type query struct {
	s *Session
	q zenohc.Query

	mu   sync.Mutex
	over bool // finished; guarded by mu
}

var errOver = errors.New("wire/zenohgo: the query is finished")

func (q *query) Key() string       { return q.q.KeyExpr().String() }
func (q *query) Payload() []byte   { return bytesOf(q.q.Payload()) }
func (q *query) From() wire.Origin { return wire.Origin{} } // the library does not report the querier

// while runs f unless the query is finished.
func (q *query) while(f func() error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.over {
		return errOver
	}
	return q.s.call(f)
}

// Reply sends one reply.
func (q *query) Reply(key string, payload []byte) error {
	return q.while(func() error {
		k, err := keyOf(key)
		if err != nil {
			return err
		}
		return q.q.Reply(k, zenohc.NewZBytes(append([]byte{}, payload...)), nil)
	})
}

// ReplyErr sends an error as a reply.
func (q *query) ReplyErr(payload []byte) error {
	return q.while(func() error { return q.q.ReplyErr(zenohc.NewZBytes(append([]byte{}, payload...)), nil) })
}

// Finish ends the query.
func (q *query) Finish() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.over {
		q.over = true
		q.q.Drop()
	}
}

// Get queries all queryables that match.
func (s *Session) Get(ctx context.Context, key string, payload []byte, timeout time.Duration) ([]wire.Reply, error) {
	if timeout < time.Millisecond {
		return nil, fmt.Errorf("wire/zenohgo: get %s: timeout %v, want at least 1ms", key, timeout)
	}
	opts := zenohc.GetOptions{
		Target:         some(zenohc.QueryTargetAll),
		Payload:        optional(payload),
		TimeoutMs:      uint64(timeout.Milliseconds()),
		Consolidataion: some(zenohc.NewQueryConsolidataion(zenohc.ConsolidationModeNone)),
	}
	all, err := s.gather(ctx, key, func(k zenohc.KeyExpr, h zenohc.Handler[zenohc.Reply]) error {
		_, err := s.session.Get(k, "", h, &opts)
		return err
	})
	// The library adds an error reply when the timeout has passed.
	return slices.DeleteFunc(all, func(r wire.Reply) bool { return r.Err && string(r.Payload) == "Timeout" }), err
}

// gather collects the replies to the query that the function get sends.
func (s *Session) gather(ctx context.Context, key string,
	get func(zenohc.KeyExpr, zenohc.Handler[zenohc.Reply]) error) ([]wire.Reply, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var all []wire.Reply
	final := make(chan struct{})
	on := zenohc.Closure[zenohc.Reply]{Drop: func() { close(final) }, Call: func(r zenohc.Reply) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, replyOf(r))
	}}
	if err := s.call(func() error {
		k, err := keyOf(key)
		if err != nil {
			return err
		}
		return get(k, on)
	}); err != nil {
		return nil, err
	}
	var err error
	select {
	case <-final:
	case <-ctx.Done():
		err = ctx.Err()
	case <-s.closing:
		err = wire.ErrClosed
	}
	mu.Lock()
	defer mu.Unlock()
	return slices.Clone(all), err
}

func replyOf(r zenohc.Reply) wire.Reply {
	if failed, ok := r.Err().Value(); ok {
		return wire.Reply{Err: true, Payload: failed.Payload().Bytes()}
	}
	m, _ := r.Ok().Value()
	return wire.Reply{Key: m.KeyExpr().String(), Payload: m.Payload().Bytes()}
}
