// Package peers is a server's view of the other servers of its service. From their liveliness
// tokens it computes which servers are alive, which have room, and which server holds which robot.
// All servers compute the same result, so that exactly one answers a robot that names no server.
package peers

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/edge-rt/edge-rt/server/memory"
	"github.com/edge-rt/edge-rt/server/queue"
	"github.com/edge-rt/edge-rt/wire"
)

// These bound the kept tokens of other servers. Further tokens are dropped and counted.
const (
	maxServers = 256
	maxHeld    = 1 << 16
	// The tokens take at most 1/memoryFraction of the bound on memory. The other part is for robots.
	memoryFraction = 16
	// tokenBytes is the memory of a token in addition to its key.
	tokenBytes = 256
)

// Others holds the servers of a service.
type Others struct {
	// Constant.
	prefix  string
	self    string        // id of this server
	memory  *memory.Bound // bound in which the tokens are counted
	changed queue.Signal  // signals that Holder may return a new session

	Forgotten atomic.Uint64 // tokens that were dropped because they exceed the bounds

	mu      sync.Mutex // guards the rest; held for a few instructions
	servers map[string]*server
	held    map[string][]wire.Held // sessions at other servers, by the robot's uuid
	holds   int                    // number of all elements of held
	bytes   int64                  // memory of all tokens
}

type server struct{ alive, room bool }

// New returns an empty view of the service at prefix, for the server with the id self. The memory for the other servers
// is counted in bound.
func New(prefix, self string, bound *memory.Bound) *Others {
	return &Others{
		prefix:  prefix,
		self:    self,
		memory:  bound,
		changed: queue.NewSignal(),
		servers: map[string]*server{},
		held:    map[string][]wire.Held{},
	}
}

// Changed returns a channel that signals that Holder may return a session that it did not return before.
func (o *Others) Changed() <-chan struct{} { return o.changed }

// OnToken handles a change of a server's token, which may be its alive, room or held token. The parameter alive
// reports whether the token was declared or has vanished.
//
// Owner: the transport's goroutines.
func (o *Others) OnToken(key string, alive bool) {
	if id, leaf, err := wire.ParseReplicaKey(o.prefix, key); err == nil {
		o.mu.Lock()
		o.set(id, leaf, alive)
		o.mu.Unlock()
		return
	}
	h, err := wire.ParseHeldKey(o.prefix, key)
	if err != nil || h.Server == o.self {
		return
	}
	o.mu.Lock()
	o.hold(h, alive)
	o.mu.Unlock()
	if alive {
		o.changed.Wake()
	}
}

func (o *Others) set(id, leaf string, up bool) {
	s := o.servers[id]
	if s == nil {
		if !up {
			return
		}
		if len(o.servers) >= maxServers || !o.keep(o.sizeOf(id)) {
			o.Forgotten.Add(1)
			return
		}
		s = new(server)
		o.servers[id] = s
	}
	if leaf == "room" {
		s.room = up
	} else {
		s.alive = up
		if up { // tokens for robots of this server may have arrived before its own alive token
			o.changed.Wake()
		}
	}
	if !s.room && !s.alive {
		delete(o.servers, id)
		o.keep(-o.sizeOf(id))
	}
}

// sizeOf returns the memory of a token whose key contains these names.
func (o *Others) sizeOf(names ...string) int64 {
	n := tokenBytes + len(o.prefix)
	for _, name := range names {
		n += len(name)
	}
	return int64(n)
}

// keep counts n more bytes (fewer if n is negative), and reports whether the bound allows them.
func (o *Others) keep(n int64) bool {
	switch {
	case n < 0:
		o.memory.Release(memory.Replicas, -n)
	case o.bytes+n > o.memory.Limit()/memoryFraction || !o.memory.Take(memory.Replicas, n):
		return false
	}
	o.bytes += n
	return true
}

func (o *Others) hold(h wire.Held, up bool) {
	list := o.held[h.UUID]
	at := slices.Index(list, h)
	switch {
	case up && at < 0 && (o.holds >= maxHeld || !o.keep(o.sizeOf(h.UUID, h.Server, h.Mark))):
		o.Forgotten.Add(1)
	case up && at < 0:
		o.held[h.UUID] = append(list, h)
		o.holds++
	case !up && at >= 0:
		o.holds--
		o.keep(-o.sizeOf(h.UUID, h.Server, h.Mark))
		if list = slices.Delete(list, at, at+1); len(list) > 0 {
			o.held[h.UUID] = list
		} else {
			delete(o.held, h.UUID)
		}
	}
}

// Holder returns the session of a robot at another server that is alive. Of several such sessions,
// it returns the session with the newest epoch. ok is false when there is no such session.
func (o *Others) Holder(uuid string) (h wire.Held, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.holder(uuid)
}

func (o *Others) holder(uuid string) (h wire.Held, ok bool) {
	for _, held := range o.held[uuid] {
		if s := o.servers[held.Server]; s != nil && s.alive && (!ok || held.Epoch > h.Epoch) {
			h, ok = held, true
		}
	}
	return h, ok
}

// Answers reports whether this server must answer a robot that has no session here and names no server. It must answer
// if no other server holds the robot and this server has the highest weight for it. Only servers with room are
// compared, or all servers when no server has room. The server of a roll-out's new model never has to answer.
func (o *Others) Answers(uuid string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, elsewhere := o.holder(uuid); elsewhere || !wire.TakesUnnamed(o.self) {
		return false
	}
	room := false
	for _, s := range o.servers {
		room = room || s.alive && s.room
	}
	if own := o.servers[o.self]; room && (own == nil || !own.room) {
		return false
	}
	weight := wire.Rendezvous(o.self, uuid)
	for id, s := range o.servers {
		if id == o.self || !s.alive || room && !s.room || !wire.TakesUnnamed(id) {
			continue
		}
		if other := wire.Rendezvous(id, uuid); other > weight || other == weight && id > o.self {
			return false
		}
	}
	return true
}

// Loses reports whether this server must give up a robot that another server holds, too. Of two sessions of one
// process, the session with the newer epoch stays. If the sessions are of two processes, or their epochs are equal,
// the session at the server with the higher weight for the robot stays. So exactly one of the two servers gives its
// session up. The result moved reports that both sessions are of the same process, which needs no event because this
// process opened the other session itself.
func (o *Others) Loses(own, other wire.Held) (loses, moved bool) {
	moved = own.Mark == other.Mark
	if moved && own.Epoch != other.Epoch {
		return other.Epoch > own.Epoch, true
	}
	mine, theirs := wire.Rendezvous(own.Server, own.UUID), wire.Rendezvous(other.Server, own.UUID)
	return theirs > mine || theirs == mine && other.Server > own.Server, moved
}

// Count returns the number of live servers, including this one.
func (o *Others) Count() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.servers {
		if s.alive {
			n++
		}
	}
	return n
}
