package router

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/listen"
	"github.com/edge-rt/edge-rt/wire/zenoh/access"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
	"github.com/edge-rt/edge-rt/wire/zenoh/link"
	"github.com/edge-rt/edge-rt/wire/zenoh/remote"
)

// Bounds of the memory that one link may take.
const (
	maxDeclared = 16384 // most subscribers, and most queryables, tokens and interests
	maxRoutes   = 1024  // incoming keys whose receivers are cached
	maxQueries  = 1024  // queries that wait for their last reply
)

// face is the router's side of one link, or of the session's port.
type face struct {
	// Constant.
	r        *Router
	link     *link.Link // nil for the port
	isClient bool       // the remote sends interests, and we relay for it; otherwise both sides declare everything
	host     string     // see listen.Host
	who      identity

	outlet *outlet // reference to this link in routes

	since  time.Time
	spoke  atomic.Bool // whether the remote has sent a message
	active atomic.Bool // the remote has sent a message since expendable last ran

	// Owner: the link's reader.
	numbers remote.Numbers
	routes  map[string]*route
	spare   route                    // route for a key that is not cached
	relayed codec.Push               // the sample that is being relayed
	denials [access.NumMessages]bool // kinds of messages for which a denial was logged

	// Guarded by r.mu.
	declarations [len(remote.Kinds)]map[uint32]*entry // the remote's declarations, by the remote's numbers
	interests    map[uint32]*interest                 // a client's interests, by the client's numbers
	told         map[*entry]info                      // the entries that were announced to the remote
	// the entry whose end was announced last; several interests of the client may name this entry
	ended      *entry
	ready      bool              // a peer has sent all its first declarations
	all        uint32            // id of our interest in all declarations of the remote; 0: we have no such interest
	queries    map[uint32]*query // the remote's queries, by its numbers
	found      uint64            // number of the last search for receivers that found this link
	weight     int               // estimated bytes of the link's declarations
	everything int               // number of the remote's interests without a key
	gone       bool              // the link has ended and is forgotten
	silent     time.Time         // since when no message has come, as found by expendable; zero: not checked
	most       struct {
		told, interests int
		declarations    [len(remote.Kinds)]int
	} // largest sizes of the maps, see remote.Shrink
}

func (r *Router) newFace() *face {
	f := &face{
		r:         r,
		since:     time.Now(),
		routes:    map[string]*route{},
		interests: map[uint32]*interest{},
		told:      map[*entry]info{},
		queries:   map[uint32]*query{},
		outlet:    new(outlet),
	}
	for i := range f.declarations {
		f.declarations[i] = map[uint32]*entry{}
	}
	f.numbers.Hold, f.numbers.Counters = f.hold, r.counters
	return f
}

var errSecondLink = errors.New("already connected to this node on another link")

// Join adds a link to a peer or router that the session has dialled. The returned function run runs the link until it
// ends, and returns the reason.
func (r *Router) Join(l *link.Link) (run func() error, err error) {
	f, err := r.join(l, false, identity{})
	if err != nil {
		return nil, err
	}
	return f.run, nil
}

// join adds a link and declares everything on it.
func (r *Router) join(l *link.Link, isClient bool, who identity) (*face, error) {
	f := r.newFace()
	f.link = l
	f.isClient = isClient
	f.host = listen.Host(l.Addr())
	f.who = who
	f.outlet.link.Store(l)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, wire.ErrClosed
	}
	if l.Remote().ZID == string(r.cfg.Link.ZID) {
		return nil, errors.New("this endpoint is our own")
	}
	for _, o := range r.faces {
		if o.link.Remote().ZID == l.Remote().ZID {
			return nil, errSecondLink
		}
	}
	r.faces = append(r.faces, f)
	if !isClient {
		r.peers = append(r.peers, f)
		r.unready++
	}
	r.reroute()
	f.introduce()
	return f, nil
}

// reroute voids the cached receivers of samples. Called with mu held.
func (r *Router) reroute() {
	r.epoch.Add(1)
	r.port.client.Rerouted()
}

