package zenoh

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint/endpointtest"
	"github.com/edge-rt/edge-rt/wire/zenoh/link"
)

// transports lists the endpoints that a listener may have, with the configurations of both sides.
func transports(t testing.TB) map[string]struct{ listen, dial Config } {
	ca := endpointtest.New(t)
	cert, key := ca.Issue("server", "127.0.0.1")
	robot, robotKey := ca.Issue("robot")
	plain := endpoint.Security{RootCA: ca.CA, ListenCertificate: cert, ListenKey: key}
	mutual := plain
	mutual.MutualTLS = true
	mutual.ConnectCertificate, mutual.ConnectKey = robot, robotKey
	return map[string]struct{ listen, dial Config }{
		"tcp": {listen: Config{Listen: []string{"tcp/127.0.0.1:0"}}},
		"tls": {Config{Listen: []string{"tls/127.0.0.1:0"}, TLS: plain},
			Config{TLS: endpoint.Security{RootCA: ca.CA}}},
		"mtls": {Config{Listen: []string{"tls/127.0.0.1:0"}, TLS: mutual}, Config{TLS: mutual}},
		"unix": {listen: Config{Listen: []string{"unixsock-stream/" + filepath.Join(t.TempDir(), "z.sock")}}},
	}
}

// Goal: messages from 0 bytes to 5 MB cross every transport in both directions, intact and in
// order.
func TestSizesOverEveryTransport(t *testing.T) {
	sizes := []int{0, 1, 63, 4096, 65_470, 65_480, 65_536, 131_072, 1 << 20, 5_000_000}
	for name, cfg := range transports(t) {
		t.Run(name, func(t *testing.T) {
			a, at := listener(t, cfg.listen)
			cfg.dial.Connect = []string{at}
			b := mustOpen(t, cfg.dial)
			for _, way := range [][2]*Session{{b, a}, {a, b}} {
				var mu sync.Mutex
				var sums [][32]byte
				sub, err := way[1].Subscribe("@size", func(s wire.Sample) {
					mu.Lock()
					defer mu.Unlock()
					sums = append(sums, sha256.Sum256(s.Payload))
				})
				if err != nil {
					t.Fatal(err)
				}
				hearing(t, way[0], "@size")
				pub, err := way[0].Publisher("@size", wire.QoS{Block: true, Reliable: true})
				if err != nil {
					t.Fatal(err)
				}
				for _, n := range sizes {
					if err := pub.Put(pattern(n), nil); err != nil {
						t.Fatalf("Put(%d bytes) = %v", n, err)
					}
				}
				rttest.Eventually(t, "all samples", func() bool {
					mu.Lock()
					defer mu.Unlock()
					return len(sums) == len(sizes)
				})
				for i, n := range sizes {
					if sums[i] != sha256.Sum256(pattern(n)) {
						t.Errorf("the sample of %d bytes arrived as another", n)
					}
				}
				sub.Undeclare()
			}
		})
	}
}

// Goal: over every transport, samples that wait for a slow reader can be replaced, so that its
// first sample afterwards is at most a few batches old.
func TestNewestWinsOverEveryTransport(t *testing.T) {
	const size, count = 30_000, 300
	for name, cfg := range transports(t) {
		t.Run(name, func(t *testing.T) {
			a, at := listener(t, cfg.listen)
			cfg.dial.Connect = []string{at}
			b := mustOpen(t, cfg.dial)
			hold := make(chan struct{})
			var got samples
			if _, err := a.Subscribe("@new", func(s wire.Sample) {
				<-hold
				got.deposit(wire.Sample{Payload: s.Payload[:2]})
			}); err != nil {
				t.Fatal(err)
			}
			pub, err := b.Publisher("@new", wire.ObservationQoS)
			if err != nil {
				t.Fatal(err)
			}
			payload := make([]byte, size)
			replaced := 0
			for i := range count {
				payload[0], payload[1] = byte(i), byte(i>>8)
				r, err := pub.PutLatest(payload, nil)
				if err != nil {
					t.Fatal(err)
				}
				if r {
					replaced++
				}
				time.Sleep(300 * time.Microsecond) // the link fills its socket meanwhile
			}
			close(hold)
			rttest.Eventually(t, "the newest", func() bool {
				n := got.count()
				return n > 0 && int(got.at(n - 1).Payload[0])|int(got.at(n - 1).Payload[1])<<8 == count-1
			})
			if replaced == 0 {
				t.Error("nothing was replaced while nobody read")
			}
			t.Logf("%d of %d replaced, %d kB went out before the newest", replaced, count, (got.count()-1)*size/1000)
		})
	}
}

// events collects the calls of Config.Links.
type events struct {
	mu  sync.Mutex
	all []LinkEvent
}

func (e *events) add(ev LinkEvent) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, ev)
}

