package page

import (
	"net"
	"sync"
	"sync/atomic"

	"edgert/internal/webpage"
	"edgert/rt"
)

// limitedListener accepts few connections at once, and few a second; others wait.
type limitedListener struct {
	net.Listener
	slots    chan struct{}
	closed   chan struct{}
	once     sync.Once
	rate     webpage.RateLimit
	accepted atomic.Uint64
}

func limitListener(l net.Listener, clock rt.Clock) *limitedListener {
	return &limitedListener{Listener: l, slots: make(chan struct{}, maxConnections), closed: make(chan struct{}), rate: webpage.RateLimit{Clock: clock, Interval: connectionInterval, Burst: burst}}
}

// Accept returns the next connection when there is a slot for it.
func (g *limitedListener) Accept() (net.Conn, error) {
	select {
	case g.slots <- struct{}{}:
	case <-g.closed:
		return nil, net.ErrClosed
	}
	g.rate.Wait()
	c, err := g.Listener.Accept()
	if err != nil {
		<-g.slots
		return nil, err
	}
	g.accepted.Add(1)
	return &limitedConn{Conn: c, listener: g}, nil
}

// Close ends Accept.
func (g *limitedListener) Close() error {
	g.once.Do(func() { close(g.closed) })
	return g.Listener.Close()
}

// limitedConn is a connection whose Close frees its slot.
type limitedConn struct {
	net.Conn
	listener *limitedListener
	closed   atomic.Bool
}

func (s *limitedConn) Close() error {
	if !s.closed.Swap(true) {
		<-s.listener.slots
	}
	return s.Conn.Close()
}
