package netfault

import (
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Cable is the state of a Proxy, which acts as a cable. Both directions may be cut at once.
type Cable uint32

const (
	CutUp     Cable = 1 << iota // the dialler's bytes wait until the cable is whole again
	CutDown                     // the target's bytes do not pass
	Unplugged                   // all connections end, and the system refuses new ones
	Whole     Cable = 0
)

// Proxy is a cable: it forwards the connections to its Endpoint to another endpoint, and cuts, delays or slows them
// on request.
type Proxy struct {
	target   string
	at       string // address of listener
	listener net.Listener
	tasks    sync.WaitGroup

	delay atomic.Int64 // nanoseconds: longest delay; every piece waits for a random part of it
	rate  atomic.Int64 // bytes per second and direction; 0: no limit
	cable atomic.Uint32

	conns Conns

	Cuts atomic.Uint64 // connections ended by Cut
}

const (
	pieceBytes  = 4 << 10 // largest size of a piece in bytes; a piece is delayed or slowed down as a whole
	pieces      = 16      // largest number of pieces under way in each direction
	cutLook     = 5 * time.Millisecond
	dialTimeout = 3 * time.Second
)

// NewProxy listens on a free port and forwards the connections to target, tcp/host:port.
func NewProxy(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: strings.TrimPrefix(target, "tcp/"), at: l.Addr().String()}
	p.serve(l)
	return p, nil
}

// Endpoint returns the endpoint to dial.
func (p *Proxy) Endpoint() string { return "tcp/" + p.at }

// Delay makes every piece wait for a random time of at most d.
func (p *Proxy) Delay(d time.Duration) { p.delay.Store(int64(d)) }

// Slow limits the bytes per second in each direction; 0 is no limit.
func (p *Proxy) Slow(bytesPerSecond int) { p.rate.Store(int64(bytesPerSecond)) }

// Set changes the state of the cable. One goroutine calls Set and Close.
func (p *Proxy) Set(c Cable) {
	was := p.cable.Swap(uint32(c))
	p.Refuse(c == Unplugged)
	if c == Unplugged {
		p.listener.Close()
		p.Cut()
	} else if Cable(was) == Unplugged {
		for range 100 { // another program's connection may have the port for a moment; without it all stay refused
			if l, err := net.Listen("tcp", p.at); err == nil {
				p.serve(l)
				return
			}
			time.Sleep(cutLook)
		}
	}
}

// Refuse makes the proxy end new connections at once, or accept them again.
func (p *Proxy) Refuse(on bool) { p.conns.Refuse(on) }

// Cut resets all connections at once.
func (p *Proxy) Cut() {
	p.conns.Each(func(c net.Conn) {
		if tcp, ok := c.(*net.TCPConn); ok {
			tcp.SetLinger(0)
		}
		c.Close()
		p.Cuts.Add(1)
	})
}

// Close ends the listener and all connections.
func (p *Proxy) Close() {
	p.Set(Unplugged)
	p.tasks.Wait()
}

// serve carries the connections to l until l is closed.
func (p *Proxy) serve(l net.Listener) {
	p.listener = l
	p.tasks.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			p.tasks.Go(func() { p.carry(near) })
		}
	})
}

// Conns holds open connections.
type Conns struct {
	mu      sync.Mutex
	open    map[net.Conn]bool // guarded by mu
	refused bool              // guarded by mu: new connections are closed
}

// Keep records a connection. While connections are refused, it closes the connection and returns false.
func (s *Conns) Keep(c net.Conn) bool {
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

// Forget closes a connection.
func (s *Conns) Forget(c net.Conn) {
	s.mu.Lock()
	delete(s.open, c)
	s.mu.Unlock()
	c.Close()
}

// Refuse makes Keep refuse connections, or accept them again.
func (s *Conns) Refuse(on bool) {
	s.mu.Lock()
	s.refused = on
	s.mu.Unlock()
}

// Each calls the function do with each open connection.
func (s *Conns) Each(do func(net.Conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		do(c)
	}
}

// carry forwards bytes between near and the target until one of the two connections ends.
func (p *Proxy) carry(near net.Conn) {
	if !p.conns.Keep(near) {
		return
	}
	defer p.conns.Forget(near)
	far, err := net.DialTimeout("tcp", p.target, dialTimeout)
	if err != nil || !p.conns.Keep(far) {
		return
	}
	defer p.conns.Forget(far)
	var both sync.WaitGroup
	forward := func(from, to net.Conn, cut Cable) {
		p.pump(from, to, cut)
		from.Close()
		to.Close()
	}
	both.Go(func() { forward(near, far, CutUp) })
	both.Go(func() { forward(far, near, CutDown) })
	both.Wait()
}

// piece is a sequence of bytes on their way.
type piece struct {
	bytes []byte
	due   time.Time
}

// pump forwards the bytes of one direction in order, each piece when it is due and the direction is not cut.
func (p *Proxy) pump(from, to net.Conn, cut Cable) {
	await := func() {
		for Cable(p.cable.Load())&cut != 0 {
			time.Sleep(cutLook)
		}
	}
	way := make(chan piece, pieces)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for x := range way {
			time.Sleep(time.Until(x.due))
			await()
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
			await() // the end of a connection does not pass either
			return
		}
	}
}
