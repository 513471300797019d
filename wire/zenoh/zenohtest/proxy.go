package zenohtest

import (
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Proxy forwards the connections to its Endpoint to another endpoint, and cuts, delays, slows or
// stalls them on request.
type Proxy struct {
	target   string
	listener net.Listener
	tasks    sync.WaitGroup

	delay atomic.Int64 // nanoseconds: longest delay; every piece waits for a random part of it
	rate  atomic.Int64 // bytes per second and direction; 0: no limit
	stall atomic.Bool  // while set, no bytes pass

	conns conns

	Cuts atomic.Uint64 // connections ended by Cut
}

const (
	pieceBytes  = 4 << 10 // most bytes of a piece, which is delayed or slowed down as a whole
	pieces      = 16      // pieces under way at most, per direction
	stallLook   = 5 * time.Millisecond
	dialTimeout = 3 * time.Second
)

// NewProxy listens on a free port and forwards the connections to target, tcp/host:port.
func NewProxy(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: strings.TrimPrefix(target, "tcp/"), listener: l}
	p.tasks.Go(p.accept)
	return p, nil
}

// Endpoint returns the endpoint to dial.
func (p *Proxy) Endpoint() string { return "tcp/" + p.listener.Addr().String() }

// Delay makes every piece wait for a random time of at most d.
func (p *Proxy) Delay(d time.Duration) { p.delay.Store(int64(d)) }

// Slow limits the bytes per second in each direction; 0 is no limit.
func (p *Proxy) Slow(bytesPerSecond int) { p.rate.Store(int64(bytesPerSecond)) }

// Stall stops all bytes, or lets them pass again.
func (p *Proxy) Stall(on bool) { p.stall.Store(on) }

// Refuse makes the proxy end new connections at once, or accept them again.
func (p *Proxy) Refuse(on bool) { p.conns.refuse(on) }

// Cut ends all connections at once, without a Close to either side.
func (p *Proxy) Cut() {
	p.conns.each(func(c net.Conn) {
		if tcp, ok := c.(*net.TCPConn); ok {
			tcp.SetLinger(0)
		}
		c.Close()
		p.Cuts.Add(1)
	})
}

// Close ends the listener and all connections.
func (p *Proxy) Close() {
	p.conns.refuse(true)
	p.stall.Store(false)
	p.listener.Close()
	p.Cut()
	p.tasks.Wait()
}

func (p *Proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.tasks.Go(func() { p.carry(near) })
	}
}

// conns holds open connections.
type conns struct {
	mu      sync.Mutex
	open    map[net.Conn]bool // guarded by mu
	refused bool              // guarded by mu: new connections are closed
}

// keep records a connection. When the proxy refuses connections, it closes the connection and returns false.
func (s *conns) keep(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused {
		c.Close()
		return false
	}
	if s.open == nil {
		s.open = map[net.Conn]bool{}
	}
	s.open[c] = true
	return true
}

// forget closes a connection.
func (s *conns) forget(c net.Conn) {
	s.mu.Lock()
	delete(s.open, c)
	s.mu.Unlock()
	c.Close()
}

func (s *conns) refuse(on bool) {
	s.mu.Lock()
	s.refused = on
	s.mu.Unlock()
}

func (s *conns) each(do func(net.Conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		do(c)
	}
}

// carry forwards bytes between near and the target until one of the two connections ends.
func (p *Proxy) carry(near net.Conn) {
	if !p.conns.keep(near) {
		return
	}
	defer p.conns.forget(near)
	far, err := net.DialTimeout("tcp", p.target, dialTimeout)
	if err != nil || !p.conns.keep(far) {
		return
	}
	defer p.conns.forget(far)
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			p.pump(way[0], way[1])
			way[0].Close()
			way[1].Close()
		})
	}
	both.Wait()
}

// piece is a run of bytes under way.
type piece struct {
	bytes []byte
	due   time.Time
}

// pump forwards bytes in order, each piece when it is due.
func (p *Proxy) pump(from, to net.Conn) {
	way := make(chan piece, pieces)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for x := range way {
			time.Sleep(time.Until(x.due))
			for p.stall.Load() {
				time.Sleep(stallLook)
			}
			if _, err := to.Write(x.bytes); err != nil {
				from.Close()
				for range way {
				}
				return
			}
		}
	}()
	for {
		buf := make([]byte, pieceBytes)
		n, err := from.Read(buf)
		if n > 0 {
			if rate := p.rate.Load(); rate > 0 {
				time.Sleep(time.Duration(n) * time.Second / time.Duration(rate))
			}
			var wait time.Duration
			if longest := p.delay.Load(); longest > 0 {
				wait = time.Duration(rand.Int64N(longest))
			}
			way <- piece{buf[:n], time.Now().Add(wait)}
		}
		if err != nil {
			close(way)
			<-ended
			for p.stall.Load() { // the end of a connection does not pass either
				time.Sleep(stallLook)
			}
			return
		}
	}
}
