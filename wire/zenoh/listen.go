package zenoh

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"edgert/wire/zenoh/codec"
	"edgert/wire/zenoh/link"
)

// maxHalfOpen is how many accepted connections may be in their handshake. One
// more pushes the oldest out, so that silent connections cannot keep others
// away.
const maxHalfOpen = 100

func (s *Session) listen(endpoint string) error {
	addr, err := address(endpoint)
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{KeepAlive: -1}).Listen(context.Background(), "tcp", addr)
	if err != nil {
		return fmt.Errorf("wire/zenoh: cannot listen on %s: %w", endpoint, err)
	}
	s.listeners = append(s.listeners, l)
	return nil
}

// Endpoints lists what the session listens on, with the real port numbers.
func (s *Session) Endpoints() []string {
	var all []string
	for _, l := range s.listeners {
		all = append(all, "tcp/"+l.Addr().String())
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

func (s *Session) acceptFrom(l net.Listener) {
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
		s.start(func() { s.welcome(conn, &door) })
	}
}

func (s *Session) welcome(conn net.Conn, door *doorstep) {
	link.Tune(conn)
	var guest string
	l, err := link.Accept(conn, s.linkConfig(codec.Peer, s.zid), func(r link.Remote) (codec.Reason, bool) {
		reason, ok := s.admit(r)
		if ok {
			guest = r.ZID
		}
		return reason, ok
	})
	door.leave(conn)
	var f *face
	if err == nil {
		kind := guestClient
		if l.Remote().Role != codec.Client {
			kind = guestPeer
		}
		f, err = s.join(l, kind)
	}
	if err != nil {
		conn.Close()
		if guest != "" {
			s.dismiss(guest)
		}
		s.cfg.Log(fmt.Sprintf("refused %v: %v", conn.RemoteAddr(), err))
		return
	}
	s.cfg.Log(fmt.Sprintf("accepted %v", conn.RemoteAddr()))
	err = f.run()
	s.dismiss(guest)
	s.cfg.Log(fmt.Sprintf("lost %v: %v", conn.RemoteAddr(), err))
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
