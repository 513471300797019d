package router

import (
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
	"github.com/edge-rt/edge-rt/wire/zenoh/link"
)

// Client is the router's view of the session in the same process. It is an interface because the session's package
// imports this package.
type Client interface {
	// Receive queues a message for the session. It is called with the router's lock held, so it
	// neither blocks nor calls back.
	Receive(msg []byte)
	// Push gets each sample for which the session has a subscriber; Handle gets each query or reply for the session.
	// Both run on the reader of the link on which the message arrived. The lent bytes are valid until they return. The
	// parameter from is the querier.
	Push(key []byte, m *codec.Push)
	Handle(m *codec.Message, from wire.Origin)
	// Full reports whether the session's queue is full. Then a message that may be refused must be refused.
	Full() bool
	// Rerouted is called when samples may have other receivers than before.
	Rerouted()
}

// Port is an in-process link from the session to its router.
type Port struct {
	face   *face
	client Client
}

// Send processes a message of the session like a message from a link. It fails when the querier's link does not accept
// a reply.
func (p *Port) Send(m *codec.Message, how link.Delivery) error {
	if m.Kind == codec.KindResponse {
		return p.face.response(&m.Response, how.NoWait)
	}
	return p.face.handle(m)
}

// Receivers appends the links with a subscriber for key.
func (p *Port) Receivers(dst []*link.Link, key string) []*link.Link {
	r := p.face.r
	r.mu.Lock()
	defer r.mu.Unlock()
	p.face.reach(codec.DeclareSubscriber, key, anyHolder, func(to *face) { dst = append(dst, to.link) })
	return dst
}
