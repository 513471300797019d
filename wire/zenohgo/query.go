//go:build zenohc

package zenohgo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	zenohc "github.com/eclipse-zenoh/zenoh-go/zenoh"

	"edgert/wire"
)

// Queryable calls answer for every query whose key matches.
func (s *Session) Queryable(key string, answer func(wire.Query)) (wire.Declaration, error) {
	return s.queryable(key, answer, false)
}

// CompleteQueryable is Queryable with the promise that it knows every value
// under its key.
func (s *Session) CompleteQueryable(key string, answer func(wire.Query)) (wire.Declaration, error) {
	return s.queryable(key, answer, true)
}

func (s *Session) queryable(key string, answer func(wire.Query), complete bool) (wire.Declaration, error) {
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
		able, err := s.session.DeclareQueryable(k, zenohc.Closure[zenohc.Query]{Call: on}, &zenohc.QueryableOptions{Complete: complete})
		d.undeclare = able.Undeclare
		return err
	}))
}

// query is one that a queryable was asked.
type query struct {
	s *Session
	q zenohc.Query

	mu   sync.Mutex
	over bool // guarded by mu
}

var errOver = errors.New("wire/zenohgo: the query is finished")

func (q *query) Key() string        { return q.q.KeyExpr().String() }
func (q *query) Parameters() string { return q.q.Parameters() }
func (q *query) Payload() []byte    { return bytesOf(q.q.Payload()) }
func (q *query) Attachment() []byte { return bytesOf(q.q.Attachement()) }

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
	return q.ReplyWith(wire.Sample{Key: key, Payload: payload})
}

// ReplyWith sends one reply.
func (q *query) ReplyWith(m wire.Sample) error {
	if err := refuse(m, false); err != nil {
		return err
	}
	e, err := encodingTo(m.Encoding)
	if err != nil {
		return err
	}
	return q.while(func() error {
		k, err := keyOf(m.Key)
		if err != nil {
			return err
		}
		if m.Delete {
			return q.q.ReplyDel(k, &zenohc.QueryReplyDelOptions{Attachement: optional(m.Attachment)})
		}
		return q.q.Reply(k, zenohc.NewZBytes(append([]byte{}, m.Payload...)),
			&zenohc.QueryReplyOptions{Encoding: some(e), Attachement: optional(m.Attachment)})
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

// targets and consolidations are in the order of wire's.
var (
	targets        = []zenohc.QueryTarget{zenohc.QueryTargetAll, zenohc.QueryTargetBestMatching, zenohc.QueryTargetAllComplete}
	consolidations = []zenohc.ConsolidationMode{zenohc.ConsolidationModeNone, zenohc.ConsolidationModeMonothonic, zenohc.ConsolidationModeLatest}
)

// Get asks all queryables that match.
func (s *Session) Get(ctx context.Context, key string, payload []byte, timeout time.Duration) ([]wire.Reply, error) {
	return s.Ask(ctx, wire.Question{Key: key, Payload: payload, Timeout: timeout})
}

// Ask is Get with everything that a question can carry.
func (s *Session) Ask(ctx context.Context, q wire.Question) ([]wire.Reply, error) {
	if q.Timeout < time.Millisecond || int(q.Target) >= len(targets) || int(q.Consolidation) >= len(consolidations) {
		return nil, fmt.Errorf("wire/zenohgo: timeout %v, target %d, consolidation %d: want at least 1ms and known ones", q.Timeout, q.Target, q.Consolidation)
	}
	e, err := encodingTo(q.Encoding)
	if err != nil {
		return nil, err
	}
	opts := zenohc.GetOptions{Target: some(targets[q.Target]), Consolidataion: some(zenohc.NewQueryConsolidataion(consolidations[q.Consolidation])),
		Payload: optional(q.Payload), Attachement: optional(q.Attachment), TimeoutMs: uint64(q.Timeout.Milliseconds())}
	if q.Payload != nil {
		opts.Encoding = some(e)
	}
	if slices.Contains(strings.Split(q.Parameters, ";"), "_anyke") {
		opts.AcceptReplies = some(zenohc.ReplyKeyexprAny)
	}
	all, err := s.gather(ctx, q.Key, func(k zenohc.KeyExpr, h zenohc.Handler[zenohc.Reply]) error {
		_, err := s.session.Get(k, q.Parameters, h, &opts)
		return err
	})
	// How the library says that it waits no longer.
	return slices.DeleteFunc(all, func(r wire.Reply) bool { return r.Err && string(r.Payload) == "Timeout" }), err
}

// gather collects the replies to what get asks.
func (s *Session) gather(ctx context.Context, key string, get func(zenohc.KeyExpr, zenohc.Handler[zenohc.Reply]) error) ([]wire.Reply, error) {
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
		return wire.Reply{Err: true, Payload: failed.Payload().Bytes(), Encoding: encodingOf(failed.Encoding())}
	}
	m, _ := r.Ok().Value()
	s := sampleOf(&m)
	return wire.Reply{Key: s.Key, Payload: s.Payload, Attachment: s.Attachment, Encoding: s.Encoding, Time: s.Time, Delete: s.Delete}
}
