// Package zenoh is a Zenoh 1.x session in pure Go: wire.Session over TCP, TLS and unix sockets.
//
// A Session is a client of one upstream. A session that only dials is a client of a router or another listener. It has
// a link to one of its endpoints. When this link is lost, it dials the endpoints in turn, without end, and with growing
// pauses while no endpoint answers. The session makes all its declarations anew on the new link. The other side's
// declarations end with the link: its tokens vanish, and appear again when the node returns.
//
// A session that listens is a client of a router in its own process (package router), which serves
// the nodes that dial it; the nodes that it dials are the router's peers.
//
// A Session's publications and queries reach other sessions, not itself. It sees its own tokens
// like all others.
//
// Files: dial.go keeps a link, upstream.go sends and receives on it, declare.go holds the session's
// declarations, publish.go and receive.go samples, get.go the queries that it sends, query.go those
// that it answers, token.go the tokens of others, deliver.go the events that wait for its
// callbacks.
//
// Subpackages: codec is the format, keyexpr the matching, endpoint dialling and listening, link one
// transport, remote the memory of remotes' declarations, router the listener's work, sessiontest the
// tests of any wire.Session.
//
// Source: the crates zenoh, zenoh-protocol and zenoh-transport 1.9.0; checked against eclipse-zenoh
// 1.9.0.
package zenoh

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint"
	"github.com/edge-rt/edge-rt/wire/zenoh/link"
	"github.com/edge-rt/edge-rt/wire/zenoh/remote"
	"github.com/edge-rt/edge-rt/wire/zenoh/router"
)

// Session implements wire.Session.
type Session struct {
	// Constant after Open.
	cfg       Config
	zid       []byte
	budget    *link.Budget
	ctx       context.Context // ends with Close
	cancel    context.CancelFunc
	listeners []*endpoint.Listener
	router    *router.Router // nil: the session does not listen

	counters link.Counters // atomic

	tasks sync.WaitGroup // all goroutines of the session, except those of its router

	// epoch changes whenever a subscriber or a link begins or ends. A cached list of receivers is valid for one epoch.
	epoch atomic.Uint64

	// deliver is held while a callback runs, so that callbacks run one at a time and never after
	// Undeclare. A goroutine that holds deliver may lock mu; a goroutine that holds mu must not lock deliver.
	deliver sync.Mutex
	routes  map[string]*route // guarded by deliver

	// Guarded by mu, which is never held across a blocking call or a callback. A goroutine that holds mu may send,
	// which locks the router.
	mu     sync.Mutex
	closed bool
	lastID uint32
	up     upstream      // nil: there is no link
	first  chan struct{} // closed when the first link is up
	isUp   bool

	index  remote.Index[*entry]
	tokens remoteTokens

	watchers   map[uint32]*watcher
	lists      map[uint32]*listing
	outQueries map[uint32]*outQuery
	inQueries  map[uint32]*inQuery // queries of the upstream, by the upstream's numbers
	inBytes    int                 // memory of inQueries, see inQueryBytes

	events  deliveries   // has its own lock
	dialled dialFindings // has its own lock
}

var _ wire.Session = (*Session)(nil)

// Open starts a session. If it has endpoints to listen on, Open returns when it listens on all of them; its error names
// the endpoint on which it cannot listen. Otherwise Open returns when the first link is up; if ctx ends before that,
// the error names the endpoints and why they do not answer.
func Open(ctx context.Context, cfg Config) (wire.Session, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := newSession(cfg)
	for _, e := range cfg.listen {
		l, err := e.Listen()
		if err != nil {
			s.Close()
			return nil, err
		}
		s.listeners = append(s.listeners, l)
	}
	s.tasks.Go(s.events.run)
	for _, l := range s.listeners {
		s.router.Serve(l)
	}
	d := &dialer{s: s, endpoints: cfg.connect, last: make([]error, len(cfg.connect)), lines: repeats{}}
	if len(cfg.connect) > 0 {
		s.tasks.Go(d.run)
	}
	if s.router != nil {
		return s, nil
	}
	select {
	case <-s.first:
		return s, nil
	case <-ctx.Done():
		s.Close()
		return nil, d.failures(ctx)
	}
}

func newSession(cfg Config) *Session {
	s := &Session{
		cfg:        cfg,
		zid:        newZID(),
		budget:     link.NewBudget(cfg.Memory),
		routes:     map[string]*route{},
		tokens:     remoteTokens{byID: map[uint32]*entry{}},
		watchers:   map[uint32]*watcher{},
		lists:      map[uint32]*listing{},
		outQueries: map[uint32]*outQuery{},
		inQueries:  map[uint32]*inQuery{},
		first:      make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.epoch.Store(1)
	s.events.init(s)
	if len(cfg.listen) > 0 {
		s.router = router.New(router.Config{
			Link:        s.linkConfig(codec.Peer, s.zid),
			MaxSessions: cfg.MaxSessions,
			Log:         cfg.Log,
			Rights:      cfg.Rights,
			Event: func(from string, err error) {
				cfg.Links(LinkEvent{Endpoint: from, Up: err == nil, Err: err})
			},
		}, inbox{s})
		s.up = s.router.Port()
	}
	return s
}

// Close sends a Close on every link and ends the session's goroutines. No callback runs afterwards.
func (s *Session) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return wire.ErrClosed
	}
	s.closed = true
	s.epoch.Add(1)
	for _, q := range s.inQueries {
		q.cancel()
	}
	up := s.up
	s.mu.Unlock()
	s.cancel()
	if d, ok := up.(*dialled); ok {
		d.Close(codec.CloseGeneric)
	}
	if s.router != nil {
		s.router.Stop()
	}
	for _, l := range s.listeners {
		l.Close()
	}
	s.events.close()
	s.tasks.Wait()
	if s.router != nil {
		s.router.Wait()
	}
	return nil
}

// Endpoints lists the listening endpoints, with the real port numbers.
func (s *Session) Endpoints() []string {
	var all []string
	for _, l := range s.listeners {
		all = append(all, l.Endpoint())
	}
	return all
}

// Certificates lists the faults, present or soon to come, of the certificates that the session's listeners now show and
// require, and of the certificates with which it dials.
func (s *Session) Certificates(now time.Time) []endpoint.Finding {
	found := slices.Clone(s.dialled.current(s.cfg.connect, now))
	for _, l := range s.listeners {
		found = addFindings(found, l.Certificates(now))
	}
	return found
}

// Connected reports whether at least one link is up.
func (s *Session) Connected() bool {
	if s.router != nil {
		return s.router.Connected()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.up != nil
}

// MemoryUsed is the number of bytes of Config.Memory in use.
func (s *Session) MemoryUsed() int { return s.budget.Used() }

// reachable returns the reason why the session can reach no node, or nil when it has an upstream. Called with mu held.
func (s *Session) reachable() error {
	switch {
	case s.closed:
		return wire.ErrClosed
	case s.up == nil:
		return wire.ErrDisconnected
	}
	return nil
}

// id returns a new number, which no other declaration, interest or query of the session has. Called with mu held.
func (s *Session) id() uint32 {
	s.lastID++
	return s.lastID
}

// newZID returns a random node id. Its last byte is not zero, because nodes drop zero bytes at the end of an id.
func newZID() []byte {
	zid := make([]byte, 16)
	rand.Read(zid)
	zid[15] |= 1
	return zid
}
