package zenoh

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"edgert/wire"
	"edgert/wire/zenoh/codec"
	"edgert/wire/zenoh/keyexpr"
	"edgert/wire/zenoh/link"
)

// Bounds of what one link may make us remember.
const (
	maxDeclared    = 16384   // subscribers, queryables, tokens and interests, of each
	maxNumbers     = 4096    // numbered keys
	maxNumberBytes = 1 << 20 // of numbered keys
	numberBytes    = 64      // what one costs beside its text
	maxRoutes      = 1024    // incoming keys whose receivers are remembered
	maxInquiries   = 1024    // queries that wait for their last reply
)

// kind is what the other end of a link is to us.
type kind uint8

const (
	upstream    kind = iota // we are its client
	guestClient             // it is our client: it asks by interests, and we relay for it
	peer                    // both of us are no clients: everyone declares everything
)

// face is one link as the session sees it.
type face struct {
	// Constant.
	s    *Session
	link *link.Link
	kind kind
	host string // see link.Host

	outlet *outlet // what routes know of it

	since  time.Time
	spoke  atomic.Bool // the remote has sent a message
	active atomic.Bool // and one since expendable looked

	// Owner: the link's reader.
	exprs     map[uint16]string // numbers that the remote declared for keys
	exprBytes int
	mostExprs int // see slim
	routes    map[string]*route
	spare     route      // of a key that is not remembered
	joined    []byte     // a numbered key and its suffix
	relayed   codec.Push // on its way to other links

	// Guarded by s.mu.
	declarations [len(kinds)]map[uint32]*entry // what the remote has declared, by its numbers
	interests    map[uint32]*interest          // of a guestClient
	told         map[*entry]info               // what the remote knows of
	ready        bool                          // a peer has declared all it had at the start
	world        uint32                        // our interest in all that a router knows, 0 for none
	inquiries    map[uint32]*inquiry
	aimed        uint64    // the route that it was added to last
	weight       int       // about what its declarations take
	everything   int       // how many of its interests name no key
	gone         bool      // nothing of it is remembered any more
	silent       time.Time // since when expendable knows of no message; zero: it never looked
	most         struct {
		told, interests int
		declarations    [len(kinds)]int
	} // see slim
}

var errSecondLink = errors.New("already connected to this node on another link")

// join adds a link to the session and declares everything on it.
func (s *Session) join(l *link.Link, k kind) (*face, error) {
	f := &face{
		s: s, link: l, kind: k, host: link.Host(l.Addr()), since: time.Now(),
		exprs: map[uint16]string{}, routes: map[string]*route{},
		interests: map[uint32]*interest{}, told: map[*entry]info{}, inquiries: map[uint32]*inquiry{},
	}
	for i := range f.declarations {
		f.declarations[i] = map[uint32]*entry{}
	}
	f.outlet = new(outlet)
	f.outlet.link.Store(l)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, wire.ErrClosed
	}
	if l.Remote().ZID == string(s.zid) {
		return nil, errors.New("this endpoint is our own")
	}
	for _, o := range s.faces {
		if o.link.Remote().ZID == l.Remote().ZID {
			return nil, errSecondLink
		}
	}
	s.faces = append(s.faces, f)
	if k != guestClient {
		s.north = append(s.north, f)
	}
	if k == peer {
		s.unready++
	}
	s.epoch.Add(1)
	s.retarget("")
	f.introduce()
	if !s.isUp {
		s.isUp = true
		close(s.first)
	}
	return f, nil
}

// introduce declares what the remote does not ask for. Called with s.mu held.
func (f *face) introduce() {
	if f.kind == guestClient {
		return
	}
	s := f.s
	for _, k := range kinds {
		for _, e := range s.matches(k, "") {
			f.show(e)
		}
	}
	if f.kind == peer {
		// Until it has seen this a peer holds us for interested in everything.
		f.declare(codec.Declare{Answers: true, Kind: codec.DeclareFinal})
	}
	switch {
	case f.kind == upstream:
		for _, w := range s.watchers {
			f.interest(w.interest())
		}
	case f.mustBeAsked():
		f.world = s.id()
		f.interest(codec.Interest{ID: f.world, Mode: codec.InterestCurrentFuture,
			About: codec.AboutSubscribers | codec.AboutQueryables | codec.AboutTokens})
	}
}

