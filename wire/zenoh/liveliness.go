package zenoh

import (
	"context"
	"slices"
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
	s.watching.add(key, w)
	for _, e := range s.matches(codec.DeclareToken, key) {
		s.events.add(event{w: w, key: e.key, alive: true})
	}
	for _, f := range s.north {
		if f.kind == upstream {
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
		s.watching.remove(w.key, w)
		for _, f := range s.north {
			if f.kind == upstream {
				f.interest(codec.Interest{ID: w.id, Mode: codec.InterestFinal})
				f.forgetUnwatched(w.key)
			}
		}
	}
	s.mu.Unlock()
	s.deliver.Lock()
	w.closed = true
	s.deliver.Unlock()
	return nil
}

// forgetUnwatched forgets the tokens that an upstream has declared on key, unless
// another watcher still covers them: nobody will tell us when they end. Called
// with s.mu held.
func (f *face) forgetUnwatched(key string) {
	s := f.s
	for id, e := range f.table(codec.DeclareToken) {
		if keyexpr.Intersects(e.key, key) && len(s.watching.matching(e.key)) == 0 {
			f.drop(codec.DeclareToken, id)
		}
	}
}

// report tells the watchers of a token that appeared or vanished. Called with mu
// held.
func (s *Session) report(key string, alive bool) {
	for _, all := range s.watching.matching(key) {
		for w := range all.who {
			s.events.add(event{w: w, key: key, alive: alive})
		}
	}
}

// listing collects the tokens that upstreams list.
type listing struct {
	done    chan struct{}   // closed when nobody is left to wait for
	waiting map[*face]bool  // guarded by Session.mu
	keys    map[string]bool // guarded by Session.mu
	bytes   int             // of them; guarded by Session.mu
}

func (l *listing) add(f *face, key string) {
	if l.waiting[f] && len(l.keys) < maxDeclared && l.bytes+len(key) <= maxTokenBytes {
		l.bytes += len(key)
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
	for _, f := range s.north {
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

	err := s.await(ctx, l.done, timeout)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lists, id)
	if s.closed {
		return nil, wire.ErrClosed
	}
	for _, e := range s.matches(codec.DeclareToken, key) {
		l.keys[e.key] = true
	}
	all := make([]string, 0, len(l.keys))
	for k := range l.keys {
		all = append(all, k)
	}
	slices.Sort(all)
	return all, err
}
