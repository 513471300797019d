// Package replica is a server's view of the other servers of its service, from their liveliness
// tokens: which are there, which have room, and which holds which robot. All compute the same from
// it, so that a robot which names no server is answered by exactly one.
package replica

import (
	"sync"
	"sync/atomic"

	"edgert/server/memory"
	"edgert/wire"
)

// Bounds of the memory for other servers' tokens; tokens beyond are counted.
const (
	maxServers = 256
	maxHeld    = 1 << 16
	// memoryFraction of the bound on memory is theirs at most: the rest is the robots'.
	memoryFraction = 16
	// tokenBytes are kept of a token beside its key.
	tokenBytes = 256
)

// Others are the servers of a service.
type Others struct {
	// Constant.
	prefix  string
	self    string        // our id
	memory  *memory.Bound // that tokens count in
	changed chan struct{} // cap 1: another server holds another robot

	Forgotten atomic.Uint64 // tokens beyond the bounds

	mu      sync.Mutex // guards the rest; held for a few instructions
	servers map[string]*server
	held    map[string][]wire.Held // by uuid
	holds   int                    // all in held
	bytes   int64                  // that all tokens take
}

type server struct{ alive, room bool }

// New returns an empty view of the service at prefix. self is our own id; the memory for the others
// counts in bound.
func New(prefix, self string, bound *memory.Bound) *Others {
	return &Others{prefix: prefix, self: self, memory: bound, changed: make(chan struct{}, 1),
		servers: map[string]*server{}, held: map[string][]wire.Held{}}
}

// Changed signals that another server has taken a robot, see Holder.
func (o *Others) Changed() <-chan struct{} { return o.changed }

// OnToken is the subscriber of the servers' tokens: there, room and held.
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
		o.wake()
	}
}

func (o *Others) wake() {
	select {
	case o.changed <- struct{}{}:
	default:
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
		if up { // a token of a robot may have come before
			o.wake()
		}
	}
	if !s.room && !s.alive {
		delete(o.servers, id)
		o.keep(-o.sizeOf(id))
	}
}

// sizeOf is the memory for a token with these names in its key.
func (o *Others) sizeOf(names ...string) int64 {
	n := tokenBytes + len(o.prefix)
	for _, name := range names {
		n += len(name)
	}
	return int64(n)
}

// keep counts n bytes more, or fewer, and reports whether there is room for them.
func (o *Others) keep(n int64) bool {
	switch {
	case n < 0:
		o.memory.Give(memory.Replicas, -n)
	case o.bytes+n > o.memory.Limit()/memoryFraction || !o.memory.Take(memory.Replicas, n):
		return false
	}
	o.bytes += n
	return true
}

func (o *Others) hold(h wire.Held, up bool) {
	list := o.held[h.UUID]
	at := -1
	for i := range list {
		if list[i] == h {
			at = i
		}
	}
	switch {
	case up && at < 0 && (o.holds >= maxHeld || !o.keep(o.sizeOf(h.UUID, h.Server, h.Mark))):
		o.Forgotten.Add(1)
	case up && at < 0:
		o.held[h.UUID] = append(list, h)
		o.holds++
	case !up && at >= 0:
		o.holds--
		o.keep(-o.sizeOf(h.UUID, h.Server, h.Mark))
		if list = append(list[:at], list[at+1:]...); len(list) > 0 {
			o.held[h.UUID] = list
		} else {
			delete(o.held, h.UUID)
		}
	}
}

// Holder returns the session of a robot at another server that is there, of several the one in the
// newest epoch; ok is false without one.
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

// Answers reports whether we must answer a robot without a session here that names no server: no
// other server holds it, and of those with room, or of all where no server has room, we have the
// highest weight.
func (o *Others) Answers(uuid string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, elsewhere := o.holder(uuid); elsewhere {
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
		if id == o.self || !s.alive || room && !s.room {
			continue
		}
		if other := wire.Rendezvous(id, uuid); other > weight || other == weight && id > o.self {
			return false
		}
	}
	return true
}

// Gives reports whether we give a robot up that another holds, too: of one process's sessions the
// one in the newest epoch counts, of two processes' and of those without epochs that of the server
// of more weight. moved: it is the same robot, which knows. Of two servers exactly one gives up.
func (o *Others) Gives(own, other wire.Held) (gives, moved bool) {
	moved = own.Mark == other.Mark
	if moved && own.Epoch != other.Epoch {
		return other.Epoch > own.Epoch, true
	}
	mine, theirs := wire.Rendezvous(own.Server, own.UUID), wire.Rendezvous(other.Server, own.UUID)
	return theirs > mine || theirs == mine && other.Server > own.Server, moved
}

// Count returns how many servers are there, we among them.
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
