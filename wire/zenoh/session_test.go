package zenoh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

// listener opens a session on a free port and returns its endpoint.
func listener(t *testing.T, cfg Config) (*Session, string) {
	t.Helper()
	if cfg.Listen == nil {
		cfg.Listen = []string{"tcp/127.0.0.1:0"}
	}
	s := mustOpen(t, cfg)
	return s, s.Endpoints()[0]
}

func mustOpen(t *testing.T, cfg Config) *Session {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if testing.Verbose() && cfg.Log == nil {
		cfg.Log = func(line string) { t.Log(line) }
	}
	s, err := Open(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s.(*Session)
}

// samples collects the samples of callbacks.
type samples struct {
	mu  sync.Mutex
	all []wire.Sample
}

func (s *samples) deposit(in wire.Sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, wire.Sample{Key: in.Key, Payload: bytes.Clone(in.Payload),
		Attachment: bytes.Clone(in.Attachment)})
}

func (s *samples) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

func (s *samples) at(i int) wire.Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[i]
}

// presence collects token reports as "+key" and "-key".
type presence struct {
	mu  sync.Mutex
	all []string
}

func (p *presence) deposit(key string, alive bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	sign := "-"
	if alive {
		sign = "+"
	}
	p.all = append(p.all, sign+key)
}

func (p *presence) seen() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.all)
}

// hearing waits until s has a receiver for samples on key.
func hearing(t *testing.T, s *Session, key string) {
	t.Helper()
	rttest.Eventually(t, "a subscriber on "+key, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.up != nil && len(s.up.Receivers(nil, key)) > 0
	})
}

// Goal: a session neither receives its own publications nor answers its own queries, whether it
// listens or dials. Another session gets both, which proves that they were sent.
func TestASessionDoesNotHearItself(t *testing.T) {
	server, at := listener(t, Config{})
	client := mustOpen(t, Config{Connect: []string{at}})
	for i, ways := range [][2]*Session{{server, client}, {client, server}} {
		from, to := ways[0], ways[1]
		key := fmt.Sprintf("@self/%d", i)
		var own, others samples
		for s, got := range map[*Session]*samples{from: &own, to: &others} {
			if _, err := s.Subscribe(key, got.deposit); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Queryable(key, func(q wire.Query) {
				got.deposit(wire.Sample{Key: "asked"})
				q.Reply(key, nil)
				q.Finish()
			}); err != nil {
				t.Fatal(err)
			}
		}
		hearing(t, from, key)
		mustPublisher(t, from, key, wire.QoS{Reliable: true, Block: true}).Put([]byte("x"), nil)
		rttest.Eventually(t, "one reply", func() bool {
			replies, err := from.Get(t.Context(), key, nil, rttest.Patience)
			return err == nil && len(replies) == 1
		})
		rttest.Eventually(t, "the sample and the query", func() bool { return others.count() >= 2 })
		if own.count() != 0 {
			t.Errorf("session %d got %d of its own samples and queries", i, own.count())
		}
	}
}

