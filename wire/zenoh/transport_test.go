package zenoh

import (
	"context"
	"errors"
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
	"github.com/edge-rt/edge-rt/wire/zenoh/sessiontest"
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

// Goal: a session with several endpoints has a link to one of them. When this link ends, the session dials the next
// endpoint, makes all declarations there, and reports the reason.
func TestFailover(t *testing.T) {
	first, at1 := listener(t, Config{})
	second, at2 := listener(t, Config{})
	var links events
	cfg := quick(sessiontest.FreeEndpoint(t)) // where no node answers
	cfg.Connect = append(cfg.Connect, at1, at2)
	cfg.Links = links.add
	edge := mustOpen(t, cfg)
	rttest.Eventually(t, "word of the link", func() bool { _, n := links.last(true); return n > 0 })
	if ev, n := links.last(true); n != 1 || ev.Endpoint != at1 {
		t.Fatalf("linked to %+v (%d), want %s", ev, n, at1)
	}
	rttest.Must(edge.Token("@fo/edge"))(t)
	var seen1, seen2 sessiontest.Diary
	first.SubscribeTokens("@fo/*", seen1.Deposit)
	second.SubscribeTokens("@fo/*", seen2.Deposit)
	rttest.Eventually(t, "the token at the first", func() bool { return len(seen1.Entries()) == 1 })
	if len(seen2.Entries()) != 0 {
		t.Error("linked to both endpoints at once: everything would arrive twice")
	}
	first.Close()
	rttest.Eventually(t, "the token at the second", func() bool { return len(seen2.Entries()) == 1 })
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

// Goal: when an endpoint accepts connections and then stays silent, the session dials the next endpoint.
func TestFailoverFromSilence(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes the time of an attempt")
	}
	silent := rttest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer silent.Close()
	_, at := listener(t, Config{})
	ctx, cancel := context.WithTimeout(context.Background(), 3*attemptLimit)
	defer cancel()
	s := rttest.Must(Open(ctx, Config{Connect: []string{"tcp/" + silent.Addr().String(), at}}))(t)
	s.Close()
}

// Goal: the reason of a refused handshake is a typed error, also in the error of Open.
func TestRefusalsAreTyped(t *testing.T) {
	full, at := listener(t, Config{MaxSessions: 1})
	rttest.Must(full.Subscribe("@used", func(wire.Sample) {}))(t)
	busy := mustOpen(t, Config{Connect: []string{at}})
	rttest.Must(busy.Token("@busy"))(t)
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
	if !errors.As(err, &auth) || !rttest.Says(err, "refused our certificate") {
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
	stale := rttest.Must(net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}))(t)
	stale.SetUnlinkOnClose(false)
	stale.Close()
	rttest.Must(os.Stat(path))(t)
	listener(t, Config{Listen: []string{at}})
	rttest.Eventually(t, "the edge to be back", edge.Connected)
}
