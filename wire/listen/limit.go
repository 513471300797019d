package listen

import (
	"context"
	"net"
	"slices"
	"sync"
)

// limited is a listener with a bounded number of connections at a time.
//
// Owner: one goroutine calls Accept; any goroutine may call the other methods.
type limited struct {
	net.Listener
	most   int
	closed func(from net.Addr)

	mu   sync.Mutex
	open []*connection // in the order of their arrival, guarded by mu
}

// Limit returns l with at most most connections at a time. Where all places are taken, a new connection gets the place
// of a connection for which Keep was not called: the oldest of the host that has the most such connections, so that a
// host that opens many takes its own places. Without such a connection the new one is closed. Limit calls closed, in
// Accept's goroutine, with the address of each connection that it closes.
func Limit(l net.Listener, most int, closed func(from net.Addr)) net.Listener {
	return &limited{Listener: l, most: most, closed: closed}
}

type connectionKey struct{}

// ConnContext is the http.Server.ConnContext with which Keep finds the connection of a request.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, c)
}

// Keep lets the connection of a request keep its place.
func Keep(ctx context.Context) {
	if c, ok := ctx.Value(connectionKey{}).(*connection); ok {
		c.limit.mu.Lock()
		defer c.limit.mu.Unlock()
		c.kept = true
	}
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetKeepAlive(true) // finds a client that is gone; TCP leaves it off
		}
		one := &connection{Conn: c, limit: l, host: Host(c.RemoteAddr())}
		loser := l.enter(one)
		if loser != nil {
			l.closed(loser.RemoteAddr())
			_ = loser.Close() // it is refused
		}
		if loser != one {
			return one, nil
		}
	}
}

// enter gives c a place. It returns the connection that has no place now, which may be c; nil: every connection has
// a place.
func (l *limited) enter(c *connection) (loser *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) >= l.most {
		idle := map[string]int{} // connections of each host that may lose their place
		for _, o := range l.open {
			if !o.kept {
				idle[o.host]++
			}
		}
		loser = c
		for _, o := range l.open {
			if !o.kept && (loser == c || idle[o.host] > idle[loser.host]) {
				loser = o
			}
		}
		if loser == c {
			return c
		}
		l.remove(loser)
	}
	l.open = append(l.open, c)
	return loser
}

// remove gives the place of a connection back. The caller holds mu.
func (l *limited) remove(c *connection) {
	l.open = slices.DeleteFunc(l.open, func(o *connection) bool { return o == c })
}

// connection gives its place back when it is closed.
type connection struct {
	net.Conn
	limit *limited
	host  string
	kept  bool // guarded by limit.mu
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.limit.mu.Lock()
	defer c.limit.mu.Unlock()
	c.limit.remove(c)
	return c.Conn.Close()
}
