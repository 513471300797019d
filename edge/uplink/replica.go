package uplink

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/edge-rt/edge-rt/wire"
)

// maxServers bounds the number of servers that a robot remembers.
const maxServers = 256

// loadStep is the step to which the loads of two servers are rounded down before they are compared. Robots that choose
// at the same time see the same loads, and should not all choose one server.
const loadStep = 0.1

// rank sorts the servers by their status, the best for the robot with this uuid first. The criteria are a bundle whose
// digest begins with model, a free place, a policy that has run, and low load; among equals, each robot has its own
// order. Draining and gone servers are left out. One entry represents all servers without server_id, since a request
// cannot name them; it comes after the named servers with such a bundle.
func rank(said []wire.Status, model, uuid string, gone func(id string) bool) (best []wire.Status) {
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
			order(!serves(&a, model), !serves(&b, model)),
			order(a.ServerID == "", b.ServerID == ""),
			order(full(&a), full(&b)),
			order(!a.WarmedUp, !b.WarmedUp),
			cmp.Compare(int(a.ServerLoad/loadStep), int(b.ServerLoad/loadStep)),
			cmp.Compare(wire.Rendezvous(b.ServerID, uuid), wire.Rendezvous(a.ServerID, uuid)))
	})
	return best
}

// serves reports whether the digest of the server's bundle begins with model. It returns true for a
// server without a digest.
func serves(s *wire.Status, model string) bool {
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

// tokenState is the state of a server's token.
type tokenState uint8

// The states. A server without a token of its own stays unseen; the token that all servers share does not count.
const (
	unseen tokenState = iota
	alive
	gone // the token is gone now, or was gone at some time since begin
)

// servers tracks which servers are alive.
type servers struct {
	mu   sync.Mutex // guards all
	seen map[string]*token
}

type token struct {
	up, went bool
	beside   bool // alive when the last session ended, so it has not replaced the session's server
}

// set notes a token that has appeared or disappeared. Owner: the transport's goroutines.
func (s *servers) set(id string, up bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.seen[id]
	if t == nil {
		if s.seen == nil {
			s.seen = map[string]*token{}
		}
		if len(s.seen) >= maxServers {
			maps.DeleteFunc(s.seen, func(_ string, t *token) bool { return !t.up })
		}
		if len(s.seen) >= maxServers {
			return // the server stays unseen, like a server without a token
		}
		t = new(token)
		s.seen[id] = t
	}
	t.up, t.went = up, t.went || !up
}

// begin begins a handshake. It forgets earlier disappearances: every server whose token exists now is alive.
func (s *servers) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.seen {
		t.went = false
	}
}

// leave ends a session. It marks the servers that are alive now: they were alive beside the session's server.
func (s *servers) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.seen {
		t.beside = t.up
	}
}

// beside reports whether a server was alive beside the server of the last session.
func (s *servers) beside(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.seen[id]
	return t != nil && t.beside
}

// state returns the state of a server's token.
func (s *servers) state(id string) tokenState {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch t := s.seen[id]; {
	case t == nil:
		return unseen
	case t.went || !t.up:
		return gone
	}
	return alive
}
