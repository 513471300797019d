package stage

import (
	"net"
	"strings"
	"sync"
	"time"
)

// Proxy is the cable between an edge and its server: it can be cut in one
// direction or both, and unplugged.
type Proxy struct {
	Endpoint string

	to string

	mu    sync.Mutex
	l     net.Listener // guarded by mu; nil while unplugged
	conns []net.Conn   // guarded by mu
	up    bool         // guarded by mu: the edge's bytes pass
	down  bool         // guarded by mu: the server's bytes pass
	moved *sync.Cond   // signals that a direction is open again
	ended bool         // guarded by mu
}

// OpenProxy returns a proxy of the server at the endpoint.
func OpenProxy(endpoint string) (*Proxy, error) {
	p := &Proxy{to: strings.TrimPrefix(endpoint, "tcp/"), up: true, down: true}
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
	go p.copy(s, c, &p.up)
	p.copy(c, s, &p.down)
}

// copy copies one direction, and reads nothing while it is cut: TCP retransmits.
func (p *Proxy) copy(to, from net.Conn, open *bool) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		p.mu.Lock()
		for !*open && !p.ended {
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

// Pass sets the directions that are open.
func (p *Proxy) Pass(up, down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.up, p.down = up, down
	p.moved.Broadcast()
}

// Unplug ends all connections and refuses new ones.
func (p *Proxy) Unplug() {
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

// Replug accepts connections again.
func (p *Proxy) Replug() error {
	l, err := net.Listen("tcp", strings.TrimPrefix(p.Endpoint, "tcp/"))
	if err != nil {
		return err
	}
	p.serve(l)
	return nil
}

// Close ends all connections.
func (p *Proxy) Close() {
	p.Unplug()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.moved.Broadcast()
}
