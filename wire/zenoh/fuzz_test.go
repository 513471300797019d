package zenoh

import (
	"context"
	"net"
	"testing"

	"edgert/wire"
	"edgert/wire/zenoh/codec"
	"edgert/wire/zenoh/link"
)

// seeds is one message of each kind, as an upstream may say it.
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

// FuzzSession lets an upstream say network messages of any bytes to a session
// through a real link. Property: no panic, and nothing of the link is left behind.
func FuzzSession(f *testing.F) {
	for _, seed := range seeds() {
		f.Add(seed, uint8(0x1e))
	}
	f.Fuzz(func(t *testing.T, msgs []byte, piece uint8) {
		cfg := Config{Connect: []string{"tcp/unused:1"}, MaxMessage: 1 << 16}
		if err := cfg.check(); err != nil {
			t.Fatal(err)
		}
		s := newSession(cfg)
		s.tasks.Go(s.events.run)
		s.Subscribe("@t/**", func(wire.Sample) {})
		s.Queryable("@t/*", func(q wire.Query) { q.Reply("@t/1", nil); q.Finish() })
		s.SubscribeTokens("@t/*", func(string, bool) {})
		spoken(s, msgs, int(piece))
		s.mu.Lock()
		if n := s.budget.Used(); n != 0 || s.up != nil || len(s.tokens.byID) != 0 || s.tokens.bytes != 0 || len(s.inQueries) != 0 || s.tree(codec.DeclareToken).Len() != 0 {
			t.Errorf("left behind: %d bytes, %d tokens of %d bytes, %d queries, %d entries", n, len(s.tokens.byID), s.tokens.bytes,
				len(s.inQueries), s.tree(codec.DeclareToken).Len())
		}
		s.mu.Unlock()
		s.Close()
		if s.inBytes != 0 {
			t.Errorf("%d bytes of queries are counted", s.inBytes)
		}
	})
}

// spoken lets a router with a good handshake say msgs in pieces, and returns
// when its link has ended.
func spoken(s *Session, msgs []byte, piece int) {
	a, b := net.Pipe()
	go func() {
		cfg := s.linkConfig(codec.Router, newZID())
		cfg.Budget = link.NewBudget(8 << 20)
		router, err := link.Accept(a, cfg, func(link.Remote) (codec.Reason, bool) { return 0, true })
		if err != nil {
			a.Close()
			return
		}
		for rest := msgs; len(rest) > 0; {
			n := min(len(rest), 1+piece)
			router.Send(rest[:n], link.Control)
			rest = rest[n:]
		}
		router.Close(codec.CloseGeneric)
		router.Run(func(*codec.Message) error { return nil })
	}()
	l, err := link.Dial(context.Background(), b, s.linkConfig(codec.Client, newZID()))
	if err != nil {
		return
	}
	if run, err := s.join(l); err == nil {
		run()
	}
}
