package page

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/edge-rt/edge-rt/internal/webpage"
	"github.com/edge-rt/edge-rt/rt"
)

// limitedListener accepts few connections at the same time, and lets the page read few new connections per second; the
// other connections wait. If an address has its full share of connections, further connections from it are closed at
// once. So no client can lock an operator out: a client that opens and closes many connections waits in its own slots,
// and the other clients do not wait.
type limitedListener struct {
	net.Listener
	slots    chan struct{}
	closed   chan struct{}
	once     sync.Once
	rate     webpage.RateLimit // rate at which requests of new connections are read
	drops    webpage.RateLimit // rate at which connections above the share are closed
	accepted atomic.Uint64
	dropped  atomic.Uint64

	mu   sync.Mutex
	open map[netip.Addr]int // number of open connections by networkOf their address; guarded by mu
}

func limitListener(l net.Listener, clock rt.Clock) *limitedListener {
	return &limitedListener{
		Listener: l,
		slots:    make(chan struct{}, maxConnections),
		closed:   make(chan struct{}),
		open:     map[netip.Addr]int{},
		rate:     webpage.RateLimit{Clock: clock, Interval: connectionInterval, Burst: burst},
		drops:    webpage.RateLimit{Clock: clock, Interval: dropInterval, Burst: dropBurst},
	}
}

// Accept returns the next connection, as soon as there is a slot for it.
func (g *limitedListener) Accept() (net.Conn, error) {
	select {
	case g.slots <- struct{}{}:
	case <-g.closed:
		return nil, net.ErrClosed
	}
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			<-g.slots
			return nil, err
		}
		from := netip.Addr{}
		if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
			from = networkOf(a.AddrPort().Addr())
		}
		if !g.admit(from) {
			c.Close()
			g.dropped.Add(1)
			g.drops.Wait()
			continue
		}
		g.accepted.Add(1)
		return &limitedConn{Conn: c, listener: g, from: from}, nil
	}
}

func (g *limitedListener) admit(from netip.Addr) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open[from] >= maxPerAddress {
		return false
	}
	g.open[from]++
	return true
}

func (g *limitedListener) release(from netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open[from]--; g.open[from] <= 0 {
		delete(g.open, from)
	}
}

// Close ends Accept.
func (g *limitedListener) Close() error {
	g.once.Do(func() { close(g.closed) })
	return g.Listener.Close()
}

// limitedConn is a connection that frees its slot when it is closed.
type limitedConn struct {
	net.Conn
	listener *limitedListener
	from     netip.Addr
	turn     sync.Once // for the first Read, which waits for the rate
	closed   atomic.Bool
}

func (s *limitedConn) Read(p []byte) (int, error) {
	s.turn.Do(func() { s.listener.rate.Wait() }) // at most maxConnections connections wait here
	return s.Conn.Read(p)
}

func (s *limitedConn) Close() error {
	if !s.closed.Swap(true) {
		s.listener.release(s.from)
		<-s.listener.slots
	}
	return s.Conn.Close()
}
