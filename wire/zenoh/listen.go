package zenoh

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"edgert/wire/zenoh/codec"
	"edgert/wire/zenoh/endpoint"
	"edgert/wire/zenoh/link"
)

const (
	// maxHalfOpen is how many accepted connections may be in their handshake. One
	// more pushes out the oldest of the address that has the most, so that silent
	// connections, or a flood of them, cannot keep others away.
	maxHalfOpen = 100

	// welcomeGarbage and secureGarbage are about what the handshakes of an accepted
	// connection leave behind, Zenoh's and that of TLS.
	welcomeGarbage = 16 << 10
	secureGarbage  = 64 << 10

	// idleGrace is how long a new link may be without a single message before one
	// that comes when all places are taken may have its place.
	idleGrace = time.Second

	// silentGrace is how long a link that has spoken may be silent before it may
	// have to give way, from when the first was refused.
	silentGrace = 5 * time.Second
)

// Endpoints lists what the session listens on, with the real port numbers.
func (s *Session) Endpoints() []string {
	var all []string
	for _, l := range s.listeners {
		all = append(all, l.Endpoint())
	}
	return all
}

// doorstep is the connections whose handshake is not done, oldest first.
type doorstep struct {
	mu    sync.Mutex
	conns []net.Conn // guarded by mu
}

func (d *doorstep) enter(conn net.Conn) (evicted bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.conns) == maxHalfOpen {
		i := d.crowding()
		d.conns[i].Close()
		d.conns = slices.Delete(d.conns, i, i+1)
		evicted = true
	}
	d.conns = append(d.conns, conn)
	return evicted
}

// crowding is the oldest connection of the address that has the most. Called
// with mu held.
func (d *doorstep) crowding() (oldest int) {
	count, most := map[string]int{}, 0
	for _, c := range d.conns {
		host := link.Host(c.RemoteAddr())
		count[host]++
		most = max(most, count[host])
	}
	for i, c := range d.conns {
		if count[link.Host(c.RemoteAddr())] == most {
			return i
		}
	}
	return 0
}

func (d *doorstep) leave(conn net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, c := range d.conns {
		if c == conn {
			d.conns = append(d.conns[:i], d.conns[i+1:]...)
			return
		}
	}
}

func (d *doorstep) clear() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.conns {
		c.Close()
	}
}

func (s *Session) acceptFrom(l *endpoint.Listener) {
	var door doorstep
	defer door.clear()
	for s.ctx.Err() == nil {
		conn, err := l.Accept()
		if err != nil {
			if s.ctx.Err() == nil {
				// Out of file descriptors, as a rule: it passes.
				s.cfg.Log(fmt.Sprintf("accept: %v", err))
				time.Sleep(100 * time.Millisecond)
			}
			continue
		}
		if door.enter(conn) {
			s.refused.HalfOpen.Add(1)
		}
		s.start(func() { s.welcome(conn, l.Secure, &door) })
	}
}

// welcome carries an accepted connection from its first byte to its last.
func (s *Session) welcome(conn net.Conn, secure func(net.Conn) (net.Conn, error), door *doorstep) {
	from := conn.RemoteAddr().String()
	if _, ok := conn.(*net.UnixConn); ok {
		from = endpoint.Unix + "/" + conn.LocalAddr().String() // the other end has no name
	}
	link.Tune(conn)
	f, guest, err := s.receive(conn, secure)
	door.leave(conn)
	if err != nil {
		conn.Close()
		s.cfg.Log(fmt.Sprintf("refused %s: %v", from, err))
		s.cfg.Links(LinkEvent{Endpoint: from, Err: err})
	} else {
		s.cfg.Log("accepted " + from)
		s.cfg.Links(LinkEvent{Endpoint: from, Up: true})
		err = f.run()
		s.cfg.Log(fmt.Sprintf("lost %s: %v", from, err))
		s.cfg.Links(LinkEvent{Endpoint: from, Err: err})
	}
	if guest != 0 {
		s.dismiss(guest)
	}
}

// receive does the handshakes. guest is the visit that was admitted, also when
// what came after failed; 0: none.
func (s *Session) receive(conn net.Conn, secure func(net.Conn) (net.Conn, error)) (f *face, guest visit, err error) {
	bare, host, litter := conn, link.Host(conn.RemoteAddr()), welcomeGarbage
	conn, err = secure(conn)
	if conn != bare {
		litter += secureGarbage
	}
	defer s.budget.AddGarbage(litter)
	if err != nil {
		return nil, 0, err
	}
	l, err := link.Accept(conn, s.linkConfig(codec.Peer, s.zid), func(r link.Remote) (codec.Reason, bool) {
		reason, v := s.admit(r, host)
		guest = v
		return reason, v != 0
	})
	if err != nil {
		return nil, guest, err
	}
	k := guestClient
	if l.Remote().Role != codec.Client {
		k = peer
	}
	if f, err = s.join(l, k); err != nil {
		l.Discard()
	}
	return f, guest, err
}

// visit is one stay of a node. It may come again before its last one is over.
type visit uint64

// admit decides whether a node may join, and remembers its visit if so; 0: it may
// not.
func (s *Session) admit(r link.Remote, host string) (codec.Reason, visit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.ZID == string(s.zid):
		return codec.CloseConnectionToSelf, 0
	case s.guests[r.ZID] != 0:
		return codec.CloseMaxLinks, 0
	case len(s.guests) >= s.cfg.MaxSessions && !s.makePlace(host):
		s.refused.Sessions.Add(1)
		return codec.CloseMaxSessions, 0
	}
	s.visits++
	s.guests[r.ZID] = s.visits
	return 0, s.visits
}

// makePlace ends a link for a node of a host, if there is one that must give way:
// see expendable. Called with mu held.
func (s *Session) makePlace(host string) bool {
	f := s.expendable(host)
	if f == nil {
		return false
	}
	delete(s.guests, f.link.Remote().ZID)
	f.link.Close(codec.CloseGeneric)
	s.refused.Idle.Add(1)
	return true
}

// expendable is the link that gives way to one of a host when all places are
// taken: one that never said a word; of the host with the most links, when it has
// half of all places, one that has said nothing since somebody was refused, some
// time ago; and of a host that has nearly all places the newest, for a host that
// has few. Called with mu held.
func (s *Session) expendable(host string) *face {
	now, links := time.Now(), map[string]int{}
	var guests []*face
	for _, f := range s.faces { // in the order of their coming
		if f.kind == upstream || s.guests[f.link.Remote().ZID] == 0 {
			continue
		}
		if !f.spoke.Load() && now.Sub(f.since) > idleGrace {
			return f
		}
		guests = append(guests, f)
		links[f.host]++
	}
	var silent, newest *face
	for _, f := range guests {
		n := links[f.host]
		if 2*n < s.cfg.MaxSessions {
			continue
		}
		switch {
		case f.active.Swap(false) || f.silent.IsZero():
			f.silent = now
		case silent == nil && now.Sub(f.silent) > silentGrace:
			silent = f
		}
		if n > s.cfg.MaxSessions-s.cfg.MaxSessions/8 && links[host] < s.cfg.MaxSessions/8 {
			newest = f
		}
	}
	return cmp.Or(silent, newest)
}

// dismiss ends a visit; the node's next one may have begun.
func (s *Session) dismiss(v visit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.guests, func(_ string, of visit) bool { return of == v })
}
