// Package zenoh is a Zenoh 1.x session in pure Go: wire.Session over TCP, TLS
// and unix sockets.
//
// A Session dials, listens, or both. One that only dials is a Zenoh client of
// what it dials, a router or another listener: it declares its subscribers,
// queryables and tokens there, and sends every publication. One that listens is
// a peer. For each client that dials it, it is the router: it answers interests,
// and passes samples, questions with their replies, and tokens between that
// client and everybody else. Peers and routers, whoever dialled whom, tell each
// other all that they and their clients have, and nothing goes from one of them
// to another through a third, because they reach each other: so nothing comes
// twice and nothing goes round.
//
// What is passed on keeps its QoS, and a link that does not take it loses it by
// that QoS: a droppable sample at once, a blocking one when the link has taken
// nothing for half a second, and at once for as long as it goes on taking
// nothing. Nobody else's traffic waits.
//
// It is linked to one of the endpoints that it dials: when that link is lost, to
// the next one that answers, with backoff when none does, for ever. Everything
// is declared anew on the new link. What the other side had declared is forgotten with its
// link: its tokens vanish, and appear again when it comes back.
//
// A Session hears its own publications, answers its own questions and sees its
// own tokens, as everybody else's.
//
// Subpackages: codec is the format, keyexpr the matching, endpoint the places to
// dial and to listen on, link one transport, contract the tests of any
// wire.Session.
//
// Source: eclipse-zenoh/zenoh; checked against 1.9.0 and 1.10.2 (make interop).
package zenoh

import (
	"context"
	"crypto/rand"
	"sync"
	"sync/atomic"

	"edgert/wire"
	"edgert/wire/zenoh/codec"
	"edgert/wire/zenoh/endpoint"
	"edgert/wire/zenoh/keyexpr"
	"edgert/wire/zenoh/link"
)

// Session implements wire.Session.
type Session struct {
	// Constant after Open.
	cfg    Config
	zid    []byte
	budget *link.Budget
	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	counters link.Counters // atomic
	refused  refusals      // atomic

	tasks     sync.WaitGroup // every goroutine of the session
	listeners []*endpoint.Listener

	// deliver is held while a callback runs, so that callbacks come one at a
	// time and none after Undeclare. It may be held when taking mu, not the
	// other way round.
	deliver sync.Mutex

	// epoch changes with every subscriber and every link; cached routes carry it.
	epoch      atomic.Uint64
	routeBytes atomic.Int64 // of all links' cached routes
	relayed    relays       // atomic

	// Guarded by mu, which is held while nothing blocks and no callback runs.
	mu      sync.Mutex
	closed  bool
	lastID  uint32
	aiming  uint64 // numbers the searches for links, for face.aimed
	faces   []*face
	north   []*face          // those that are no guest clients
	unready int              // peers that have not told us all they have
	guests  map[string]visit // by the node ids of accepted links
	first   chan struct{}    // closed when the first link is up
	isUp    bool

	inquiryBytes int // of queries that our queryables have not finished
	watchers     map[uint32]*watcher
	lists        map[uint32]*listing

	publishers map[*publisher]bool
	questions  map[uint32]*question

	// All that is declared, by anybody, and who waits for changes of it.
	index         [len(kinds)]keyexpr.Tree[*entry]
	declaredBytes int // of the entries and interests, without the trees
	matched       []*entry
	aimers        crowd[*publisher]
	watching      crowd[*watcher]
	wanted        crowd[*interest]
	unrestricted  map[*interest]struct{}
	aggregates    int   // interests that join what matches
	visits        visit // so far

	events localEvents // own lock
}

var _ wire.Session = (*Session)(nil)

// Open starts a session. With endpoints to listen on it returns when all are
// listening, or says which cannot be. Without, it returns when the first link
// is up, or when ctx ends with an error that names an endpoint and why nobody
// answers there.
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
	s.start(s.events.run)
	for _, l := range s.listeners {
		s.start(func() { s.acceptFrom(l) })
	}
	d := &dialer{s: s, endpoints: cfg.connect, last: make([]error, len(cfg.connect))}
	if len(cfg.connect) > 0 {
		s.start(d.run)
	}
	if len(cfg.Listen) > 0 {
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
		cfg: cfg, zid: newZID(), budget: link.NewBudget(cfg.Memory),
		guests: map[string]visit{}, publishers: map[*publisher]bool{}, watchers: map[uint32]*watcher{},
		lists: map[uint32]*listing{}, questions: map[uint32]*question{}, unrestricted: map[*interest]struct{}{},
		first: make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.events.init(s)
	return s
}

func (s *Session) start(task func()) {
	s.tasks.Add(1)
	go func() {
		defer s.tasks.Done()
		task()
	}()
}

// Close says goodbye on every link and ends the session's goroutines. No
// callback runs afterwards.
func (s *Session) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return wire.ErrClosed
	}
	s.closed = true
	s.retarget("")
	faces := append([]*face(nil), s.faces...)
	s.mu.Unlock()
	s.cancel()
	for _, l := range s.listeners {
		l.Close()
	}
	for _, f := range faces {
		f.link.Close(codec.CloseGeneric)
	}
	s.events.close()
	s.tasks.Wait()
	return nil
}

// Connected reports whether at least one link is up.
func (s *Session) Connected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.faces) > 0
}

// id returns a number that no other object, interest or request of the session
// has. Called with mu held.
func (s *Session) id() uint32 {
	s.lastID++
	return s.lastID
}

// newZID makes a node id whose length no peer shortens: the last byte is not
// zero.
func newZID() []byte {
	zid := make([]byte, 16)
	rand.Read(zid)
	zid[15] |= 1
	return zid
}
