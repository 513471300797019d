package router

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/wire/listen"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint"
	"github.com/edge-rt/edge-rt/wire/zenoh/link"
)

const (
	// maxHalfOpen is the largest number of accepted connections in their handshake. A further connection displaces the
	// oldest connection of the address with the most connections. So neither silent connections nor a flood can keep
	// others out.
	maxHalfOpen = 100

	// plainGarbage estimates the garbage of Zenoh's handshake on an accepted connection. secureGarbage is that of the
	// TLS handshake.
	plainGarbage  = 16 << 10
	secureGarbage = 64 << 10

	// idleGrace is the time that a new link has for its first message. When all places are taken, a new node may take
	// the place of a link that sent no message in this time.
	idleGrace = time.Second

	// silentGrace is the time for which a link that has sent messages may be silent before it may be displaced. It is
	// counted from the first time that a new node finds no free place.
	silentGrace = 5 * time.Second
)

// halfOpen holds the connections in their handshake, oldest first.
type halfOpen struct {
	mu    sync.Mutex
	conns []net.Conn // guarded by mu
}

func (h *halfOpen) enter(conn net.Conn) (evicted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.conns) == maxHalfOpen {
		i := h.busiest()
		h.conns[i].Close()
		h.conns = slices.Delete(h.conns, i, i+1)
		evicted = true
	}
	h.conns = append(h.conns, conn)
	return evicted
}

// busiest returns the index of the oldest connection of the address with the most connections. Called with mu held.
func (h *halfOpen) busiest() (oldest int) {
	count, most := map[string]int{}, 0
	for _, c := range h.conns {
		host := listen.Host(c.RemoteAddr())
		count[host]++
		most = max(most, count[host])
	}
	return slices.IndexFunc(h.conns, func(c net.Conn) bool { return count[listen.Host(c.RemoteAddr())] == most })
}

func (h *halfOpen) leave(conn net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conns = slices.DeleteFunc(h.conns, func(c net.Conn) bool { return c == conn })
}

func (h *halfOpen) closeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.conns {
		c.Close()
	}
}

// accept serves a listener until Stop is called.
func (r *Router) accept(l *endpoint.Listener) {
	var half halfOpen
	defer half.closeAll()
	paced := listen.Pace(l, r.cfg.MaxSessions+maxHalfOpen, func(why error) {
		r.counters.Handshakes.Add(1)
		if why != nil {
			r.cfg.Log(fmt.Sprintf("refused %v", why))
		}
	})
	for r.ctx.Err() == nil {
		conn, err := paced.Accept()
		if err != nil {
			if r.ctx.Err() == nil {
				// The usual cause is a lack of free file descriptors, which is temporary.
				r.cfg.Log(fmt.Sprintf("accept: %v", err))
				time.Sleep(100 * time.Millisecond)
			}
			continue
		}
		if half.enter(conn) {
			r.counters.HalfOpen.Add(1)
		}
		r.tasks.Go(func() { r.carry(conn, l.Secure, &half) })
	}
}

// carry serves an accepted connection from its first byte to its last.
func (r *Router) carry(conn net.Conn, secure func(net.Conn) (net.Conn, error), half *halfOpen) {
	from := conn.RemoteAddr().String()
	if _, ok := conn.(*net.UnixConn); ok {
		from = endpoint.Unix + "/" + conn.LocalAddr().String() // the other end of a unix socket has no address
	}
	link.Tune(conn)
	f, v, err := r.handshake(conn, secure)
	half.leave(conn)
	if err != nil {
		conn.Close()
		r.cfg.Log(fmt.Sprintf("refused %s: %v", from, err))
	} else {
		r.cfg.Log("accepted " + from)
		r.cfg.Event(from, nil)
		err = f.run()
		r.cfg.Log(fmt.Sprintf("lost %s: %v", from, err))
	}
	r.cfg.Event(from, err)
	if v != 0 {
		r.mu.Lock()
		r.guests.leave(v)
		r.mu.Unlock()
	}
}

// handshake turns a connection into a link. v is the visit of an admitted node, even if a later step failed, and 0 if
// the node was not admitted.
func (r *Router) handshake(conn net.Conn, secure func(net.Conn) (net.Conn, error)) (f *face, v visit, err error) {
	plain := conn
	host := listen.Host(conn.RemoteAddr())
	garbage := plainGarbage
	conn, err = secure(conn)
	if conn != plain {
		garbage += secureGarbage
	}
	defer r.cfg.Link.Budget.AddGarbage(garbage)
	if err != nil {
		return nil, 0, err
	}
	l, err := link.Accept(conn, r.cfg.Link, func(remote link.Remote) (reason codec.Reason, ok bool) {
		reason, v = r.admit(remote, host)
		return reason, v != 0
	})
	if err != nil {
		return nil, v, err
	}
	if f, err = r.join(l, l.Remote().Role == codec.Client, r.identify(conn, l)); err != nil {
		l.Discard()
	}
	return f, v, err
}

// visit identifies one link of a node. A node may connect again before its previous link has been removed.
type visit uint64

// guests are the nodes of accepted links. Guarded by Router.mu.
type guests struct {
	byZID map[string]visit
	last  visit
}

func (g *guests) leave(v visit) {
	maps.DeleteFunc(g.byZID, func(_ string, of visit) bool { return of == v })
}

// admit decides whether a node may join, and returns its visit if so, otherwise 0.
func (r *Router) admit(remote link.Remote, host string) (codec.Reason, visit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := &r.guests
	switch {
	case remote.ZID == string(r.cfg.Link.ZID):
		return codec.CloseConnectionToSelf, 0
	case g.byZID[remote.ZID] != 0:
		return codec.CloseMaxLinks, 0
	case len(g.byZID) >= r.cfg.MaxSessions && !r.evict(host):
		r.counters.Sessions.Add(1)
		return codec.CloseMaxSessions, 0
	}
	g.last++
	g.byZID[remote.ZID] = g.last
	return 0, g.last
}

// evict ends a link to make place for a node of a host. It returns false when expendable finds no
// link. Called with mu held.
func (r *Router) evict(host string) bool {
	f := r.expendable(host)
	if f == nil {
		return false
	}
	delete(r.guests.byZID, f.link.Remote().ZID)
	f.link.Close(codec.CloseGeneric)
	r.counters.Idle.Add(1)
	return true
}

// expendable returns the link to end for a node of host when all places are taken, or nil. It is the first of these: a
// link that sent no message within idleGrace; a link that has been silent for silentGrace, of a host with at least half
// of all places; if host has few links, the newest link of a host with nearly all places. Called with mu held.
func (r *Router) expendable(host string) *face {
	now, links := time.Now(), map[string]int{}
	var accepted []*face
	for _, f := range r.faces { // faces are in the order of their arrival
		if r.guests.byZID[f.link.Remote().ZID] == 0 {
			continue
		}
		if !f.spoke.Load() && now.Sub(f.since) > idleGrace {
			return f
		}
		accepted = append(accepted, f)
		links[f.host]++
	}
	var silent, newest *face
	places := r.cfg.MaxSessions
	for _, f := range accepted {
		n := links[f.host]
		if 2*n < places {
			continue
		}
		switch {
		case f.active.Swap(false) || f.silent.IsZero():
			f.silent = now
		case silent == nil && now.Sub(f.silent) > silentGrace:
			silent = f
		}
		if n > places-places/8 && links[host] < places/8 {
			newest = f
		}
	}
	return cmp.Or(silent, newest)
}
