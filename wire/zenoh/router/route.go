package router

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/wire/zenoh/access"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
	"github.com/edge-rt/edge-rt/wire/zenoh/keyexpr"
	"github.com/edge-rt/edge-rt/wire/zenoh/link"
)

const (
	// maxRouteBytes bounds the cached routes of all links together.
	maxRouteBytes = 4 << 20
	routeBytes    = 256 // memory of a route in addition to its key
	outletBytes   = 32  // memory of each link in a route

	// relayPatience is the longest time for which a relayed blocking message waits for room in the
	// queue of a link that sends nothing. The sender's next messages wait meanwhile. After this
	// time no further message waits for that link until it has sent one.
	relayPatience = 500 * time.Millisecond
)

// route caches the receivers of one incoming key.
type route struct {
	key     string
	epoch   uint64 // epoch of the subscriptions when the route was matched
	session bool   // the session has a subscriber
	denied  bool   // the link may not publish on this key
	links   []*outlet
	cost    int64 // bytes of this route in Router.routeBytes; 0: the route is not cached
}

// outlet is a route's reference to a link. Routes of other links may keep it after the link's end,
// until the next sample on their key. Therefore the end of the link clears the pointer, so that the
// link's memory can be freed.
type outlet struct{ link atomic.Pointer[link.Link] }

// push delivers one sample to the session and to the links that have a subscriber for its key.
//
//rt:noalloc
func (f *face) push(m *codec.Push, reliable bool) {
	key, ok := f.numbers.Expand(m.Expr)
	if !ok {
		return
	}
	to := f.routes[string(key)]
	if to == nil || to.epoch != f.r.epoch.Load() {
		if to = f.match(key, to); to == nil {
			return
		}
	}
	if to.denied {
		f.deny(access.Put)
		return
	}
	if to.session {
		f.r.port.client.Push(key, m)
	}
	if len(to.links) > 0 {
		f.relay(to, m, key, reliable)
	}
}

// relay sends a sample to the links of a route, unchanged except that the key is written out. A congested link drops
// the sample or makes it wait, as the sample's own QoS requires.
//
//rt:noalloc
func (f *face) relay(route *route, m *codec.Push, key []byte, reliable bool) {
	out := &f.relayed
	out.Envelope = codec.Envelope{QoS: m.QoS.Data(), Timestamp: m.Timestamp}
	out.Expr, out.Data = codec.Key(key), m.Data
	how := link.Delivery{QoS: out.QoS, Reliable: reliable, MaxWait: relayPatience}
	for _, to := range route.links {
		l := to.link.Load()
		if l == nil {
			continue // that link has ended meanwhile
		}
		if err := l.Push(out, how); err == nil {
			f.r.counters.RelayedSamples.Add(1)
		} else {
			f.r.counters.RelayDropped.Add(1)
			how.NoWait = how.NoWait || errors.Is(err, link.ErrCongested) // a sample waits for one congested link only
		}
	}
	*out = codec.Push{}
}

// match finds the receivers of a key whose route is missing or out of date. It returns nil for an invalid key.
func (f *face) match(key []byte, known *route) *route {
	r := f.r
	if known == nil {
		if len(key) > keyexpr.MaxBytes || keyexpr.Check(string(key)) != nil {
			r.counters.Keys.Add(1)
			return nil
		}
		known = f.newRoute(string(key))
		known.denied = !f.who.rights.Allows(access.Put, known.key)
	}
	if known.denied {
		known.epoch = r.epoch.Load()
		known.session = false
		known.links = known.links[:0]
		f.report(access.Put, known.key)
		return known
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	known.epoch = r.epoch.Load()
	known.session = false
	known.links = known.links[:0]
	f.reach(codec.DeclareSubscriber, known.key, anyHolder, func(to *face) {
		if to == r.port.face {
			known.session = true
		} else {
			known.links = append(known.links, to.outlet)
		}
	})
	if cost := int64(routeBytes + len(known.key) + cap(known.links)*outletBytes); known.cost > 0 && cost > known.cost {
		f.grow(known, cost)
	}
	return known
}

// reach calls add once for each link to which the router relays messages of f for the declarations of a kind on key. A
// holder counts if accepts returns true. A peer may still announce a declaration until it is ready. Called with r.mu
// held.
func (f *face) reach(kind codec.DeclareKind, key string, accepts func(*entry, *holder) bool, add func(*face)) {
	r := f.r
	r.search++
	once := func(to *face) {
		if to.found != r.search && f.relays(to) {
			to.found = r.search
			add(to)
		}
	}
	for _, e := range r.index.Matches(kind, key) {
		for i := range e.holders {
			if h := &e.holders[i]; accepts(e, h) {
				once(h.face)
			}
		}
	}
	for _, to := range r.peers {
		if !to.ready && to.who.rights.Allows(declares[kind], key) {
			once(to)
		}
	}
}

func anyHolder(*entry, *holder) bool { return true }

// grow counts the memory of a cached route that gets more receivers. If the routes of all links together take too much
// memory, this link drops all its routes, including this one.
func (f *face) grow(route *route, cost int64) {
	r := f.r
	if r.routeBytes.Add(cost-route.cost) <= maxRouteBytes {
		route.cost = cost
		return
	}
	r.routeBytes.Add(route.cost - cost - f.forgetRoutes())
	r.counters.Routes.Add(1)
	route.cost = 0
}

// newRoute makes a route and caches it, unless the routes of all links together take too much memory.
func (f *face) newRoute(key string) *route {
	r := f.r
	cost := int64(routeBytes + len(key))
	if len(f.routes) == maxRoutes || r.routeBytes.Load()+cost > maxRouteBytes {
		r.routeBytes.Add(-f.forgetRoutes())
		r.counters.Routes.Add(1)
		if r.routeBytes.Load()+cost > maxRouteBytes {
			f.spare.key = key
			return &f.spare
		}
	}
	r.routeBytes.Add(cost)
	known := &route{key: key, cost: cost}
	f.routes[key] = known
	return known
}

// forgetRoutes drops the link's routes and returns how many bytes they took.
func (f *face) forgetRoutes() (freed int64) {
	for _, known := range f.routes {
		freed += known.cost
	}
	clear(f.routes)
	return freed
}
