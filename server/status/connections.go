package status

import (
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// connectionsMax is the number of connections at a time: a further one replaces the oldest, so
	// that thousands of idle connections take no memory and block no probe.
	connectionsMax = 64
	// logInterval spaces the lines about dropped connections.
	logInterval = time.Minute
)

// newestConnections accepts every connection, and closes the oldest when there are
// more than connectionsMax.
type newestConnections struct {
	net.Listener
	log     *slog.Logger
	dropped atomic.Uint64

	mu     sync.Mutex
	open   []*connection // guarded by mu; oldest first
	logged time.Time     // Owner: the HTTP server
}

// Accept implements net.Listener.
func (l *newestConnections) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: accepted, listener: l}
	l.mu.Lock()
	var oldest *connection
	if len(l.open) >= connectionsMax {
		oldest = l.open[0]
	}
	l.open = append(l.open, c)
	l.mu.Unlock()
	if oldest == nil {
		return c, nil
	}
	_ = oldest.Close() // its current read or write ends with an error
	l.dropped.Add(1)
	if now := time.Now(); now.Sub(l.logged) >= logInterval {
		l.logged = now
		l.log.Warn("too many connections to the health port: the oldest are closed", "max", connectionsMax,
			"closed", l.dropped.Load(), "by", accepted.RemoteAddr().String())
	}
	return c, nil
}

// connection leaves its listener's list when it is closed.
type connection struct {
	net.Conn
	listener *newestConnections
}

func (c *connection) Close() error {
	l := c.listener
	l.mu.Lock()
	if i := slices.Index(l.open, c); i >= 0 {
		l.open = slices.Delete(l.open, i, i+1)
	}
	l.mu.Unlock()
	return c.Conn.Close()
}
