// Package router is a listener's side of its links. It is a Zenoh router for the clients that dial it, and a peer of
// other listeners and routers.
//
// It answers its clients' interests, and relays samples, queries with their replies, and tokens between a client and
// all other nodes. Peers and routers announce to each other all their own and their clients' declarations, whichever
// side dialled. The router relays nothing between two peers or routers, because they reach each other directly. So no
// message arrives twice or circulates.
//
// A relayed message keeps its QoS. If a link has no room, the router drops a droppable sample at once, and a blocking
// sample when the link has sent nothing for half a second. From then on it also drops blocking samples at once, until
// the link sends again. The traffic of other links does not wait.
//
// The session of the same process is one more client, at a Port instead of a link. The reader of the link on which a
// sample arrives passes the sample to the session. The session sends its own samples straight to the links with a
// subscriber (Port.Receivers).
//
// Files in the order of the data: accept.go accepts connections and evicts links, face.go is one
// link, guard.go its rights, declared.go its remote's declarations, entry.go all declarations on one key and the links
// to which they are announced, interest.go the clients' interests, route.go samples, query.go queries and replies,
// port.go the session.
package router

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/edge-rt/edge-rt/wire/zenoh/access"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint"
	"github.com/edge-rt/edge-rt/wire/zenoh/link"
	"github.com/edge-rt/edge-rt/wire/zenoh/remote"
)

// Config is the router's identity and its rules of admission.
type Config struct {
	Link        link.Config // configuration of all links; its Role is Peer, its Budget bounds all links together
	MaxSessions int         // accepted links

	// Rights returns the rights of a link whose TLS certificate has these names (the DNS names of its subjectAltName
	// or, without these, its common name). A nil result allows everything. A link without a certificate may do
	// everything, too.
	Rights func(names []string) *access.Rights

	// Log gets a line when a link is accepted, when it ends, and when a connection is refused. Event is called for the
	// same events; err is nil when a link is accepted. Neither may block.
	Log   func(line string)
	Event func(from string, err error)
}

// Router passes messages between the links that were accepted or joined.
type Router struct {
	// Constant after New.
	cfg    Config
	ctx    context.Context // ends with Stop
	cancel context.CancelFunc
	port   *Port

	tasks sync.WaitGroup // every goroutine of the router

	counters *link.Counters // atomic: the counters of Config.Link

	// epoch changes whenever a subscriber or a link begins or ends. A cached route is valid for one epoch.
	epoch      atomic.Uint64
	routeBytes atomic.Int64 // the memory of all links' cached routes

	// Guarded by mu, which is never held across a blocking call.
	mu      sync.Mutex
	closed  bool
	lastID  uint32
	search  uint64  // number of the last search for links; see face.found
	faces   []*face // all links except the session's
	peers   []*face // the faces that are not clients
	unready int     // peers whose declarations are not complete yet
	guests  guests

	queries    map[uint32]*query
	queryBytes int // memory of all queries that are not finished

	// The declarations of all links, and the interests in changes of declarations.
	index         remote.Index[*entry]
	declaredBytes int // the memory of entries and interests, without the trees
	watchers      watchers
	aggregates    int // interests that join matching entries
}

// New makes a router with the session as its first client.
func New(cfg Config, client Client) *Router {
	r := &Router{
		cfg:      cfg,
		counters: cfg.Link.Counters,
		guests:   guests{byZID: map[string]visit{}},
		queries:  map[uint32]*query{},
		watchers: watchers{everything: map[*interest]struct{}{}},
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.port = &Port{face: r.newFace(), client: client}
	r.port.face.isClient = true
	return r
}

// Port returns the port on which the session of this process sends.
func (r *Router) Port() *Port { return r.port }

// Serve accepts the connections of l until Stop.
func (r *Router) Serve(l *endpoint.Listener) { r.tasks.Go(func() { r.accept(l) }) }

// Stop sends a Close on every link. Afterwards Wait returns when all goroutines of the router have ended; the caller
// must close the listeners.
func (r *Router) Stop() {
	r.mu.Lock()
	r.closed = true
	for _, q := range r.queries {
		q.end(false)
	}
	faces := slices.Clone(r.faces)
	r.mu.Unlock()
	r.cancel()
	for _, f := range faces {
		f.link.Close(codec.CloseGeneric)
	}
}

// Wait waits for the end of the router's goroutines.
func (r *Router) Wait() { r.tasks.Wait() }

// Connected reports whether there is a link.
func (r *Router) Connected() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.faces) > 0
}

// id returns a new number, which no other entry, query or interest of the router has. Called with mu held.
func (r *Router) id() uint32 {
	r.lastID++
	return r.lastID
}

// Held is the size of the router's present state.
type Held struct {
	// Links are the accepted and joined links, Peers the peers among them, Ready the peers whose first declarations are
	// complete
	Links, Peers, Ready             int
	Subscribers, Queryables, Tokens int // declarations of links; those of the session do not count
	Interests, Queries              int
	Bytes                           int   // estimated memory of all declarations and interests
	RouteBytes                      int64 // memory of the cached routes
	Entries                         int   // keys with a declaration, including those of the session
}

// Held returns the size of the router's present state.
func (r *Router) Held() (h Held) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h = Held{
		Links:      len(r.faces),
		Peers:      len(r.peers),
		Ready:      len(r.peers) - r.unready,
		Queries:    len(r.queries),
		Bytes:      r.memory(),
		RouteBytes: r.routeBytes.Load(),
	}
	for _, kind := range remote.Kinds {
		h.Entries += r.index.Tree(kind).Len()
	}
	for _, f := range r.faces {
		for i, into := range []*int{&h.Subscribers, &h.Queryables, &h.Tokens} {
			*into += len(f.declarations[i])
		}
		h.Interests += len(f.interests)
	}
	return h
}
