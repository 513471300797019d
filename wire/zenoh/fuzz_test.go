package zenoh

import (
	"context"
	"net"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec/codectest"
	"github.com/edge-rt/edge-rt/wire/zenoh/link"
)

// FuzzSession lets an upstream send network messages of any bytes to a session over a real link. Property: the session
// does not panic, and keeps no state of the link when the link has ended.
func FuzzSession(f *testing.F) {
	for _, seed := range codectest.Seeds() {
		f.Add(seed, uint8(0x1e))
	}
	f.Fuzz(func(t *testing.T, msgs []byte, piece uint8) {
		cfg := Config{Connect: []string{"tcp/unused:1"}, MaxMessage: 1 << 16}
		rttest.Do(t, cfg.check())
		s := newSession(cfg)
		s.tasks.Go(s.events.run)
		s.Subscribe("@t/**", func(wire.Sample) {})
		s.Queryable("@t/*", func(q wire.Query) { q.Reply("@t/1", nil); q.Finish() })
		s.SubscribeTokens("@t/*", func(string, bool) {})
		spoken(s, msgs, int(piece))
		s.mu.Lock()
		if n := s.budget.Used(); n != 0 || s.up != nil || len(s.tokens.byID) != 0 || s.tokens.bytes != 0 ||
			len(s.inQueries) != 0 || s.index.Tree(codec.DeclareToken).Len() != 0 {
			t.Errorf("left behind: %d bytes, %d tokens of %d bytes, %d queries, %d entries", n, len(s.tokens.byID),
				s.tokens.bytes,
				len(s.inQueries), s.index.Tree(codec.DeclareToken).Len())
		}
		s.mu.Unlock()
		s.Close()
		rttest.Want(t, s.inBytes, 0, "counted bytes of queries")
	})
}

// spoken lets a router with a good handshake send msgs in pieces, and returns when the router's link has ended.
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
