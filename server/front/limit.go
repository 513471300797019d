package front

import (
	"net"
	"slices"
	"sync"
)

// Limited is a listener with a bounded number of connections at a time. Where all places are taken, a new connection
// gets that of one without a session: the oldest one of the host that has most of these, so that a host that opens
// many connections takes its own places. Without such a one the new connection is closed.
//
// Owner: Accept: one goroutine; the rest: any goroutine.
type Limited struct {
	net.Listener
	most   int
	closed func(from net.Addr)

	mu   sync.Mutex
	open []*connection // in the order of their arrival, guarded by mu
}

// Limit returns l with at most most connections. It calls closed with the address of each connection that it closes.
func Limit(l net.Listener, most int, closed func(from net.Addr)) *Limited {
	return &Limited{Listener: l, most: most, closed: closed}
}

// Crowded returns a function for Limit that counts and logs a closed connection; clients names the owners.
func (g *Gateway) Crowded(kind Kind, clients string, most int) (closed func(from net.Addr)) {
	return func(from net.Addr) {
		g.Counts.Refused[kind][TooLarge].Add(1)
		g.Log.Warn("too many connections to the front for "+clients+" clients", "max", most, "from", from.String())
	}
}

// Accept implements net.Listener.
func (l *Limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetKeepAlive(true) // finds a client that is gone; listen.TCP leaves it off
		}
		one := &connection{Conn: c, limit: l}
		one.host, _, _ = net.SplitHostPort(c.RemoteAddr().String())
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

// enter gives c a place. It returns the connection that has none now, which may be c; nil: every connection has one.
func (l *Limited) enter(c *connection) (loser *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) >= l.most {
		idle := map[string]int{} // connections without a session of each host
		for _, o := range l.open {
			if !o.session {
				idle[o.host]++
			}
		}
		loser = c
		for _, o := range l.open {
			if !o.session && (loser == c || idle[o.host] > idle[loser.host]) {
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
func (l *Limited) remove(c *connection) {
	l.open = slices.DeleteFunc(l.open, func(o *connection) bool { return o == c })
}

// Keep marks the connection from an address as that of a session.
func (l *Limited) Keep(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.open {
		c.session = c.session || c.RemoteAddr().String() == address
	}
}

// connection gives its place back when it is closed.
type connection struct {
	net.Conn
	limit   *Limited
	host    string
	session bool // guarded by limit.mu
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.limit.mu.Lock()
	defer c.limit.mu.Unlock()
	c.limit.remove(c)
	return c.Conn.Close()
}
