package zenoh

import (
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
	"github.com/edge-rt/edge-rt/wire/zenoh/keyexpr"
)

// maxRoutes bounds the number of incoming keys whose subscribers are cached.
const maxRoutes = 4096

// route caches the subscribers of one incoming key. Guarded by Session.deliver.
type route struct {
	key         string
	epoch       uint64 // the session's epoch when the subscribers were matched
	subscribers []*object
}

// push delivers one sample to the matching subscribers. It does not deliver deletions, which have no payload.
//
//rt:noalloc
func (s *Session) push(key []byte, m *codec.Push) {
	if m.Data.Delete {
		return
	}
	s.deliver.Lock()
	defer s.deliver.Unlock()
	r := s.routes[string(key)]
	if r == nil || r.epoch != s.epoch.Load() {
		if r = s.match(key, r); r == nil {
			return
		}
	}
	sample := wire.Sample{Key: r.key, Payload: m.Data.Payload, Attachment: m.Data.Attachment}
	for _, sub := range r.subscribers {
		if !sub.closed {
			sub.deposit(sample)
		}
	}
}

// match finds the subscribers of a key whose route is missing or out of date. Called with deliver held.
func (s *Session) match(key []byte, r *route) *route {
	if r == nil {
		if len(key) > keyexpr.MaxBytes || keyexpr.Check(string(key)) != nil {
			s.counters.Keys.Add(1)
			return nil
		}
		if len(s.routes) == maxRoutes {
			s.counters.Routes.Add(1)
			clear(s.routes)
		}
		r = &route{key: string(key)}
		s.routes[r.key] = r
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.epoch, r.subscribers = s.epoch.Load(), r.subscribers[:0]
	for _, e := range s.index.Matches(codec.DeclareSubscriber, r.key) {
		r.subscribers = append(r.subscribers, e.own...)
	}
	return r
}