func TestSamplesCross(t *testing.T) {
	a, at := listener(t, Config{})
	b := mustOpen(t, Config{Connect: []string{at}})
	for _, way := range []struct {
		name     string
		from, to *Session
	}{{"client to listener", b, a}, {"listener to client", a, b}} {
		t.Run(way.name, func(t *testing.T) {
			var got samples
			sub, err := way.to.Subscribe("@x/*/obs", got.deposit)
			if err != nil {
				t.Fatal(err)
			}
			hearing(t, way.from, "@x/r1/obs")
			pub, err := way.from.Publisher("@x/r1/obs", wire.QoS{Priority: wire.Data, Reliable: true, Block: true})
			if err != nil {
				t.Fatal(err)
			}
			var sent [][]byte
			for i, n := range []int{0, 1, 127, 128, 16000, 65400, 65535, 65536, 200_000, 1 << 20} {
				payload := bytes.Repeat([]byte{byte(i + 1)}, n)
				sent = append(sent, payload)
				if err := pub.Put(payload, []byte(fmt.Sprint("a", n))); err != nil {
					t.Fatalf("Put(%d bytes) = %v", n, err)
				}
			}
			rttest.Eventually(t, "all samples", func() bool { return got.count() == len(sent) })
			for i, want := range sent {
				s := got.at(i)
				if s.Key != "@x/r1/obs" || !bytes.Equal(s.Payload, want) ||
					string(s.Attachment) != fmt.Sprint("a", len(want)) {
					t.Errorf("sample %d = %s, %d bytes, attachment %q; want @x/r1/obs, %d bytes, %q",
						i, s.Key, len(s.Payload), s.Attachment, len(want), fmt.Sprint("a", len(want)))
				}
			}
			if err := sub.Undeclare(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestQueriesAreAnswered(t *testing.T) {
	a, at := listener(t, Config{})
	b := mustOpen(t, Config{Connect: []string{at}})
	ctx := context.Background()
	for _, way := range []struct {
		name  string
		asker *Session
		asked *Session
	}{{"client asks listener", b, a}, {"listener asks client", a, b}} {
		t.Run(way.name, func(t *testing.T) {
			for i := range 2 {
				q, err := way.asked.Queryable("@q/status", func(q wire.Query) {
					if i == 1 { // the second answers later, from another goroutine
						go func() {
							q.ReplyErr([]byte("busy"))
							q.Finish()
						}()
						return
					}
					q.Reply("@q/status", append([]byte("re:"), q.Payload()...))
					q.Finish()
				})
				if err != nil {
					t.Fatal(err)
				}
				defer q.Undeclare()
			}
			rttest.Eventually(t, "the queryable to be known", func() bool {
				r, err := way.asker.Get(ctx, "@q/*", []byte("hi"), time.Second)
				if err != nil {
					t.Fatal(err)
				}
				slices.SortFunc(r, func(a, b wire.Reply) int { return bytes.Compare(a.Payload, b.Payload) })
				return len(r) == 2 && r[0].Err && string(r[0].Payload) == "busy" && !r[1].Err &&
					string(r[1].Payload) == "re:hi" && r[1].Key == "@q/status"
			})
		})
	}
	t.Run("nobody", func(t *testing.T) {
		rttest.RealTime(t)
		began := time.Now()
		if r, err := b.Get(ctx, "@nobody", nil, 5*time.Second); len(r) != 0 || err != nil ||
			time.Since(began) > 2*time.Second {
			t.Errorf("Get(@nobody) = %v, %v after %v, want nothing at once", r, err, time.Since(began))
		}
	})
}

func TestTokensAppearAndVanish(t *testing.T) {
	a, at := listener(t, Config{})
	if _, err := a.Token("@l/server/alive"); err != nil {
		t.Fatal(err)
	}
	var seenByA, seenByB presence
	if _, err := a.SubscribeTokens("@l/**", seenByA.deposit); err != nil {
		t.Fatal(err)
	}
	b := mustOpen(t, Config{Connect: []string{at}})
	token, err := b.Token("@l/r1/alive")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.SubscribeTokens("@l/**", seenByB.deposit); err != nil {
		t.Fatal(err)
	}
	want := func(p *presence, keys ...string) {
		t.Helper()
		rttest.Eventually(t, fmt.Sprint("reports ", keys), func() bool {
			got := p.seen()
			slices.Sort(got)
			return slices.Equal(got, keys)
		})
	}
	want(&seenByA, "+@l/r1/alive", "+@l/server/alive")
	want(&seenByB, "+@l/r1/alive", "+@l/server/alive")
	for _, s := range []*Session{a, b} {
		if got, err := s.Tokens(context.Background(), "@l/*/alive", time.Second); err != nil ||
			!slices.Equal(got, []string{"@l/r1/alive", "@l/server/alive"}) {
			t.Errorf("Tokens = %v, %v", got, err)
		}
	}
	token.Undeclare()
	want(&seenByA, "+@l/r1/alive", "+@l/server/alive", "-@l/r1/alive")
	late, err := a.Token("@l/late")
	if err != nil {
		t.Fatal(err)
	}
	want(&seenByB, "+@l/late", "+@l/r1/alive", "+@l/server/alive", "-@l/r1/alive")
	late.Undeclare()
	want(&seenByB, "+@l/late", "+@l/r1/alive", "+@l/server/alive", "-@l/late", "-@l/r1/alive")
	a.Close()
	want(&seenByB, "+@l/late", "+@l/r1/alive", "+@l/server/alive", "-@l/late", "-@l/r1/alive", "-@l/server/alive")
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	free, _ := net.Listen("tcp", "127.0.0.1:0")
	free.Close()
	closed := "tcp/" + free.Addr().String()
	for _, tt := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"no endpoint", Config{}, "neither an endpoint"},
		{"no scheme", Config{Connect: []string{"localhost:7447"}},
			"want tcp/host:port, tls/host:port or unixsock-stream/path"},
		{"unsupported scheme", Config{Connect: []string{"udp/localhost:7447"}},
			"want tcp/host:port, tls/host:port or unixsock-stream/path"},
		{"no port", Config{Listen: []string{"tcp/localhost"}}, "missing port"},
		{"options", Config{Connect: []string{"tcp/localhost:7447#iface=lo"}}, "supported on tls/ only"},
		{"nobody there", Config{Connect: []string{closed}}, "nobody answers at " + closed + ": connection refused"},
		{"nobody at either", Config{Connect: []string{closed, "tcp/localhost:1"}},
			"connection refused; wire/zenoh: nobody answers at tcp/localhost:1: connection refused"},
		{"silent listener", Config{Connect: []string{"tcp/" + busy.Addr().String()}}, "tcp/" + busy.Addr().String()},
		{"port taken", Config{Listen: []string{"tcp/" + busy.Addr().String()}}, "address already in use"},
		{"lease too short", Config{Listen: []string{"tcp/127.0.0.1:0"}, Lease: time.Millisecond}, "lease 1ms"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
			defer cancel()
			s, err := Open(ctx, tt.cfg)
			if err == nil {
				s.Close()
				t.Fatal("Open succeeded")
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Open = %q, want it to say %q", err, tt.want)
			}
		})
	}
}

func TestClosedSessionRefuses(t *testing.T) {
	s, _ := listener(t, Config{})
	pub, err := s.Publisher("a", wire.QoS{})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := s.Subscribe("a", nil); !errors.Is(err, wire.ErrClosed) {
		t.Errorf("Subscribe = %v, want %v", err, wire.ErrClosed)
	}
	if err := pub.Put(nil, nil); err != nil && !errors.Is(err, wire.ErrClosed) {
		t.Errorf("Put = %v, want %v", err, wire.ErrClosed)
	}
	if err := s.Close(); !errors.Is(err, wire.ErrClosed) {
		t.Errorf("second Close = %v, want %v", err, wire.ErrClosed)
	}
}
