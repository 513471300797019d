package server

import (
	"log/slog"
	"sync/atomic"
	"time"

	"edgert/policy"
	"edgert/rt"
	"edgert/server/acl"
	"edgert/server/manifest"
	"edgert/server/memory"
	"edgert/server/queue"
	"edgert/server/replica"
	"edgert/wire"
	"edgert/wire/zenoh"
)

// service is what all parts of a server share: what is served, to whom, and with
// what.
type service struct {
	// Constant after New.
	cfg       manifest.Config
	prefix    string // the beginning of all its keys
	id        string // server_id
	caps      wire.Capabilities
	meta      *policy.Meta
	tasks     taskReader
	limit     int           // sessions, or their bound where a gate decides
	window    time.Duration // how long a batch waits to fill
	placement policy.Placement
	access    *acl.Service // nil: the network has no listener of ours
	links     *Links       // nil: nobody counts them
	transport transport    // the network, where it counts what it loses; else nil
	network   wire.Session
	clock     rt.Clock
	log       *slog.Logger  // never blocks
	logLost   func() uint64 // nil: no line is lost
	sessions  *registry
	others    *replica.Others // the servers of the service
	memory    *memory.Bound   // on what robots make the server keep
	pool      *queue.Pool     // of the mailboxes
	fed       atomic.Int32    // sessions that max_sessions: auto came to; 0: it decides nothing. Written by housekeeping
	promised  atomic.Int64    // bytes, to all sessions. Written by housekeeping
	stats     *stats

	// Atomic.
	warmed   atomic.Bool // warm-up is over
	serving  atomic.Bool // everything is declared
	draining atomic.Bool
}

// transport is a network that counts what it loses: ours does, the C library's does not.
type transport interface{ Stats() zenoh.Stats }

func (s *service) transportStat(value func(zenoh.Stats) uint64) float64 {
	if s.transport == nil {
		return 0
	}
	return float64(value(s.transport.Stats()))
}

//rt:noalloc
func (s *service) load() float64 { return float64(len(s.sessions.all())) / float64(s.capacity()) }

// capacity is how many sessions there is room for, as far as is known.
//
//rt:noalloc
func (s *service) capacity() int {
	if n := s.fed.Load(); n > 0 {
		return int(n)
	}
	return s.limit
}

// transportMemory is what the links hold, 0 where the transport does not say.
func (s *service) transportMemory() int64 {
	if t, ok := s.network.(interface{ MemoryUsed() int }); ok {
		return int64(t.MemoryUsed())
	}
	return 0
}

// lostLines is how many lines of the log nobody read.
func (s *service) lostLines() uint64 {
	if s.logLost == nil {
		return 0
	}
	return s.logLost()
}
