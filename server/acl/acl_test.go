package acl

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh"
	"github.com/edge-rt/edge-rt/wire/zenoh/access"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint/endpointtest"
)

const prefix = "@lerobot/m/main/s"

// fleet is a listener with mutual TLS, like that of lean-server.
type fleet struct {
	t       *testing.T
	ca      *endpointtest.Authority
	service *Service
	server  wire.Session
	at      []string

	mu  sync.Mutex
	log []string // guarded by mu
}

func newFleet(t *testing.T) *fleet {
	f := &fleet{t: t, ca: endpointtest.New(t), service: &Service{Prefix: prefix, Routers: []string{"boss"}}}
	cert, key := f.ca.Issue("server", "localhost", "127.0.0.1")
	f.server = f.open(zenoh.Config{Listen: []string{"tls/localhost:0"}, Rights: f.service.Rights,
		TLS: endpoint.Security{RootCA: f.ca.CA, ListenCertificate: cert, ListenKey: key, MutualTLS: true},
		Log: func(line string) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.log = append(f.log, line)
		}})
	f.at = f.server.(*zenoh.Session).Endpoints()
	return f
}

func (f *fleet) open(cfg zenoh.Config) wire.Session {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 10*time.Second)
	defer cancel()
	s := rttest.OrPanic(zenoh.Open(ctx, cfg))
	f.t.Cleanup(func() { s.Close() })
	return s
}

// robot dials the fleet with a certificate of this common name and these DNS names.
func (f *fleet) robot(name string, dns ...string) wire.Session {
	f.t.Helper()
	cert, key := f.ca.Issue(name, dns...)
	return f.open(zenoh.Config{Connect: f.at, TLS: endpoint.Security{RootCA: f.ca.CA, ConnectCertificate: cert,
		ConnectKey: key}})
}

func (f *fleet) put(s wire.Session, key string) {
	f.t.Helper()
	p := rttest.OrPanic(s.Publisher(key, wire.QoS{Reliable: true, Block: true}))
	rttest.PanicOn(p.Put([]byte(key), nil))
}

// ask returns the text of the only reply.
func (f *fleet) ask(s wire.Session, key string, payload []byte) (text string, failed bool) {
	f.t.Helper()
	replies, err := s.Get(f.t.Context(), key, payload, 10*time.Second)
	if err != nil || len(replies) != 1 {
		f.t.Fatalf("Get %s = %v, %v, want one reply", key, replies, err)
	}
	return string(replies[0].Payload), replies[0].Err
}

