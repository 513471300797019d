package zenoh

import (
	"sync/atomic"
	"time"

	"edgert/wire"
	"edgert/wire/zenoh/codec"
	"edgert/wire/zenoh/keyexpr"
	"edgert/wire/zenoh/link"
)

const (
	// maxRouteBytes bounds the remembered routes of all links together.
	maxRouteBytes = 4 << 20
	routeBytes    = 256 // of one, beside its key
	outletBytes   = 32  // of each link in it

	// relayPatience is how long a blocking message on its way from link to link
	// waits for room at one that takes nothing, and with it whatever its sender
	// says behind it. A link that has made somebody wait in vain is not waited for
	// again until it takes something.
	relayPatience = 500 * time.Millisecond
)

// route remembers who gets the samples of one incoming key.
type route struct {
	key         string
	epoch       uint64 // of the subscriptions when they were matched
	subscribers []*subscriber
	links       []*outlet
	cost        int64 // of Session.routeBytes; 0: it is not remembered
}

// outlet is what routes know of a link. It outlives the link, because others'
// routes are matched again only when their key comes again; it lets go of it.
type outlet struct{ link atomic.Pointer[link.Link] }

// subscriber is an own subscriber.
type subscriber struct {
	object
	deposit func(wire.Sample)
	closed  bool // guarded by Session.deliver
}

// push delivers one sample to the own subscribers that match, and relays it to
// the links that have others. Ours hear nothing of deletions.
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
	if len(r.subscribers) > 0 && !m.Data.Delete {
		sample := wire.Sample{Key: r.key, Payload: m.Data.Payload, Attachment: m.Data.Attachment}
		f.s.deliver.Lock()
		for _, sub := range r.subscribers {
			if !sub.closed {
				sub.deposit(sample)
			}
		}
		f.s.deliver.Unlock()
	}
	if len(r.links) > 0 {
		f.relay(r, m, key, reliable)
	}
}

// relay sends a sample on as it came, its key written out. Each link takes it or
// drops it by the sample's own QoS.
//
//rt:noalloc
func (f *face) relay(r *route, m *codec.Push, key []byte, reliable bool) {
	out := &f.relayed
	out.Envelope = codec.Envelope{QoS: relayedQoS(m.QoS), Timestamp: m.Timestamp}
	out.Expr, out.Data = codec.Key(key), m.Data
	how := link.Delivery{QoS: out.QoS, Reliable: reliable, MaxWait: relayPatience}
	for _, to := range r.links {
		l := to.link.Load()
		if l == nil {
			continue // gone since
		}
		if l.Push(out, how) == nil {
			f.s.relayed.Samples.Add(1)
		} else {
			f.s.relayed.Dropped.Add(1)
			how.NoWait = true // one wait for each sample, not one for each link
		}
	}
	*out = codec.Push{}
}

// relayedQoS keeps others out of the lane of declarations.
func relayedQoS(q codec.QoS) codec.QoS {
	if q.Priority() == 0 {
		q |= codec.DefaultQoS
	}
	return q
}

// match finds the receivers of a key that came for the first time, or again
// after subscriptions have changed.
func (f *face) match(key []byte, r *route) *route {
	s := f.s
	if r == nil {
		if len(key) > keyexpr.MaxBytes || keyexpr.Check(string(key)) != nil {
			s.refused.Keys.Add(1)
			return nil
		}
		r = f.newRoute(string(key))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.epoch, r.subscribers, r.links = s.epoch.Load(), r.subscribers[:0], r.links[:0]
	s.aiming++
	for _, e := range s.matches(codec.DeclareSubscriber, r.key) {
		for _, o := range e.own {
			r.subscribers = append(r.subscribers, o.sub)
		}
		for i := range e.holders {
			if to := e.holders[i].face; to.aimed != s.aiming && f.relays(to) {
				to.aimed = s.aiming
				r.links = append(r.links, to.outlet)
			}
		}
	}
	if s.unready > 0 {
		for _, to := range s.north {
			if to.kind == peer && !to.ready && to.aimed != s.aiming && f.relays(to) {
				r.links = append(r.links, to.outlet)
			}
		}
	}
	if cost := int64(routeBytes + len(r.key) + cap(r.links)*outletBytes); r.cost > 0 && cost > r.cost {
		f.grow(r, cost)
	}
	return r
}

// grow counts what a remembered route takes for more receivers than before. When
// all links together remember too much, this link forgets its routes, r too.
func (f *face) grow(r *route, cost int64) {
	s := f.s
	if s.routeBytes.Add(cost-r.cost) <= maxRouteBytes {
		r.cost = cost
		return
	}
	s.routeBytes.Add(r.cost - cost - f.forgetRoutes())
	s.refused.Routes.Add(1)
	r.cost = 0
}

// newRoute makes room for one more route, and remembers none when all links
// together remember too much.
func (f *face) newRoute(key string) *route {
	s := f.s
	cost := int64(routeBytes + len(key))
	if len(f.routes) == maxRoutes || s.routeBytes.Load()+cost > maxRouteBytes {
		s.routeBytes.Add(-f.forgetRoutes())
		s.refused.Routes.Add(1)
		if s.routeBytes.Load()+cost > maxRouteBytes {
			f.spare.key = key
			return &f.spare
		}
	}
	s.routeBytes.Add(cost)
	r := &route{key: key, cost: cost}
	f.routes[key] = r
	return r
}

// forgetRoutes returns how many bytes it freed.
func (f *face) forgetRoutes() (freed int64) {
	for _, r := range f.routes {
		freed += r.cost
	}
	clear(f.routes)
	return freed
}
