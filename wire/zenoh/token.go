package zenoh

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
	"github.com/edge-rt/edge-rt/wire/zenoh/keyexpr"
	"github.com/edge-rt/edge-rt/wire/zenoh/remote"
)

// Bounds of the tokens that an upstream may make the session keep.
const (
	maxTokens     = 16384
	maxTokenBytes = 14 << 20
	tokenBytes    = 400 // memory of a token besides its key
)

// remoteTokens holds the tokens of an upstream. Guarded by Session.mu.
type remoteTokens struct {
	byID  map[uint32]*entry // by the upstream's numbers
	bytes int
	most  int // see remote.Shrink
}

func (t *remoteTokens) cost(key string) int { return tokenBytes + 2*len(key) }

// tokenDeclared stores a token of the upstream. When the declaration answers a listing, it adds the token to the
// listing instead. Called with mu held.
func (s *Session) tokenDeclared(m *codec.Declare, key string) {
	if m.Answers {
		if l := s.lists[m.Interest]; l != nil {
			l.add(key)
			return
		}
		if s.watchers[m.Interest] == nil {
			return // the interest was withdrawn meanwhile
		}
	}
	t := &s.tokens
	if old := t.byID[m.ID]; old != nil {
		if old.key == key {
			return
		}
		s.dropToken(m.ID) // the code below checks the new key like any other key
	}
	// A router in this process has already applied its own limits to each link.
	if s.router == nil && (len(t.byID) >= maxTokens || t.bytes+t.cost(key) > maxTokenBytes || s.events.full()) {
		s.counters.Declarations.Add(1)
		return
	}
	t.bytes += t.cost(key)
	e := s.entry(codec.DeclareToken, key)
	t.byID[m.ID] = e
	if e.remote++; e.remote == 1 && len(e.own) == 0 {
		s.report(key, true)
	}
}

// tokenUndeclared removes a token by its number or, if the upstream never declared this number to us, by its key.
// Called with mu held.
func (s *Session) tokenUndeclared(id uint32, key string) {
	if e := s.tokens.byID[id]; e != nil && (key == "" || key == e.key) {
		s.dropToken(id)
		return
	}
	for id, e := range s.tokens.byID {
		if e.key == key {
			s.dropToken(id)
			return
		}
	}
}

// dropToken removes a token of the upstream. Called with mu held.
func (s *Session) dropToken(id uint32) {
	t := &s.tokens
	e := t.byID[id]
	delete(t.byID, id)
	t.byID = remote.Shrink(t.byID, &t.most)
	t.bytes -= t.cost(e.key)
	s.budget.AddGarbage(t.cost(e.key))
	if e.remote--; e.remote == 0 && len(e.own) == 0 {
		s.report(e.key, false)
		s.release(e)
	}
}

// watcher is a subscription of this session to tokens.
type watcher struct {
	s       *Session
	id      uint32 // number of the watcher's interest at the upstream
	key     string
	deposit func(key string, alive bool)
	closed  bool // guarded by Session.deliver
}

// interest returns the interest that requests the present and future tokens on the watcher's key from the upstream.
func (w *watcher) interest() codec.Interest {
	return codec.Interest{
		ID:         w.id,
		Mode:       codec.InterestCurrentFuture,
		About:      codec.AboutTokens,
		Restricted: true,
		Expr:       codec.Key(w.key),
	}
}

// SubscribeTokens reports tokens that appear and vanish, beginning with the existing tokens. A token that several nodes
// hold appears once and vanishes with its last holder. deposit runs on a goroutine of the session.
func (s *Session) SubscribeTokens(key string, deposit func(key string, alive bool)) (wire.Declaration, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, wire.ErrClosed
	}
	w := &watcher{
		s:       s,
		id:      s.id(),
		key:     key,
		deposit: deposit,
	}
	s.watchers[w.id] = w
	for _, e := range s.index.Matches(codec.DeclareToken, key) {
		s.events.add(event{w: w, key: e.key, alive: true})
	}
	s.interest(w.interest())
	return w, nil
}

// report calls deposit, on the session's own goroutine.
func (w *watcher) report(key string, alive bool) {
	w.s.deliver.Lock()
	defer w.s.deliver.Unlock()
	if !w.closed {
		w.deposit(key, alive)
	}
}

// Undeclare ends the subscription. When it returns, deposit is not running and will not be called again.
func (w *watcher) Undeclare() error {
	s := w.s
	s.mu.Lock()
	if s.watchers[w.id] == w {
		delete(s.watchers, w.id)
		s.interest(codec.Interest{ID: w.id, Mode: codec.InterestFinal})
		s.dropUnwatched(w.key)
	}
	s.mu.Unlock()
	s.deliver.Lock()
	w.closed = true
	s.deliver.Unlock()
	return nil
}

// dropUnwatched removes those tokens of the upstream that match key, except tokens that another watcher still covers,
// because the upstream would no longer report their end. Called with mu held.
func (s *Session) dropUnwatched(key string) {
	for id, e := range s.tokens.byID {
		if keyexpr.Intersects(e.key, key) && !s.watched(e.key) {
			s.dropToken(id)
		}
	}
}

func (s *Session) watched(key string) bool {
	for _, w := range s.watchers {
		if keyexpr.Intersects(w.key, key) {
			return true
		}
	}
	return false
}

// report queues a report to each watcher of a token that appeared or vanished. Called with mu held.
func (s *Session) report(key string, alive bool) {
	for _, w := range s.watchers {
		if keyexpr.Intersects(w.key, key) {
			s.events.add(event{w: w, key: key, alive: alive})
		}
	}
}

// listing collects the tokens that the upstream lists. Guarded by Session.mu.
type listing struct {
	pending
	keys  map[string]bool
	bytes int // length of all keys
}

func (l *listing) add(key string) {
	if len(l.keys) < maxTokens && l.bytes+len(key) <= maxTokenBytes {
		l.bytes += len(key)
		l.keys[key] = true
	}
}

// Tokens lists the live tokens that match, sorted. A timeout is not an error: Tokens then returns the tokens that have
// arrived so far.
func (s *Session) Tokens(ctx context.Context, key string, timeout time.Duration) ([]string, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	l := &listing{pending: pending{done: make(chan struct{})}, keys: map[string]bool{}}
	s.mu.Lock()
	if err := s.reachable(); err != nil {
		s.mu.Unlock()
		return nil, err
	}
	id := s.id()
	s.lists[id] = l
	s.interest(codec.Interest{
		ID:         id,
		Mode:       codec.InterestCurrent,
		About:      codec.AboutTokens,
		Restricted: true,
		Expr:       codec.Key(key),
	})
	s.mu.Unlock()

	err := s.await(ctx, l.done, timeout)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lists, id)
	if s.closed {
		return nil, wire.ErrClosed
	}
	for _, e := range s.index.Matches(codec.DeclareToken, key) {
		l.keys[e.key] = true
	}
	return slices.Sorted(maps.Keys(l.keys)), err
}
