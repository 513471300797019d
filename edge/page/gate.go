package page

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"edgert/rt"
)

// gate is a listener that lets in few connections at once, and few in a second.
// Those for which there is no seat wait in the kernel, where they cost nothing
// of ours.
type gate struct {
	net.Listener
	seats    chan struct{}
	closed   chan struct{}
	once     sync.Once
	turn     pace
	accepted atomic.Uint64
}

func newGate(l net.Listener, clock rt.Clock) *gate {
	return &gate{Listener: l, seats: make(chan struct{}, connections), closed: make(chan struct{}), turn: pace{clock: clock, every: arrivals}}
}

// Accept returns the next connection when there is a seat for it.
func (g *gate) Accept() (net.Conn, error) {
	select {
	case g.seats <- struct{}{}:
	case <-g.closed:
		return nil, net.ErrClosed
	}
	g.turn.wait()
	c, err := g.Listener.Accept()
	if err != nil {
		<-g.seats
		return nil, err
	}
	g.accepted.Add(1)
	return &seated{Conn: c, gate: g}, nil
}

// Close ends Accept.
func (g *gate) Close() error {
	g.once.Do(func() { close(g.closed) })
	return g.Listener.Close()
}

// seated is a connection that gives its seat back.
type seated struct {
	net.Conn
	gate *gate
	left atomic.Bool
}

func (s *seated) Close() error {
	if !s.left.Swap(true) {
		<-s.gate.seats
	}
	return s.Conn.Close()
}

// pace lets one pass every so often; after a rest, up to burst at once.
type pace struct {
	clock rt.Clock
	every time.Duration

	mu   sync.Mutex
	next rt.Instant // guarded by mu; when the next may pass, had all come in time
}

// wait returns when it is the caller's turn.
func (p *pace) wait() {
	p.mu.Lock()
	now := p.clock.Now()
	p.next = max(p.next, now.Add(-burst*p.every)).Add(p.every)
	due := p.next.Sub(now)
	p.mu.Unlock()
	if due > 0 {
		time.Sleep(due)
	}
}
