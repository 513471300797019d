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
	open []*connection // connections with a place, the oldest first; guarded by mu
}

// Limit returns l with a bounded number of places for connections (the parameter most). When all places are taken, a
// new connection replaces one for which Keep was not called: the oldest one of the host with the largest number of such
// connections. So a host that opens many connections loses its own. When Keep was called for all connections, the new
// connection is closed. Limit calls closed, in Accept's goroutine, with the address of each connection that it closes.
func Limit(l net.Listener, most int, closed func(from net.Addr)) net.Listener {
	return &limited{Listener: l, most: most, closed: closed}
}

type connectionKey struct{}

// ConnContext is a function for http.Server.ConnContext. It stores the connection in the contexts of its requests,
// where Keep finds it.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, c)
}

// Keep protects the connection of the request with this context: no new connection takes its place.
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
			_ = tcp.SetKeepAlive(true) // detects a client that is gone; function TCP leaves keep-alive off
		}
		one := &connection{Conn: c, limit: l, host: Host(c.RemoteAddr())}
		loser := l.enter(one)
		if loser != nil {
			l.closed(loser.RemoteAddr())
			_ = loser.Close() // the connection is refused
		}
		if loser != one {
			return one, nil
		}
	}
}

// enter gives c a place if it can. It returns the connection that gets or keeps no place, which may be c. It returns
// nil if every connection has a place.
func (l *limited) enter(c *connection) (loser *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) >= l.most {
		idle := map[string]int{} // number of connections of each host that may lose their place
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

// remove frees the place of a connection. The caller holds mu.
func (l *limited) remove(c *connection) {
	l.open = slices.DeleteFunc(l.open, func(o *connection) bool { return o == c })
}

// connection is a connection of a limited listener. Close frees its place.
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
