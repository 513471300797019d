package zenoh

import (
	"fmt"
	"net"
	"sync"
	"time"

	"edgert/wire/zenoh/codec"
	"edgert/wire/zenoh/endpoint"
	"edgert/wire/zenoh/link"
)

// maxHalfOpen is how many accepted connections may be in their handshake. One
// more pushes the oldest out, so that silent connections cannot keep others
// away.
const maxHalfOpen = 100

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
		d.conns[0].Close()
		d.conns = append(d.conns[:0], d.conns[1:]...)
		evicted = true
	}
	d.conns = append(d.conns, conn)
	return evicted
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
	if guest != "" {
		s.dismiss(guest)
	}
}

// receive does the handshakes. guest is the node that was admitted, also when
// what came after failed.
func (s *Session) receive(conn net.Conn, secure func(net.Conn) (net.Conn, error)) (f *face, guest string, err error) {
	if conn, err = secure(conn); err != nil {
		return nil, "", err
	}
	l, err := link.Accept(conn, s.linkConfig(codec.Peer, s.zid), func(r link.Remote) (codec.Reason, bool) {
		reason, ok := s.admit(r)
		if ok {
			guest = r.ZID
		}
		return reason, ok
	})
	if err != nil {
		return nil, guest, err
	}
	k := guestClient
	if l.Remote().Role != codec.Client {
		k = peer
	}
	f, err = s.join(l, k)
	return f, guest, err
}

// admit decides whether a node may join, and remembers it if so.
func (s *Session) admit(r link.Remote) (codec.Reason, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.ZID == string(s.zid):
		return codec.CloseConnectionToSelf, false
	case s.guests[r.ZID]:
		return codec.CloseMaxLinks, false
	case len(s.guests) >= s.cfg.MaxSessions:
		s.refused.Sessions.Add(1)
		return codec.CloseMaxSessions, false
	}
	s.guests[r.ZID] = true
	return 0, true
}

func (s *Session) dismiss(zid string) {
	s.mu.Lock()
	delete(s.guests, zid)
	s.mu.Unlock()
}
