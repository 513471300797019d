package front

import (
	"net"
	"sync"
)

// Limit returns l with at most most connections at a time. A further one is closed at once, after refused was
// called with its address.
func Limit(l net.Listener, most int, refused func(from net.Addr)) net.Listener {
	return &limited{l, make(chan struct{}, most), refused}
}

// Crowded returns a function for Limit that counts and logs a refused connection; clients names the owners.
func (g *Gateway) Crowded(kind Kind, clients string, most int) (refused func(from net.Addr)) {
	return func(from net.Addr) {
		g.Counts.Refused[kind][TooLarge].Add(1)
		g.Log.Warn("too many connections to the front for "+clients+" clients", "max", most, "from", from.String())
	}
}

type limited struct {
	net.Listener
	places  chan struct{} // one element of each connection
	refused func(net.Addr)
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.places <- struct{}{}:
			return &connection{c, sync.OnceFunc(func() { <-l.places })}, nil
		default:
		}
		l.refused(c.RemoteAddr())
		_ = c.Close() // it is refused
	}
}

// connection gives its place back when it is closed.
type connection struct {
	net.Conn
	release func()
}

func (c *connection) Close() error {
	c.release()
	return c.Conn.Close()
}
