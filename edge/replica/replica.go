// Package replica chooses among the servers of one service, and knows from their
// liveliness tokens which are there.
package replica

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"edgert/wire"
)

// maxServers bounds the servers that a robot remembers.
const maxServers = 256

// loadStep is how much the loads of two servers differ before that decides: robots
// that look for a place at one time see one load, and shall not all go to one.
const loadStep = 0.1

// Order sorts what the servers said of themselves, the best for the robot called
// uuid first: the bundle whose digest begins with model, room, little load, and among
// equals each robot has another. Those that drain and those that are gone are left
// out. Servers that do not know server_id come last, as one: nobody can choose among
// them.
func Order(said []wire.Status, model, uuid string, gone func(id string) bool) (best []wire.Status) {
	unnamed := false
	for _, s := range said {
		if s.Draining || gone(s.ServerID) || s.ServerID == "" && unnamed {
			continue
		}
		unnamed = unnamed || s.ServerID == ""
		best = append(best, s)
	}
	slices.SortStableFunc(best, func(a, b wire.Status) int {
		return cmp.Or(
			order(!Serves(&a, model), !Serves(&b, model)),
			order(a.ServerID == "", b.ServerID == ""),
			order(full(&a), full(&b)),
			cmp.Compare(int(a.ServerLoad/loadStep), int(b.ServerLoad/loadStep)),
			cmp.Compare(wire.Rendezvous(b.ServerID, uuid), wire.Rendezvous(a.ServerID, uuid)))
	})
	return best
}

// Serves reports whether the server's bundle has a digest that begins with model; one
// that does not say may.
func Serves(s *wire.Status, model string) bool {
	return s.ModelSHA256 == "" || strings.HasPrefix(s.ModelSHA256, model)
}

func full(s *wire.Status) bool { return s.MaxSessions > 0 && s.ActiveSessions >= s.MaxSessions }

func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// State is what a server's token says.
type State uint8

// The states. A server without a token of its own is never seen.
const (
	Unseen State = iota
	Alive
	Gone // now, or in between since Begin
)

// Servers is which servers are there.
type Servers struct {
	mu   sync.Mutex // guards all
	seen map[string]*token
}

type token struct {
	up, went bool
	beside   bool // it was there when the session ended: it does not take the place of that server
}

// Set takes a token that came or went. Owner: the transport's goroutines.
func (s *Servers) Set(id string, up bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.seen[id]
	if t == nil {
		if s.seen == nil {
			s.seen = map[string]*token{}
		}
		if len(s.seen) >= maxServers {
			s.forgetGone()
		}
		if len(s.seen) >= maxServers {
			return // never seen: it is watched as one without a token
		}
		t = new(token)
		s.seen[id] = t
	}
	t.up, t.went = up, t.went || !up
}

func (s *Servers) forgetGone() {
	for id, t := range s.seen {
		if !t.up {
			delete(s.seen, id)
		}
	}
}

// Begin is the beginning of a handshake: who is there now, or comes, counts as there.
func (s *Servers) Begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.seen {
		t.went = false
	}
}

// Leave is the end of a session: who is there now was there beside its server.
func (s *Servers) Leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.seen {
		t.beside = t.up
	}
}

// Beside reports whether a server was there beside that of the last session.
func (s *Servers) Beside(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.seen[id]
	return t != nil && t.beside
}

// State returns what is known of a server.
func (s *Servers) State(id string) State {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch t := s.seen[id]; {
	case t == nil:
		return Unseen
	case t.went || !t.up:
		return Gone
	}
	return Alive
}
