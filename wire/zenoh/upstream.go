package zenoh

import (
	"errors"

	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
	"github.com/edge-rt/edge-rt/wire/zenoh/link"
	"github.com/edge-rt/edge-rt/wire/zenoh/remote"
)

// upstream is the node of which a session is a client: the node at the other end of a dialled link, or the router in
// its own process.
type upstream interface {
	// Send sends a message other than a sample.
	Send(m *codec.Message, how link.Delivery) error
	// Receivers appends the links to which samples on key are sent.
	Receivers(dst []*link.Link, key string) []*link.Link
}

// dialled is a link as an upstream.
type dialled struct {
	*link.Link
	s       *Session
	numbers remote.Numbers
}

// join makes a dialled link the upstream. The returned function run runs the link until it ends, and returns the
// reason.
func (s *Session) join(l *link.Link) (run func() error, err error) {
	d := &dialled{Link: l, s: s}
	d.numbers.Hold, d.numbers.Counters = l.Charge, &s.counters
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, wire.ErrClosed
	}
	s.up = d
	s.epoch.Add(1)
	for _, kind := range remote.Kinds {
		for _, e := range s.index.Matches(kind, "") {
			if len(e.own) > 0 {
				s.declare(e)
			}
		}
	}
	for _, w := range s.watchers {
		s.interest(w.interest())
	}
	if !s.isUp {
		s.isUp = true
		close(s.first)
	}
	return d.run, nil
}

// run runs the link until it ends. Then it removes the remote's declarations and ends the queries that wait for the
// remote.
func (d *dialled) run() error {
	err := d.Run(d.handle)
	s := d.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.up = nil
	s.epoch.Add(1)
	for id := range s.tokens.byID {
		s.dropToken(id)
	}
	for _, q := range s.inQueries {
		q.cancel()
	}
	for _, q := range s.outQueries {
		q.finish()
	}
	for _, l := range s.lists {
		l.finish()
	}
	return err
}

// Send queues a message. If the queue of declarations is full, because the remote has not read megabytes of them, it
// closes the link.
func (d *dialled) Send(m *codec.Message, how link.Delivery) error {
	err := d.Link.Send(codec.AppendMessage(nil, m), how)
	if how == link.Control && errors.Is(err, link.ErrCongested) {
		d.Close(codec.CloseUnresponsive)
	}
	return err
}

// Receivers appends the link itself for every key, so an upstream gets every sample. A router's access control may hide
// its subscribers from us, and they must get the samples nevertheless.
func (d *dialled) Receivers(dst []*link.Link, _ string) []*link.Link { return append(dst, d.Link) }

// handle handles one message. Owner: the link's reader.
func (d *dialled) handle(m *codec.Message) error {
	if m.Kind != codec.KindPush {
		d.s.handle(d, wire.Origin{}, &d.numbers, m)
		if m.Kind == codec.KindDeclare || m.Kind == codec.KindInterest {
			d.Throttle() // undeclared numbers are garbage
		}
		return nil
	}
	if key, ok := d.numbers.Expand(m.Push.Expr); ok {
		d.s.push(key, &m.Push)
	}
	return nil
}

// inbox is the session's side of the router in its process.
type inbox struct{ s *Session }

func (i inbox) Receive(msg []byte)             { i.s.events.add(event{msg: msg}) }
func (i inbox) Push(key []byte, m *codec.Push) { i.s.push(key, m) }
func (i inbox) Handle(m *codec.Message, from wire.Origin) {
	i.s.handle(i.s.router.Port(), from, &remote.Numbers{Counters: &i.s.counters}, m)
}
func (i inbox) Full() bool { return i.s.events.full() }
func (i inbox) Rerouted()  { i.s.epoch.Add(1) }

// received handles a message from the router.
func (s *Session) received(msg []byte) {
	var m codec.Message
	c := codec.NewCursor(msg)
	if codec.ParseMessage(&c, &m) == nil {
		inbox{s}.Handle(&m, wire.Origin{})
	}
}

// handle handles a message of an upstream. The parameter n has the numbers that the upstream gave to keys; origin
// is the sender of a query.
func (s *Session) handle(from upstream, origin wire.Origin, n *remote.Numbers, m *codec.Message) {
	switch m.Kind {
	case codec.KindRequest:
		if key, ok := n.Key(m.Request.Expr); ok {
			s.request(from, origin, key, &m.Request)
		}
	case codec.KindResponse:
		if key, ok := n.OptionalKey(m.Response.Expr); ok {
			s.response(key, &m.Response)
		}
	case codec.KindFinal:
		s.mu.Lock()
		if q := s.outQueries[m.Final.ID]; q != nil {
			q.finish()
		}
		s.mu.Unlock()
	case codec.KindDeclare:
		s.declared(n, &m.Declare)
	case codec.KindInterest:
		// The upstream got all declarations when we joined it. But every interest needs the message that ends its
		// answer, because official nodes wait for it.
		if m.Interest.Mode != codec.InterestFinal {
			s.mu.Lock()
			s.send(codec.Declare{
				Answers:  true,
				Interest: m.Interest.ID,
				Kind:     codec.DeclareFinal,
			}.Message())
			s.mu.Unlock()
		}
	}
}

// declared stores a token or a number for a key. It ignores subscribers and queryables, because the upstream itself
// selects the receivers.
func (s *Session) declared(n *remote.Numbers, m *codec.Declare) {
	if n.Declared(m) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch m.Kind {
	case codec.DeclareToken:
		if key, ok := n.Key(m.Expr); ok {
			s.tokenDeclared(m, key)
		}
	case codec.UndeclareToken:
		if key, ok := n.OptionalKey(m.Expr); ok {
			s.tokenUndeclared(m.ID, key)
		}
	case codec.DeclareFinal:
		if l := s.lists[m.Interest]; l != nil && m.Answers {
			l.finish()
		}
	}
}

// send sends the upstream a message that must not be lost. Without an upstream it does nothing. Called with mu held.
func (s *Session) send(m *codec.Message) {
	if s.up != nil {
		s.up.Send(m, link.Control)
	}
}

func (s *Session) interest(i codec.Interest) {
	s.send(i.Message())
}
