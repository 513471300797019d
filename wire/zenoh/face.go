package zenoh

import (
	"errors"
	"slices"

	"edgert/wire"
	"edgert/wire/zenoh/codec"
	"edgert/wire/zenoh/keyexpr"
	"edgert/wire/zenoh/link"
)

// Bounds of what one link may make us remember.
const (
	maxDeclared  = 1024 // subscribers, queryables, tokens, interests and numbered keys, of each
	maxRoutes    = 1024 // incoming keys whose subscribers are remembered
	maxInquiries = 1024 // queries that wait for their last reply
)

// kind is what the other end of a link is to us.
type kind uint8

const (
	upstream    kind = iota // we dialled it and are its client
	guestClient             // it dialled us as a client: it asks by interests
	guestPeer               // it dialled us as a peer or router: everyone declares everything
)

// face is one link as the session sees it.
type face struct {
	// Constant.
	s    *Session
	link *link.Link
	kind kind

	// Owner: the link's reader.
	exprs  map[uint16]string // numbers that the remote declared for keys
	routes map[string]*route
	joined []byte // a numbered key and its suffix
	texts  texts

	// Guarded by s.mu.
	subscribers map[uint32]string
	queryables  map[uint32]string
	tokens      map[uint32]string
	interests   map[uint32]*interest
	told        map[uint32]bool // own objects that a guestClient knows of
	ready       bool            // a guestPeer has declared all it had at the start
	inquiries   map[uint32]*inquiry
	gone        bool
}

// join adds a link to the session and declares everything on it.
func (s *Session) join(l *link.Link, k kind) (*face, error) {
	f := &face{
		s: s, link: l, kind: k,
		exprs: map[uint16]string{}, routes: map[string]*route{},
		subscribers: map[uint32]string{}, queryables: map[uint32]string{}, tokens: map[uint32]string{},
		interests: map[uint32]*interest{}, told: map[uint32]bool{}, inquiries: map[uint32]*inquiry{},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, wire.ErrClosed
	}
	if k == upstream && l.Remote().ZID == string(s.zid) {
		return nil, errors.New("this endpoint is our own")
	}
	s.faces = append(s.faces, f)
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
	for _, o := range f.s.objects {
		f.declare(codec.Declare{Kind: o.kind, ID: o.id, Expr: codec.Key([]byte(o.key)), Complete: o.complete()})
	}
	if f.kind == guestPeer {
		// Until it has seen this a peer holds us for interested in everything.
		f.declare(codec.Declare{Answers: true, Kind: codec.DeclareFinal})
	}
	if !f.mustBeAsked() {
		return
	}
	for _, w := range f.s.watchers {
		f.interest(w.interest())
	}
	if f.kind == upstream {
		for p := range f.s.publishers {
			f.interest(p.interest())
		}
	}
}

// mustBeAsked reports whether the remote tells of tokens only when an interest asks:
// an upstream, and a router that dialled us. Others declare theirs by themselves.
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
	f.gone = true
	s.faces = slices.DeleteFunc(s.faces, func(o *face) bool { return o == f })
	s.retarget("")
	for _, key := range f.tokens {
		s.vanish(key)
	}
	for _, q := range f.inquiries {
		q.cancel()
	}
	for _, g := range s.gets {
		g.finish(f)
	}
	for _, l := range s.lists {
		l.finish(f)
	}
}

// handle acts on one message. Owner: the link's reader.
func (f *face) handle(m *codec.Message) error {
	switch m.Kind {
	case codec.KindPush:
		f.push(&m.Push, m.Reliable)
	case codec.KindRequest:
		f.request(&m.Request)
	case codec.KindResponse:
		f.response(&m.Response)
	case codec.KindFinal:
		f.s.finishGet(f, m.Final.ID)
	case codec.KindDeclare:
		f.declared(&m.Declare)
	case codec.KindInterest:
		f.asked(&m.Interest)
	}
	return nil
}

// send queues a message that may not be lost, without waiting. A remote that
// lets megabytes of declarations pile up is closed. Callers may hold s.mu.
func (f *face) send(m *codec.Message, how link.How) {
	if err := f.link.Send(codec.AppendMessage(nil, m), how); errors.Is(err, link.ErrCongested) {
		f.link.Close(codec.CloseUnresponsive)
	}
}

func (f *face) declare(d codec.Declare) {
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
