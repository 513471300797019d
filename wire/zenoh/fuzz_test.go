package zenoh

import (
	"context"
	"net"
	"testing"
	"time"

	"edgert/wire"
	"edgert/wire/zenoh/codec"
	"edgert/wire/zenoh/link"
)

// seeds is one message of each kind, as a client may say it.
func seeds() (all [][]byte) {
	expr := codec.Key([]byte("@t/1"))
	wide := codec.Key([]byte("@t/**"))
	for _, m := range []codec.Message{
		{Kind: codec.KindDeclare, Declare: codec.Declare{Kind: codec.DeclareToken, ID: 1, Expr: expr}},
		{Kind: codec.KindDeclare, Declare: codec.Declare{Kind: codec.UndeclareToken, ID: 1}},
		{Kind: codec.KindDeclare, Declare: codec.Declare{Kind: codec.DeclareSubscriber, ID: 1, Expr: wide}},
		{Kind: codec.KindDeclare, Declare: codec.Declare{Kind: codec.DeclareQueryable, ID: 1, Expr: expr, Complete: true, Distance: 3}},
		{Kind: codec.KindDeclare, Declare: codec.Declare{Kind: codec.UndeclareQueryable, ID: 1}},
		{Kind: codec.KindDeclare, Declare: codec.Declare{Kind: codec.DeclareExpr, ID: 1, Expr: codec.Expr{Suffix: []byte("@t")}}},
		{Kind: codec.KindDeclare, Declare: codec.Declare{Kind: codec.DeclareSubscriber, ID: 2, Expr: codec.Expr{Scope: 1, Suffix: []byte("/1"), Sender: true}}},
		{Kind: codec.KindDeclare, Declare: codec.Declare{Kind: codec.DeclareFinal, Answers: true, Interest: 1}},
		{Kind: codec.KindDeclare, Declare: codec.Declare{Kind: codec.DeclareFinal, Answers: true}},
		{Kind: codec.KindInterest, Interest: codec.Interest{ID: 1, Mode: 3, About: 0x8e, Restricted: true, Expr: wide}},
		{Kind: codec.KindInterest, Interest: codec.Interest{ID: 2, Mode: 3, About: 0x0e}},
		{Kind: codec.KindInterest, Interest: codec.Interest{ID: 1}},
		{Kind: codec.KindPush, Push: codec.Push{Expr: expr, Data: codec.Data{Payload: []byte("x")}}},
		{Kind: codec.KindRequest, Request: codec.Request{ID: 1, Expr: expr}},
		{Kind: codec.KindRequest, Request: codec.Request{ID: 2, Expr: wide, Target: codec.AllComplete}},
		{Kind: codec.KindResponse, Response: codec.Response{ID: 3, Expr: expr}},
		{Kind: codec.KindFinal, Final: codec.Final{ID: 3}},
	} {
		all = append(all, codec.AppendMessage(nil, &m))
	}
	return all
}

// bare is a session without listeners of its own, for links over pipes.
func bare(t *testing.T) *Session {
	t.Helper()
	cfg := Config{Listen: []string{"tcp/unused:0"}, MaxMessage: 1 << 16}
	if err := cfg.check(); err != nil {
		t.Fatal(err)
	}
	s := newSession(cfg)
	s.start(s.events.run)
	s.Subscribe("@t/**", func(wire.Sample) {})
	s.Queryable("@t/*", func(q wire.Query) { q.Reply("@t/1", nil); q.Finish() })
	s.SubscribeTokens("@t/*", func(string, bool) {})
	return s
}

// remoteConfig is of a node that has memory of its own.
func remoteConfig(s *Session, role codec.Role) link.Config {
	cfg := s.linkConfig(role, newZID())
	cfg.Budget = link.NewBudget(8 << 20)
	return cfg
}

