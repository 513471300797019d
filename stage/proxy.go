package stage

import (
	"net"
	"strings"
	"sync"
	"time"
)

// Cable is the state of a cable between an edge and its server. Both directions may be cut at once.
type Cable uint8

const (
	CutUp     Cable = 1 << iota // the edge's bytes do not pass until the cable is whole; TCP retransmits them then
	CutDown                     // the server's bytes do not pass
	Unplugged                   // all connections end, and the proxy refuses new ones
	Whole     Cable = 0
)

// Proxy is a cable between an edge and its server.
type Proxy struct {
	Endpoint string

	to string

	mu    sync.Mutex
	l     net.Listener // guarded by mu; nil while unplugged
	conns []net.Conn   // guarded by mu
	cable Cable        // guarded by mu
	moved *sync.Cond   // signals that cable has changed
	ended bool         // guarded by mu
}

// OpenProxy opens a proxy for the server at the endpoint.
func OpenProxy(endpoint string) (*Proxy, error) {
	p := &Proxy{to: strings.TrimPrefix(endpoint, "tcp/")}
	p.moved = sync.NewCond(&p.mu)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p.Endpoint = "tcp/" + l.Addr().String()
	p.serve(l)
	return p, nil
}

func (p *Proxy) serve(l net.Listener) {
	p.mu.Lock()
	p.l = l
	p.mu.Unlock()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.connect(c)
		}
	}()
}

func (p *Proxy) connect(c net.Conn) {
	s, err := net.DialTimeout("tcp", p.to, time.Second)
	if err != nil {
		c.Close()
		return
	}
	p.mu.Lock()
	p.conns = append(p.conns, c, s)
	p.mu.Unlock()
	go p.copy(s, c, CutUp)
	p.copy(c, s, CutDown)
}

// copy copies the bytes of one direction. While the direction is cut it reads nothing, so that the bytes arrive later.
func (p *Proxy) copy(to, from net.Conn, cut Cable) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		p.mu.Lock()
		for p.cable&cut != 0 && !p.ended {
			p.moved.Wait()
		}
		p.mu.Unlock()
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// Set changes the state of the cable.
func (p *Proxy) Set(cable Cable) error {
	p.mu.Lock()
	p.cable = cable
	p.moved.Broadcast()
	closed := p.l == nil
	p.mu.Unlock()
	switch {
	case cable == Unplugged:
		p.unplug()
	case closed:
		l, err := net.Listen("tcp", strings.TrimPrefix(p.Endpoint, "tcp/"))
		if err != nil {
			return err
		}
		p.serve(l)
	}
	return nil
}

func (p *Proxy) unplug() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.l != nil {
		p.l.Close()
		p.l = nil
	}
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

// Close ends all connections.
func (p *Proxy) Close() {
	p.unplug()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.moved.Broadcast()
}