// mustBeAsked reports whether the remote tells of nothing but what interests ask
// for: an upstream, which is asked for what we want, and a router that is our
// peer, which is asked for everything on behalf of our clients. Others declare
// all they have by themselves.
func (f *face) mustBeAsked() bool {
	return f.kind == upstream || f.link.Remote().Role == codec.Router
}

// run carries the link until it ends, and says why.
func (f *face) run() error {
	err := f.link.Run(f.handle)
	f.s.leave(f)
	return err
}

// leave forgets a link and all that its remote had declared.
func (s *Session) leave(f *face) {
	s.mu.Lock()
	defer s.mu.Unlock()
	same := func(o *face) bool { return o == f }
	s.faces = slices.DeleteFunc(s.faces, same)
	s.north = slices.DeleteFunc(s.north, same)
	if f.kind == peer && !f.ready {
		s.unready--
	}
	s.epoch.Add(1)
	s.retarget("")
	f.outlet.link.Store(nil)
	s.forget(f)
	for _, q := range f.inquiries {
		q.cancel()
	}
	for _, q := range s.questions {
		q.finish(f)
	}
	for _, l := range s.lists {
		l.finish(f)
	}
	s.routeBytes.Add(-f.forgetRoutes())
}

// forget drops everything that a link has declared or wants to know, for good.
// Called with mu held.
func (s *Session) forget(f *face) {
	f.gone = true
	for id := range f.interests {
		f.disinterest(id)
	}
	for i, table := range f.declarations {
		for id := range table {
			f.drop(kinds[i], id)
		}
	}
}

// handle acts on one message. Owner: the link's reader.
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
		f.response(&m.Response)
	case codec.KindFinal:
		f.s.finished(f, m.Final.ID)
	case codec.KindDeclare:
		f.declared(&m.Declare)
		f.link.Throttle() // what comes and goes is garbage
	case codec.KindInterest:
		f.asked(&m.Interest)
		f.link.Throttle()
	}
	return nil
}

// send queues a message that may not be lost, without waiting. A remote that
// lets megabytes of declarations pile up is closed. Callers may hold s.mu.
func (f *face) send(m *codec.Message, how link.Delivery) {
	if err := f.link.Send(codec.AppendMessage(nil, m), how); errors.Is(err, link.ErrCongested) {
		f.link.Close(codec.CloseUnresponsive)
	}
}

func (f *face) declare(d codec.Declare) {
	if f.gone {
		return
	}
	d.Envelope.QoS = codec.ControlQoS
	f.send(&codec.Message{Kind: codec.KindDeclare, Declare: d}, link.Control)
}

func (f *face) interest(i codec.Interest) {
	i.Envelope.QoS = codec.ControlQoS
	f.send(&codec.Message{Kind: codec.KindInterest, Interest: i}, link.Control)
}

// expand returns the text of an expression, lent until the next call. ok is
// false when its number was never declared or the whole is too long.
// Owner: the link's reader.
//
//rt:noalloc
func (f *face) expand(e codec.Expr) (key []byte, ok bool) {
	if e.Scope == 0 {
		return e.Suffix, len(e.Suffix) > 0
	}
	// Numbers of ours are never meant: we declare none.
	head, ok := f.exprs[e.Scope]
	if !ok || !e.Sender || len(head)+len(e.Suffix) > keyexpr.MaxBytes {
		return nil, false
	}
	f.joined = append(append(f.joined[:0], head...), e.Suffix...)
	return f.joined, true
}

// key is expand for messages that are rare: a checked string of its own.
func (f *face) key(e codec.Expr) (string, bool) {
	b, ok := f.expand(e)
	if !ok || len(b) > keyexpr.MaxBytes || keyexpr.Check(string(b)) != nil {
		f.s.refused.Keys.Add(1)
		return "", false
	}
	return string(b), true
}