// fuzzed lets a remote with a good handshake say msgs in pieces, and returns
// when its link has ended.
func fuzzed(s *Session, msgs []byte, role uint8) {
	a, b := net.Pipe()
	go func() {
		remote, err := link.Dial(context.Background(), a, remoteConfig(s, codec.Role(role%3)))
		if err != nil {
			a.Close()
			return
		}
		for rest := msgs; len(rest) > 0; {
			n := min(len(rest), 1+int(role))
			remote.Send(rest[:n], link.Control)
			rest = rest[n:]
		}
		remote.Close(codec.CloseGeneric)
		remote.Run(func(*codec.Message) error { return nil })
	}()
	var door doorstep
	s.welcome(b, plainly, &door)
}

func plainly(c net.Conn) (net.Conn, error) { return c, nil }

// forgotten checks that nothing of any link is left.
func forgotten(t *testing.T, s *Session) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.budget.Used(); n != 0 || len(s.faces)+len(s.north)+s.unready+len(s.guests)+len(s.questions)+len(s.unrestricted)+s.wanted.tree.Len() != 0 {
		t.Errorf("left behind: %d bytes, %d faces, %d to the north, %d not ready, %d guests, %d questions, %d interests",
			n, len(s.faces), len(s.north), s.unready, len(s.guests), len(s.questions), len(s.unrestricted)+s.wanted.tree.Len())
	}
	want := 0
	for i := range s.index {
		want += s.index[i].Nodes()*nodeBytes + s.index[i].Text()
	}
	for _, k := range kinds {
		for _, e := range s.matches(k, "") {
			want += entryBytes + len(e.key)
			if len(e.own) == 0 || len(e.holders) != 0 || e.south != 0 {
				t.Errorf("%d on %q is still declared %d times by links", k, e.key, len(e.holders))
			}
		}
	}
	if got := s.memory(); got != want || s.routeBytes.Load() != 0 {
		t.Errorf("%d bytes of declarations are counted, want %d; %d of routes, want 0", got, want, s.routeBytes.Load())
	}
}

// FuzzSession feeds network messages of any bytes to a session through a real
// link. Property: no panic, and nothing of the link is left behind.
func FuzzSession(f *testing.F) {
	for _, seed := range seeds() {
		f.Add(seed, uint8(0x1e))
	}
	f.Fuzz(func(t *testing.T, msgs []byte, role uint8) {
		s := bare(t)
		fuzzed(s, msgs, role)
		forgotten(t, s)
		s.Close()
	})
}

// FuzzRelay does the same beside a client that has something of every kind and
// wants to know everything, so that what comes is relayed. Property: that client
// is served to the end, and nothing of either is left behind.
func FuzzRelay(f *testing.F) {
	for i, seed := range seeds() {
		f.Add(seed, uint8(0xff-i%3))
		f.Add(append(seed, seeds()[12]...), uint8(0xff-i%3))
	}
	f.Fuzz(func(t *testing.T, msgs []byte, role uint8) {
		s := bare(t)
		a, b := net.Pipe()
		var door doorstep
		s.start(func() { s.welcome(b, plainly, &door) })
		client, err := link.Dial(context.Background(), a, remoteConfig(s, codec.Client))
		if err != nil {
			t.Fatal(err)
		}
		said, ended := make(chan uint32, 16), make(chan error, 1)
		go func() {
			ended <- client.Run(func(m *codec.Message) error {
				switch {
				case m.Kind == codec.KindRequest:
					final := codec.Message{Kind: codec.KindFinal, Final: codec.Final{ID: m.Request.ID}}
					client.Send(codec.AppendMessage(nil, &final), link.Control)
				case m.Kind == codec.KindDeclare && m.Declare.Kind == codec.DeclareFinal:
					said <- m.Declare.Interest
				}
				return nil
			})
		}()
		for _, seed := range seeds() {
			if k := codec.Kind(codec.ID(seed[0])); k == codec.KindDeclare || k == codec.KindInterest {
				client.Send(seed, link.Control)
			}
		}
		await := func(id uint32) {
			m := codec.Message{Kind: codec.KindInterest, Interest: codec.Interest{ID: id, Mode: codec.InterestCurrent, About: codec.AboutTokens}}
			client.Send(codec.AppendMessage(nil, &m), link.Control)
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
		fuzzed(s, msgs, role)
		await(1001)
		client.Close(codec.CloseGeneric)
		<-ended
		s.Close()
		forgotten(t, s)
	})
}