func (e *events) last(up bool) (ev LinkEvent, n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, v := range e.all {
		if v.Up == up {
			ev = v
			n++
		}
	}
	return ev, n
}

// Goal: a session with several endpoints is linked to one; when that link ends, it dials the next,
// makes all declarations there, and reports the reason.
func TestFailover(t *testing.T) {
	first, at1 := listener(t, Config{})
	second, at2 := listener(t, Config{})
	var links events
	cfg := quick(freeEndpoint(t)) // where no node answers
	cfg.Connect = append(cfg.Connect, at1, at2)
	cfg.Links = links.add
	edge := mustOpen(t, cfg)
	rttest.Eventually(t, "word of the link", func() bool { _, n := links.last(true); return n > 0 })
	if ev, n := links.last(true); n != 1 || ev.Endpoint != at1 {
		t.Fatalf("linked to %+v (%d), want %s", ev, n, at1)
	}
	if _, err := edge.Token("@fo/edge"); err != nil {
		t.Fatal(err)
	}
	var seen1, seen2 presence
	first.SubscribeTokens("@fo/*", seen1.deposit)
	second.SubscribeTokens("@fo/*", seen2.deposit)
	rttest.Eventually(t, "the token at the first", func() bool { return len(seen1.seen()) == 1 })
	if len(seen2.seen()) != 0 {
		t.Error("linked to both endpoints at once: everything would arrive twice")
	}
	first.Close()
	rttest.Eventually(t, "the token at the second", func() bool { return len(seen2.seen()) == 1 })
	var closed *link.CloseError
	if ev, _ := links.last(false); !ev.Dialled {
		t.Errorf("last event %+v", ev)
	}
	links.mu.Lock()
	found := false
	for _, ev := range links.all {
		found = found || ev.Endpoint == at1 && errors.As(ev.Err, &closed) && closed.Reason == codec.CloseGeneric
	}
	links.mu.Unlock()
	if !found {
		t.Errorf("no event says that %s closed: %+v", at1, links.all)
	}
}

// Goal: an endpoint that accepts connections and then stays silent does not keep a session from the
// next one.
func TestFailoverFromSilence(t *testing.T) {
	if testing.Short() {
		t.Skip("takes the time of an attempt")
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	_, at := listener(t, Config{})
	ctx, cancel := context.WithTimeout(context.Background(), 3*attemptLimit)
	defer cancel()
	s, err := Open(ctx, Config{Connect: []string{"tcp/" + silent.Addr().String(), at}})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}

// Goal: a refused handshake gives its reason as a typed error, from Open too.
func TestRefusalsAreTyped(t *testing.T) {
	full, at := listener(t, Config{MaxSessions: 1})
	if _, err := full.Subscribe("@used", func(wire.Sample) {}); err != nil {
		t.Fatal(err)
	}
	busy := mustOpen(t, Config{Connect: []string{at}})
	if _, err := busy.Token("@busy"); err != nil {
		t.Fatal(err)
	}
	rttest.Eventually(t, "the busy client to be known", func() bool {
		keys, _ := full.Tokens(context.Background(), "@busy", time.Second)
		return len(keys) == 1
	})
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	_, err := Open(ctx, Config{Connect: []string{at}})
	var closed *link.CloseError
	if !errors.As(err, &closed) || closed.Reason != codec.CloseMaxSessions {
		t.Errorf("Open at a full listener = %v, want a CloseError with MaxSessions", err)
	}
	set := transports(t)["mtls"]
	_, at = listener(t, set.listen)
	ctx, cancel = context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err = Open(ctx, Config{Connect: []string{at}, TLS: endpoint.Security{RootCA: set.dial.TLS.RootCA}})
	var auth *endpoint.AuthError
	if !errors.As(err, &auth) || !strings.Contains(err.Error(), "refused our certificate") {
		t.Errorf("Open without a certificate = %v, want an AuthError", err)
	}
}

// Goal: a killed listener leaves its socket file, and the next listener replaces it.
func TestUnixSocketComesBack(t *testing.T) {
	at := "unixsock-stream/" + filepath.Join(t.TempDir(), "z.sock")
	server, _ := listener(t, Config{Listen: []string{at}})
	edge := mustOpen(t, quick(at))
	server.Close()
	rttest.Eventually(t, "the loss", func() bool { return !edge.Connected() })
	_, path, _ := strings.Cut(at, "/")
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	listener(t, Config{Listen: []string{at}})
	rttest.Eventually(t, "the edge to be back", edge.Connected)
}

// pattern returns n bytes that differ from position to position.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 7 % 251)
	}
	return b
}

// freeEndpoint returns an endpoint without a listener, on a port below those that the kernel gives
// to dialers: one of those may be taken before the test listens.
func freeEndpoint(t *testing.T) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(12_000)))
		if err == nil {
			defer l.Close()
			return "tcp/" + l.Addr().String()
		}
	}
	t.Fatal("no free port in a hundred")
	return ""
}
