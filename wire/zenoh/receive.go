package zenoh

import (
	"edgert/wire"
	"edgert/wire/zenoh/codec"
	"edgert/wire/zenoh/keyexpr"
)

// route remembers who gets the samples of one incoming key.
type route struct {
	key         string
	epoch       uint64 // of the session's subscribers when they were matched
	subscribers []*subscriber
}

// subscriber is an own subscriber.
type subscriber struct {
	object
	deposit func(wire.Sample)
	closed  bool // guarded by Session.deliver
}

// push delivers one sample to the subscribers that match.
//
//rt:noalloc
func (f *face) push(m *codec.Push, reliable bool) {
	key, ok := f.expand(m.Expr)
	if !ok {
		f.s.refused.Keys.Add(1)
		return
	}
	r := f.routes[string(key)]
	if r == nil || r.epoch != f.s.epoch.Load() {
		if r = f.match(key, r); r == nil {
			return
		}
	}
	if len(r.subscribers) == 0 {
		return
	}
	f.s.deliver.Lock()
	for _, sub := range r.subscribers {
		if !sub.closed {
			sub.deposit(f.texts.sampleOf(r.key, &m.Data, m.QoS, reliable)) //rt:allow a schema that has changed
		}
	}
	f.s.deliver.Unlock()
}

// match finds the subscribers of a key that came for the first time, or again
// after they have changed.
func (f *face) match(key []byte, r *route) *route {
	s := f.s
	if r == nil {
		if len(key) > keyexpr.MaxBytes || keyexpr.Check(string(key)) != nil {
			s.refused.Keys.Add(1)
			return nil
		}
		if len(f.routes) == maxRoutes {
			clear(f.routes)
			s.refused.Routes.Add(1)
		}
		r = &route{key: string(key)}
		f.routes[r.key] = r
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.epoch, r.subscribers = s.epoch.Load(), r.subscribers[:0]
	for _, o := range s.objects {
		if o.sub != nil && keyexpr.Intersects(o.key, r.key) {
			r.subscribers = append(r.subscribers, o.sub)
		}
	}
	return r
}
