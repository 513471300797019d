package zenoh

import (
	"context"
	"slices"
	"sync"
	"time"

	"edgert/wire"
	"edgert/wire/zenoh/codec"
	"edgert/wire/zenoh/keyexpr"
)

// watcher is an own subscriber to tokens.
type watcher struct {
	s       *Session
	id      uint32 // also of its interest
	key     string
	deposit func(key string, alive bool)
	closed  bool // guarded by Session.deliver
}

// interest asks an upstream for the tokens there are and will be.
func (w *watcher) interest() codec.Interest {
	return codec.Interest{ID: w.id, Mode: codec.InterestCurrentFuture, About: codec.AboutTokens,
		Restricted: true, Expr: codec.Key([]byte(w.key))}
}

// SubscribeTokens reports tokens that appear and vanish, beginning with those
// that are there; a key that several nodes hold appears once and vanishes with
// the last. deposit runs on a goroutine of the session.
func (s *Session) SubscribeTokens(key string, deposit func(key string, alive bool)) (wire.Declaration, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, wire.ErrClosed
	}
	w := &watcher{s: s, id: s.id(), key: key, deposit: deposit}
	s.watchers[w.id] = w
	for k := range s.present {
		if keyexpr.Intersects(key, k) {
			s.events.add(tokenEvent{w, k, true})
		}
	}
	for _, f := range s.faces {
		if f.mustBeAsked() {
			f.interest(w.interest())
		}
	}
	return w, nil
}

// Undeclare returns when deposit is not running and will not be called.
func (w *watcher) Undeclare() error {
	s := w.s
	s.mu.Lock()
	if s.watchers[w.id] == w {
		delete(s.watchers, w.id)
		for _, f := range s.faces {
			if f.mustBeAsked() {
				f.interest(codec.Interest{ID: w.id, Mode: codec.InterestFinal})
				f.unwatch()
			}
		}
	}
	s.mu.Unlock()
	s.deliver.Lock()
	w.closed = true
	s.deliver.Unlock()
	return nil
}

// unwatch forgets the tokens of an upstream that no watcher covers any more:
// nobody will tell us when they vanish. Called with s.mu held.
func (f *face) unwatch() {
	for id, key := range f.tokens {
		if !f.s.watched(key) {
			delete(f.tokens, id)
			f.s.vanish(key)
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

// appear counts one more declaration of a token. Called with mu held.
func (s *Session) appear(key string) {
	s.present[key]++
	if s.present[key] == 1 {
		s.report(key, true)
	}
}

// vanish counts one less. Called with mu held.
func (s *Session) vanish(key string) {
	s.present[key]--
	if s.present[key] == 0 {
		delete(s.present, key)
		s.report(key, false)
	}
}

func (s *Session) report(key string, alive bool) {
	for _, w := range s.watchers {
		if keyexpr.Intersects(w.key, key) {
			s.events.add(tokenEvent{w, key, alive})
		}
	}
}

// listing collects the tokens that upstreams list.
type listing struct {
	done    chan struct{}   // closed when nobody is left to wait for
	waiting map[*face]bool  // guarded by Session.mu
	keys    map[string]bool // guarded by Session.mu
}

func (l *listing) add(f *face, key string) {
	if l.waiting[f] && len(l.keys) < maxReplies {
		l.keys[key] = true
	}
}

func (l *listing) finish(f *face) {
	if l.waiting[f] {
		delete(l.waiting, f)
		if len(l.waiting) == 0 {
			close(l.done)
		}
	}
}

// Tokens lists the live tokens that match, sorted. A timeout is not an error:
// what is known by then is returned.
func (s *Session) Tokens(ctx context.Context, key string, timeout time.Duration) ([]string, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	l := &listing{done: make(chan struct{}), waiting: map[*face]bool{}, keys: map[string]bool{}}
	s.mu.Lock()
	if err := s.reachable(); err != nil {
		s.mu.Unlock()
		return nil, err
	}
	id := s.id()
	s.lists[id] = l
	for _, f := range s.faces {
		if f.mustBeAsked() {
			l.waiting[f] = true
			f.interest(codec.Interest{ID: id, Mode: codec.InterestCurrent, About: codec.AboutTokens,
				Restricted: true, Expr: codec.Key([]byte(key))})
		}
	}
	if len(l.waiting) == 0 {
		close(l.done)
	}
	s.mu.Unlock()

	err := await(ctx, l.done, timeout)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lists, id)
	if s.closed {
		return nil, wire.ErrClosed
	}
	for k := range s.present {
		if keyexpr.Intersects(key, k) {
			l.keys[k] = true
		}
	}
	all := make([]string, 0, len(l.keys))
	for k := range l.keys {
		all = append(all, k)
	}
	slices.Sort(all)
	return all, err
}

// tokenEvent is one report that a watcher is owed.
type tokenEvent struct {
	w     *watcher
	key   string
	alive bool
}

// tokenEvents carries reports from wherever they arise, with locks held, to the
// one goroutine that delivers them in order.
type tokenEvents struct {
	s       *Session
	mu      sync.Mutex
	changed sync.Cond    // on mu
	queue   []tokenEvent // guarded by mu
	ended   bool         // guarded by mu
}

func (e *tokenEvents) init(s *Session) {
	e.s = s
	e.changed.L = &e.mu
}

func (e *tokenEvents) add(ev tokenEvent) {
	e.mu.Lock()
	e.queue = append(e.queue, ev)
	e.mu.Unlock()
	e.changed.Signal()
}

func (e *tokenEvents) close() {
	e.mu.Lock()
	e.ended = true
	e.mu.Unlock()
	e.changed.Signal()
}

func (e *tokenEvents) run() {
	for {
		e.mu.Lock()
		for len(e.queue) == 0 && !e.ended {
			e.changed.Wait()
		}
		batch := e.queue
		e.queue = nil
		ended := e.ended
		e.mu.Unlock()
		if ended {
			return
		}
		for _, ev := range batch {
			e.s.deliver.Lock()
			if !ev.w.closed {
				ev.w.deposit(ev.key, ev.alive)
			}
			e.s.deliver.Unlock()
		}
	}
}
