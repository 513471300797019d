package safety

import (
	"net"
	"strings"
	"sync"
	"time"
)

// proxy is the cable between an edge and its server: it can be cut in one
// direction or both, and pulled out.
type proxy struct {
	to       string
	endpoint string

	mu    sync.Mutex
	l     net.Listener // guarded by mu; nil while pulled
	conns []net.Conn   // guarded by mu
	up    bool         // guarded by mu: what the edge sends gets through
	down  bool         // guarded by mu: what the server sends does
	moved *sync.Cond   // a direction came back
	over  bool         // guarded by mu
}

// openProxy leads to a server's endpoint.
func openProxy(endpoint string) (*proxy, error) {
	p := &proxy{to: strings.TrimPrefix(endpoint, "tcp/"), up: true, down: true}
	p.moved = sync.NewCond(&p.mu)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p.endpoint = "tcp/" + l.Addr().String()
	p.serve(l)
	return p, nil
}

func (p *proxy) serve(l net.Listener) {
	p.mu.Lock()
	p.l = l
	p.mu.Unlock()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.join(c)
		}
	}()
}

// join carries one connection.
func (p *proxy) join(c net.Conn) {
	s, err := net.DialTimeout("tcp", p.to, time.Second)
	if err != nil {
		c.Close()
		return
	}
	p.mu.Lock()
	p.conns = append(p.conns, c, s)
	p.mu.Unlock()
	go p.carry(s, c, &p.up)
	p.carry(c, s, &p.down)
}

// carry takes one direction; while that is cut nothing is read, as from a cable
// that loses everything: TCP keeps it and tries again.
func (p *proxy) carry(to, from net.Conn, open *bool) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		p.mu.Lock()
		for !*open && !p.over {
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

// cut sets which directions get through.
func (p *proxy) cut(up, down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.up, p.down = up, down
	p.moved.Broadcast()
}

// pull takes the cable out: connections end, and none is taken.
func (p *proxy) pull() {
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

// plug puts it in again.
func (p *proxy) plug() error {
	l, err := net.Listen("tcp", strings.TrimPrefix(p.endpoint, "tcp/"))
	if err != nil {
		return err
	}
	p.serve(l)
	return nil
}

func (p *proxy) close() {
	p.pull()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	p.moved.Broadcast()
}