// introduce sends a peer the declarations that peers send to each other without an interest. Called with r.mu held.
func (f *face) introduce() {
	if f.isClient {
		return
	}
	r := f.r
	for _, k := range remote.Kinds {
		for _, e := range r.index.Matches(k, "") {
			f.show(e)
		}
	}
	// Until a peer receives this message, it sends us all samples.
	f.declare(codec.Declare{Answers: true, Kind: codec.DeclareFinal})
	if f.link.Remote().Role == codec.Router {
		// A client announces only what our interest requests. Other nodes announce everything without an interest.
		f.all = r.id()
		f.send(codec.Interest{
			ID:    f.all,
			Mode:  codec.InterestCurrentFuture,
			About: codec.AboutSubscribers | codec.AboutQueryables | codec.AboutTokens,
		}.Message(), link.Control)
	}
}

// run runs the link until it ends, and returns the reason.
func (f *face) run() error {
	err := f.link.Run(f.handle)
	f.r.leave(f)
	return err
}

// leave removes a link and everything that its remote had declared.
func (r *Router) leave(f *face) {
	r.mu.Lock()
	defer r.mu.Unlock()
	same := func(o *face) bool { return o == f }
	r.faces = slices.DeleteFunc(r.faces, same)
	r.peers = slices.DeleteFunc(r.peers, same)
	if !f.isClient && !f.ready {
		r.unready--
	}
	r.reroute()
	f.outlet.link.Store(nil)
	r.forget(f)
	for _, q := range f.queries {
		q.end(false)
	}
	for _, q := range r.queries {
		q.finish(f)
	}
	r.routeBytes.Add(-f.forgetRoutes())
}

// forget removes all declarations and interests of a link. Called with mu held.
func (r *Router) forget(f *face) {
	f.gone = true
	for id := range f.interests {
		f.disinterest(id)
	}
	for i, table := range f.declarations {
		for id := range table {
			f.drop(remote.Kinds[i], id)
		}
	}
}

// handle processes one message. Owner: the link's reader, or any goroutine of the session.
func (f *face) handle(m *codec.Message) error {
	if m.Kind != codec.KindOAM && !f.active.Load() {
		f.active.Store(true)
		f.spoke.Store(true)
	}
	switch m.Kind {
	case codec.KindPush:
		f.push(&m.Push, m.Reliable)
	case codec.KindRequest:
		f.request(&m.Request)
	case codec.KindResponse:
		f.response(&m.Response, false)
	case codec.KindFinal:
		f.r.finished(f, m.Final.ID)
	case codec.KindDeclare:
		f.declared(&m.Declare)
		f.await()
	case codec.KindInterest:
		f.asked(&m.Interest)
		f.await()
	}
	return nil
}

// await delays the reader until garbage of earlier messages has been collected.
func (f *face) await() {
	if f.link != nil {
		f.link.Throttle()
	}
}

// hold counts n more bytes that are kept for the remote. It returns false if the budget has no room for them.
func (f *face) hold(n int) bool { return f.link == nil || f.link.Charge(n) }

// send queues, without waiting, a message that must not be lost. When the queue is full, because the remote has not
// read megabytes of declarations, it closes the link. Callers may hold r.mu.
func (f *face) send(m *codec.Message, how link.Delivery) {
	msg := codec.AppendMessage(nil, m)
	if f.link == nil {
		f.r.port.client.Receive(msg)
	} else if errors.Is(f.link.Send(msg, how), link.ErrCongested) {
		f.link.Close(codec.CloseUnresponsive)
	}
}

func (f *face) declare(d codec.Declare) {
	if f.gone {
		return
	}
	f.send(d.Message(), link.Control)
}

// relays reports whether the router relays messages from f to the other link. One of the two must be a client of ours,
// because peers and routers reach each other without us.
func (f *face) relays(to *face) bool {
	return f != to && (f.isClient || to.isClient)
}
