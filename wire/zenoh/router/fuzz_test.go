package router

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec/codectest"
	"github.com/edge-rt/edge-rt/wire/zenoh/link"
	"github.com/edge-rt/edge-rt/wire/zenoh/remote"
)

// session is a Client with a subscriber on @t/**, a queryable on @t/* and an interest in the tokens on @t/*.
type session struct{ port *Port }

func (s *session) Receive([]byte)           {}
func (s *session) Push([]byte, *codec.Push) {}
func (s *session) Handle(m *codec.Message, _ wire.Origin) {
	if m.Kind == codec.KindRequest {
		s.send(codec.Final{ID: m.Request.ID})
	}
}
func (s *session) Full() bool { return false }
func (s *session) Rerouted()  {}

func (s *session) send(part codec.Part) { s.port.Send(part.Message(), link.Control) }

// newRouter is a router for links over pipes.
func newRouter() *Router {
	s := new(session)
	r := New(Config{
		Link: link.Config{
			ZID:        zid(1),
			Role:       codec.Peer,
			Lease:      time.Minute,
			KeepAlive:  time.Second,
			MaxMessage: 1 << 16,
			Budget:     link.NewBudget(4<<20 + 1<<16),
			Counters:   new(link.Counters),
		},
		MaxSessions: 256,
		Log:         func(string) {},
		Event:       func(string, error) {},
	}, s)
	s.port = r.Port()
	s.send(codec.Declare{Kind: codec.DeclareSubscriber, ID: 1, Expr: codec.Key("@t/**")})
	s.send(codec.Declare{Kind: codec.DeclareQueryable, ID: 2, Expr: codec.Key("@t/*")})
	s.send(codec.Interest{ID: 3, Mode: codec.InterestCurrentFuture,
		About: codec.AboutTokens, Restricted: true, Expr: codec.Key("@t/*")})
	return r
}

var lastZID byte

func zid(n byte) []byte { return []byte{n, 1} }

// dial connects a node to the router over a pipe. The router's end runs until the link ends; then ended is closed.
func dial(r *Router, role codec.Role) (l *link.Link, ended chan struct{}, err error) {
	a, b := net.Pipe()
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		r.carry(b, func(c net.Conn) (net.Conn, error) { return c, nil }, new(halfOpen))
	}()
	cfg := r.cfg.Link
	lastZID++
	cfg.Role = role
	cfg.ZID = zid(2 + lastZID%200)
	cfg.Budget = link.NewBudget(8 << 20)
	if l, err = link.Dial(context.Background(), a, cfg); err != nil {
		a.Close()
	}
	return l, ended, err
}

// fuzzed lets a remote with a good handshake send msgs in pieces, and returns when the remote's link has ended.
func fuzzed(r *Router, msgs []byte, role uint8) {
	remote, ended, err := dial(r, codec.Role(role%3))
	if err == nil {
		for rest := msgs; len(rest) > 0; {
			n := min(len(rest), 1+int(role))
			remote.Send(rest[:n], link.Control)
			rest = rest[n:]
		}
		remote.Close(codec.CloseGeneric)
		remote.Run(func(*codec.Message) error { return nil })
	}
	<-ended
}

// forgotten checks that the router keeps the state of the session only, and none of any link.
func forgotten(t *testing.T, r *Router, before Held) {
	t.Helper()
	rttest.Want(t, r.Held(), before, "left behind")
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.cfg.Link.Budget.Used(); n != 0 || r.unready != 0 || len(r.guests.byZID) != 0 || r.queryBytes != 0 ||
		len(r.watchers.everything) != 0 {
		t.Errorf("left behind: %d bytes, %d not ready, %d guests, %d bytes of queries, %d interests in everything",
			n, r.unready, len(r.guests.byZID), r.queryBytes, len(r.watchers.everything))
	}
	for _, k := range remote.Kinds {
		for _, e := range r.index.Matches(k, "") {
			if len(e.holders) != 1 || e.clients != 1 {
				t.Errorf("%d on %q is declared by %d links", k, e.key, len(e.holders))
			}
		}
	}
}

// FuzzLink sends network messages of any bytes to a router over a real link. Property: the router does not panic, and
// keeps no state of the link when the link has ended.
func FuzzLink(f *testing.F) {
	for _, seed := range codectest.Seeds() {
		f.Add(seed, uint8(0x1e))
	}
	f.Fuzz(func(t *testing.T, msgs []byte, role uint8) {
		r := newRouter()
		before := r.Held()
		fuzzed(r, msgs, role)
		forgotten(t, r, before)
		r.Stop()
	})
}

// FuzzRelay does the same as FuzzLink while another client has a declaration of every kind and an interest in
// everything, so that the router relays the messages. Property: the router serves this client to the end, and
// afterwards it keeps no state of either link.
func FuzzRelay(f *testing.F) {
	for i, seed := range codectest.Seeds() {
		f.Add(seed, uint8(0xff-i%3))
		f.Add(append(seed, codectest.Push()...), uint8(0xff-i%3))
	}
	f.Fuzz(func(t *testing.T, msgs []byte, role uint8) {
		r := newRouter()
		before := r.Held()
		client, gone, err := dial(r, codec.Client)
		rttest.Do(t, err)
		said, ended := make(chan uint32, 16), make(chan error, 1)
		go func() {
			ended <- client.Run(func(m *codec.Message) error {
				switch {
				case m.Kind == codec.KindRequest:
					final := codec.Final{ID: m.Request.ID}.Message()
					client.Send(codec.AppendMessage(nil, final), link.Control)
				case m.Kind == codec.KindDeclare && m.Declare.Kind == codec.DeclareFinal:
					said <- m.Declare.Interest
				}
				return nil
			})
		}()
		for _, seed := range codectest.Seeds() {
			if k := codec.Kind(codec.ID(seed[0])); k == codec.KindDeclare || k == codec.KindInterest {
				client.Send(seed, link.Control)
			}
		}
		await := func(id uint32) {
			m := codec.Interest{ID: id, Mode: codec.InterestCurrent, About: codec.AboutTokens}.Message()
			client.Send(codec.AppendMessage(nil, m), link.Control)
			for {
				select {
				case got := <-said:
					if got == id {
						return
					}
				case err := <-ended:
					t.Fatalf("the good client's link ended: %v", err)
				case <-time.After(10 * time.Second):
					t.Fatal("the good client is not answered any more")
				}
			}
		}
		await(1000)
		fuzzed(r, msgs, role)
		await(1001)
		client.Close(codec.CloseGeneric)
		<-ended
		<-gone
		forgotten(t, r, before)
		r.Stop()
	})
}