// A certificate's name bounds the rights of its link. The listener counts each denied message, and logs the denial
// once.
func TestACertificateIsOneRobot(t *testing.T) {
	f := newFleet(t)
	var heard, stolen atomic.Int32
	last := make(chan string, 100)
	f.server.Subscribe(prefix+"/*/obs", func(s wire.Sample) { heard.Add(1); last <- s.Key })
	f.server.Queryable(prefix+"/session", func(q wire.Query) {
		q.Reply(prefix+"/session", []byte(q.From().Name))
		q.Finish()
	})
	f.server.Queryable(prefix+"/*/session", func(q wire.Query) { q.Reply(q.Key(), []byte("own key")); q.Finish() })
	f.server.Queryable(prefix+"/*/reset", func(q wire.Query) { q.Reply(q.Key(), []byte("reset")); q.Finish() })
	f.server.Queryable(prefix+"/status", func(q wire.Query) { q.Reply(q.Key(), []byte("fine")); q.Finish() })
	var tokens sync.Map
	f.server.SubscribeTokens(prefix+"/**", func(key string, alive bool) { tokens.Store(key, alive) })
	f.server.Token(wire.ServerAliveKey(prefix))

	a, b := f.robot("arm-a"), f.robot("host", "arm-b", "arm-b-2")
	a.Subscribe(prefix+"/arm-b/action", func(wire.Sample) { stolen.Add(1) })
	a.Subscribe(prefix+"/**", func(s wire.Sample) {
		if s.Key != prefix+"/arm-a/action" { // the robot's own chunks arrive at the subscription below
			stolen.Add(1)
		}
	})
	var own atomic.Int32
	a.Subscribe(prefix+"/arm-a/action", func(wire.Sample) { own.Add(1) })
	a.Token(prefix + "/arm-b/alive")
	a.Token(prefix + "/arm-a/7/alive")
	a.Queryable(prefix+"/session", func(q wire.Query) { stolen.Add(1); q.Finish() })

	for _, tt := range []struct {
		name    string
		key     string
		payload []byte
		denied  bool
		want    string
	}{
		{"status", prefix + "/status", nil, false, "fine"},
		{"own reset", prefix + "/arm-a/reset", nil, false, "reset"},
		{"another's reset", prefix + "/arm-b/reset", nil, true, "arm-a"},
		{"everybody's reset", prefix + "/*/reset", nil, true, "arm-a"},
		{"own open", prefix + "/session", wire.Append(nil, &wire.SessionOpen{ClientUUID: "arm-a"}), false,
			"certificate arm-a"},
		{"another's open", prefix + "/session", wire.Append(nil, &wire.SessionOpen{ClientUUID: "arm-b"}),
			true, `"arm-b"`},
		{"own close", prefix + "/session", wire.Append(nil, &wire.SessionClose{ClientUUID: "arm-a"}), false,
			"certificate arm-a"},
		{"another's close", prefix + "/session", wire.Append(nil, &wire.SessionClose{ClientUUID: "arm-b"}),
			true, `"arm-b"`},
		{"an open for arm-a's second edge", prefix + "/session",
			wire.Append(nil, &wire.SessionOpen{ClientUUID: "arm-a-2"}), true, `"arm-a-2"`},
		{"own open at the own key", prefix + "/arm-a/session",
			wire.Append(nil, &wire.SessionOpen{ClientUUID: "arm-a"}), false, "own key"},
		{"another's open at its key", prefix + "/arm-b/session",
			wire.Append(nil, &wire.SessionOpen{ClientUUID: "arm-b"}), true, "arm-a"},
		{"what is no session query", prefix + "/session", []byte("junk"), true, "access denied"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text, failed := f.ask(a, tt.key, tt.payload)
			if failed != tt.denied || !strings.Contains(text, tt.want) || failed != access.IsDenied([]byte(text)) {
				t.Errorf("reply %q, an error: %v; want %q, an error: %v", text, failed, tt.want, tt.denied)
			}
		})
	}
	for range 3 {
		f.put(a, prefix+"/arm-b/obs")
	}
	f.put(a, prefix+"/arm-a/obs")
	for _, key := range []string{prefix + "/arm-a/obs", prefix + "/arm-b/obs", prefix + "/arm-b-2/obs"} {
		if key != prefix+"/arm-a/obs" {
			f.put(b, key)
		}
		select {
		case got := <-last:
			rttest.Want(t, got, key, "the key at the server")
		case <-time.After(10 * time.Second):
			t.Fatalf("%s was not heard", key)
		}
	}
	f.put(f.server, prefix+"/arm-b/action")
	rttest.Eventually(t, "arm-a's own action", func() bool {
		f.put(f.server, prefix+"/arm-a/action")
		return own.Load() > 0
	})
	rttest.Eventually(t, "arm-a's own token", func() bool {
		up, ok := tokens.Load(prefix + "/arm-a/7/alive")
		return ok && up.(bool)
	})
	if _, forged := tokens.Load(prefix + "/arm-b/alive"); forged || stolen.Load() != 0 || heard.Load() != 3 {
		t.Errorf("a token of arm-b's: %v, heard of others: %d, observations %d; want none, 0, 3", forged, stolen.Load(),
			heard.Load())
	}
	rttest.Want(t, len(rttest.Must(a.Tokens(t.Context(), wire.ServerAliveAny, 10*time.Second))(t)), 1,
		"servers that arm-a sees")
	rttest.Want(t, len(rttest.Must(b.Tokens(t.Context(), prefix+"/*/*/alive", 10*time.Second))(t)), 0,
		"tokens of others that arm-b sees")
	for m, want := range map[access.Message]uint64{access.Put: 3, access.DeclareSubscriber: 2, access.Query: 7,
		access.DeclareQueryable: 1, access.LivelinessToken: 1, access.LivelinessQuery: 1} {
		rttest.Want(t, f.service.Denied[m].Load(), want, "denied %v", m)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	told := 0
	for _, line := range f.log {
		if strings.Contains(line, "publish on") && strings.Contains(line, "arm-a") {
			told++
		}
	}
	rttest.Want(t, told, 1, "lines about three denied samples in %q", f.log)
}

// A router's name allows the traffic of every robot; a name that is not a robot's id allows no
// robot's traffic.
func TestRoutersCarryAnybody(t *testing.T) {
	f := newFleet(t)
	f.server.Queryable(prefix+"/session", func(q wire.Query) {
		q.Reply(prefix+"/session", []byte("from "+q.From().Name))
		q.Finish()
	})
	open := wire.Append(nil, &wire.SessionOpen{ClientUUID: "arm-b"})
	if text, failed := f.ask(f.robot("boss"), prefix+"/session", open); failed || text != "from " {
		t.Errorf("a router's query = %q, %v, want it answered and the asker unknown", text, failed)
	}
	if text, failed := f.ask(f.robot("not an id"), prefix+"/session", open); !failed {
		t.Errorf("a certificate that names no robot is answered %q", text)
	}
}
