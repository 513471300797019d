package zenoh

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh/sessiontest"
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
	s := rttest.Must(Open(ctx, cfg))(t)
	t.Cleanup(func() { s.Close() })
	return s.(*Session)
}

// hearing waits until samples of s on key have a receiver.
func hearing(t *testing.T, s *Session, key string) {
	t.Helper()
	rttest.Eventually(t, "a subscriber on "+key, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.up != nil && len(s.up.Receivers(nil, key)) > 0
	})
}

// Goal: a session neither receives its own publications nor answers its own queries, whether it
// listens or dials. Another session receives both, which proves that they were sent.
func TestASessionDoesNotHearItself(t *testing.T) {
	server, at := listener(t, Config{})
	client := mustOpen(t, Config{Connect: []string{at}})
	for i, ways := range [][2]*Session{{server, client}, {client, server}} {
		from, to := ways[0], ways[1]
		key := fmt.Sprintf("@self/%d", i)
		var own, others sessiontest.Basket
		for s, got := range map[*Session]*sessiontest.Basket{from: &own, to: &others} {
			rttest.Must(s.Subscribe(key, got.Deposit))(t)
			rttest.Must(s.Queryable(key, func(q wire.Query) {
				got.Deposit(wire.Sample{Key: "asked"})
				q.Reply(key, nil)
				q.Finish()
			}))(t)
		}
		hearing(t, from, key)
		mustPublisher(t, from, key, wire.QoS{Reliable: true, Block: true}).Put([]byte("x"), nil)
		rttest.Eventually(t, "one reply", func() bool {
			replies, err := from.Get(t.Context(), key, nil, rttest.Patience)
			return err == nil && len(replies) == 1
		})
		rttest.Eventually(t, "the sample and the query", func() bool { return others.Count() >= 2 })
		rttest.Want(t, own.Count(), 0, "its own samples and queries at session %d", i)
	}
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	busy := rttest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
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
			rttest.Fails(t, err, tt.want)
		})
	}
}
