package zenoh

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"edgert/wire/zenoh/codec"
	"edgert/wire/zenoh/link"
)

// connectLimit is how long the system may try to connect before we begin anew:
// it repeats a lost SYN after 1, 3 and 7 seconds, which is slow to notice that
// a network is back.
const connectLimit = 3 * time.Second

// dialer keeps one endpoint connected.
type dialer struct {
	s        *Session
	endpoint string

	mu   sync.Mutex
	last error // why the last attempt failed, guarded by mu
}

// run dials until the session closes.
func (d *dialer) run() {
	s := d.s
	pause := s.cfg.BackoffMin
	for s.ctx.Err() == nil {
		f, err := d.dial()
		if err == nil {
			s.cfg.Log("connected to " + d.endpoint)
			began := time.Now()
			err = f.run()
			if time.Since(began) > s.cfg.Lease {
				pause = s.cfg.BackoffMin
			}
		}
		d.mu.Lock()
		d.last = err
		d.mu.Unlock()
		if s.ctx.Err() != nil {
			return
		}
		s.cfg.Log(fmt.Sprintf("no link to %s, next attempt in about %v: %v", d.endpoint, pause, err))
		// Half the pause is random, so that a fleet does not come back in step.
		wait := pause/2 + rand.N(pause/2+1)
		select {
		case <-s.ctx.Done():
		case <-time.After(wait):
		}
		pause = min(2*pause, s.cfg.BackoffMax)
	}
}

func (d *dialer) dial() (*face, error) {
	addr, err := address(d.endpoint)
	if err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{KeepAlive: -1, Timeout: connectLimit}).DialContext(d.s.ctx, "tcp", addr)
	if err != nil {
		return nil, unreachable(d.endpoint, err)
	}
	link.Tune(conn)
	// A node id of its own for every attempt: the peer may still hold our last
	// link, and would refuse the same node until that one's lease has ended.
	l, err := link.Dial(d.s.ctx, conn, d.s.linkConfig(codec.Client, newZID()))
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("wire/zenoh: no Zenoh session at %s: %w", d.endpoint, err)
	}
	f, err := d.s.join(l, upstream)
	if err != nil {
		l.Discard()
		return nil, fmt.Errorf("wire/zenoh: %s: %w", d.endpoint, err)
	}
	return f, nil
}

// failure is why an endpoint has no link when ctx ended the wait for one.
func (d *dialer) failure(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last != nil {
		return d.last
	}
	return unreachable(d.endpoint, ctx.Err())
}

// failures is what to tell who waited in vain for the first link, on one line.
func failures(ctx context.Context, dials []*dialer) error {
	err := dials[0].failure(ctx)
	for _, d := range dials[1:] {
		err = fmt.Errorf("%w; %w", err, d.failure(ctx))
	}
	return err
}

func (s *Session) linkConfig(role codec.Role, zid []byte) link.Config {
	return link.Config{ZID: zid, Role: role, Lease: s.cfg.Lease, KeepAlive: s.cfg.KeepAlive,
		MaxMessage: s.cfg.MaxMessage, Budget: s.budget, Counters: &s.counters}
}
