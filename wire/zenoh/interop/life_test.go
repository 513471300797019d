package interop

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim/netfault"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint/endpointtest"
	"github.com/edge-rt/edge-rt/wire/zenoh/sessiontest"
	"github.com/edge-rt/edge-rt/wire/zenoh/zenohtest"
)

// Goal: the keep-alives of both sides keep an idle link up for several leases. When the official process is killed, its
// token vanishes.
func TestLinkOutlivesItsLeases(t *testing.T) {
	over(t, func(t *testing.T, v version) {
		var lines atomic.Int32
		left := ours(t, zenoh.Config{Listen: []string{"tcp/127.0.0.1:0"}, Lease: 400 * time.Millisecond,
			Log: func(string) {
				lines.Add(1)
			}})
		node := v.start(t)
		theirs := open(t, node, zenohtest.Config{Mode: "client", Connect: left.Endpoints(),
			More: map[string]any{"transport/link/tx/lease": 400}})
		rttest.Must(theirs.Token("@idle"))(t)
		var seen diary
		rttest.Must(left.SubscribeTokens("@idle", seen.Deposit))(t)
		seen.reads(t, "+@idle")
		before := lines.Load()
		time.Sleep(2 * time.Second) // both sides are idle meanwhile
		rttest.Want(t, lines.Load()-before, 0, "log lines in five idle leases")
		seen.reads(t, "+@idle")
		node.Kill()
		seen.reads(t, "+@idle", "-@idle")
	})
}

// everything has one session's declarations of every kind, and the publisher and querier of another session that use
// them.
type everything struct {
	samples, tokens diary
	pub             wire.Publisher
	asker           wire.Session
	root            string // common prefix of the keys
}

// declareAll declares a subscriber, a watcher, a token and a queryable on b, and their counterparts
// on a.
func declareAll(t *testing.T, root string, a, b wire.Session) *everything {
	t.Helper()
	e := &everything{asker: a, root: root}
	rttest.Must(b.Subscribe(root+"/**", e.samples.sample))(t)
	rttest.Must(b.Queryable(root+"/q", func(q wire.Query) { q.Reply(root+"/q", q.Payload()); q.Finish() }))(t)
	rttest.Must(b.Token(root + "/b"))(t)
	rttest.Must(a.SubscribeTokens(root+"/**", e.tokens.Deposit))(t)
	e.pub = rttest.Must(a.Publisher(root+"/p", wire.ActionQoS))(t)
	return e
}

func (e *everything) flows(t *testing.T, when string) {
	t.Helper()
	before := len(e.samples.Entries())
	rttest.Eventually(t, "samples "+when, func() bool {
		e.pub.Put([]byte(when), nil)
		return len(e.samples.Entries()) > before
	})
	rttest.Eventually(t, "replies "+when, func() bool {
		r, err := e.asker.Get(context.Background(), e.root+"/q", []byte(when), time.Second)
		return err == nil && len(r) == 1 && string(r[0].Payload) == when
	})
}

// Goal: after the router was killed and started again on the same port, all declarations work again
// without any call. While the router was down, all tokens had vanished.
func TestRouterKilledAndRestarted(t *testing.T) {
	over(t, func(t *testing.T, v version) {
		router, at := v.router(t)
		a, b := ours(t, zenoh.Config{Connect: []string{at}}), ours(t, zenoh.Config{Connect: []string{at}})
		e := declareAll(t, "@r", a, b)
		e.flows(t, "before")
		e.tokens.reads(t, "+@r/b")
		router.Kill()
		rttest.Eventually(t, "the loss to be noticed", func() bool { return !a.Connected() && !b.Connected() })
		rttest.Want(t, e.pub.Put(nil, nil), wire.ErrDisconnected, "Put without a link")
		e.tokens.reads(t, "+@r/b", "-@r/b")
		open(t, v.start(t), zenohtest.Config{Mode: "router", Listen: []string{at}})
		e.flows(t, "after")
		e.tokens.reads(t, "+@r/b", "-@r/b", "+@r/b")
	})
}

// Goal: when a token ends that is older than an official watcher without history, our listener reports the end to the
// watcher, as an official router does.
func TestWatcherWithoutHistory(t *testing.T) {
	over(t, func(t *testing.T, v version) {
		_, official := v.router(t)
		for name, at := range map[string]string{"official": official,
			"ours": ours(t, zenoh.Config{Listen: []string{"tcp/127.0.0.1:0"}}).Endpoints()[0]} {
			t.Run(name, func(t *testing.T) {
				holder := ours(t, zenoh.Config{Connect: []string{at}})
				token := rttest.Must(holder.Token("@w/before"))(t)
				watcher := open(t, v.start(t), zenohtest.Config{Mode: "client", Connect: []string{at}})
				there := func() bool {
					keys, err := watcher.Tokens(t.Context(), "@w/**", time.Second)
					return err == nil && len(keys) == 1
				}
				rttest.Eventually(t, "the token", there)
				var seen diary
				rttest.Must(watcher.SubscribeNewTokens("@w/**", seen.Deposit))(t)
				rttest.Eventually(t, "an answer, which arrives after the subscription", there)
				mark := rttest.Must(holder.Token("@w/mark"))(t)
				seen.reads(t, "+@w/mark")
				token.Undeclare()
				mark.Undeclare()
				seen.reads(t, "+@w/mark", "-@w/before", "-@w/mark")
			})
		}
	})
}

// Goal: when an official client or peer is killed with SIGKILL, its token, its subscriber and its queryable vanish, and
// a new client or peer can take its place.
func TestTheirsKilled(t *testing.T) {
	rttest.RealTime(t)
	over(t, func(t *testing.T, v version) {
		for _, mode := range []string{"client", "peer"} {
			t.Run(mode, func(t *testing.T) {
				left := ours(t, zenoh.Config{Listen: []string{"tcp/127.0.0.1:0"}})
				node := v.start(t)
				e := declareAll(t, "@r", left, open(t, node, zenohtest.Config{Mode: mode, Connect: left.Endpoints()}))
				e.flows(t, "before")
				e.tokens.reads(t, "+@r/b")
				node.Kill()
				e.tokens.reads(t, "+@r/b", "-@r/b")
				began := time.Now()
				if r, err := left.Get(context.Background(), "@r/q", nil, patience); len(r) != 0 || err != nil ||
					time.Since(began) > patience/2 {
					t.Errorf("Get = %v, %v after %v, want nothing at once", r, err, time.Since(began))
				}
				again := open(t, v.start(t), zenohtest.Config{Mode: mode, Connect: left.Endpoints()})
				rttest.Must(again.Token("@r/b"))(t)
				e.tokens.reads(t, "+@r/b", "-@r/b", "+@r/b")
			})
		}
	})
}

// Goal: when a session of ours vanishes without a Close, as after SIGKILL, the official side ends it as soon as the
// connection ends. When a session of ours goes silent, as after a pulled cable, the official side ends it at the end of
// the lease.
func TestOursVanishes(t *testing.T) {
	over(t, func(t *testing.T, v version) {
		_, at := v.router(t)
		theirs := open(t, v.start(t), zenohtest.Config{Mode: "client", Connect: []string{at}})
		for _, how := range []string{"killed", "silent"} {
			t.Run(how, func(t *testing.T) {
				var seen diary
				rttest.Must(theirs.SubscribeTokens("@v/"+how, seen.Deposit))(t)
				token := "@v/" + how
				way := proxy(t, at)
				gone := ours(t, zenoh.Config{Connect: []string{way.Endpoint()}, Lease: 500 * time.Millisecond})
				rttest.Must(gone.Token(token))(t)
				seen.reads(t, "+"+token)
				if how == "silent" {
					way.Set(netfault.CutUp | netfault.CutDown)
					way.Refuse(true)
				} else {
					way.Set(netfault.Unplugged)
				}
				seen.reads(t, "+"+token, "-"+token)
				way.Set(netfault.Whole)
				way.Cut()
				seen.reads(t, "+"+token, "-"+token, "+"+token)
			})
		}
	})
}

// Goal: a router with mutual TLS and rules by common name allows a robot exactly the messages in its rules, and refuses
// a wrong certificate.
func TestMutualTLSAndAccessControl(t *testing.T) {
	over(t, func(t *testing.T, v version) {
		ca := endpointtest.New(t)
		routerCert, routerKey := ca.Issue("router", "localhost", "127.0.0.1")
		at := "tls/localhost:" + sessiontest.FreeEndpoint(t)[len("tcp/127.0.0.1:"):]
		open(t, v.start(t), zenohtest.Config{Mode: "router", Listen: []string{at}, More: map[string]any{
			"transport/link/tls": map[string]any{"enable_mtls": true, "root_ca_certificate": ca.CA,
				"listen_certificate": routerCert, "listen_private_key": routerKey},
			"access_control": fleetRules,
		}})
		dial := func(name string) zenoh.Config {
			cert, key := ca.Issue(name)
			return zenoh.Config{Connect: []string{at}, TLS: endpoint.Security{RootCA: ca.CA, ConnectCertificate: cert,
				ConnectKey: key}}
		}
		robot := ours(t, dial("r1"))
		boss := ours(t, dial("operator"))
		stranger := ours(t, dial("r2"))
		t.Run("allowed", func(t *testing.T) { allowed(t, robot, boss) })
		t.Run("denied", func(t *testing.T) { denied(t, robot, boss, stranger) })
		for name, cfg := range map[string]zenoh.Config{
			"no certificate":       {Connect: []string{at}, TLS: endpoint.Security{RootCA: ca.CA}},
			"another's signature":  foreign(t, at, ca.CA),
			"an unknown authority": {Connect: []string{at}, TLS: endpoint.Security{RootCA: endpointtest.New(t).CA}},
		} {
			t.Run(name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
				defer cancel()
				s, err := zenoh.Open(ctx, cfg)
				var refused *endpoint.AuthError
				if err == nil {
					s.Close()
				}
				if !errors.As(err, &refused) {
					t.Errorf("Open = %v, want an AuthError", err)
				}
			})
		}
	})
}

// Goal: the official implementation and ours trust each other over mutual TLS,
// each as the listener and as the dialler.
func TestOverTLS(t *testing.T) {
	over(t, func(t *testing.T, v version) {
		ca := endpointtest.New(t)
		cert, key := ca.Issue("node", "localhost", "127.0.0.1")
		mine := endpoint.Security{
			RootCA:             ca.CA,
			ConnectCertificate: cert,
			ConnectKey:         key,
			ListenCertificate:  cert,
			ListenKey:          key,
			MutualTLS:          true,
		}
		theirs := map[string]any{"transport/link/tls": map[string]any{"enable_mtls": true, "root_ca_certificate": ca.CA,
			"listen_certificate": cert, "listen_private_key": key, "connect_certificate": cert,
			"connect_private_key": key}}
		t.Run("they listen", func(t *testing.T) {
			at := "tls/localhost:" + sessiontest.FreeEndpoint(t)[len("tcp/127.0.0.1:"):]
			node := open(t, v.start(t), zenohtest.Config{Mode: "router", Listen: []string{at}, More: theirs})
			a := ours(t, zenoh.Config{Connect: []string{at}, TLS: mine})
			declareAll(t, "@there", a, node).flows(t, "there")
			declareAll(t, "@back", node, a).flows(t, "back")
		})
		t.Run("we listen", func(t *testing.T) {
			a := ours(t, zenoh.Config{Listen: []string{"tls/localhost:0"}, TLS: mine})
			node := open(t, v.start(t), zenohtest.Config{Mode: "client", Connect: a.Endpoints(), More: theirs})
			declareAll(t, "@there", a, node).flows(t, "there")
			declareAll(t, "@back", node, a).flows(t, "back")
		})
	})
}

func foreign(t *testing.T, at, ca string) zenoh.Config {
	cert, key := endpointtest.New(t).Issue("r1")
	return zenoh.Config{Connect: []string{at}, TLS: endpoint.Security{RootCA: ca, ConnectCertificate: cert,
		ConnectKey: key}}
}

// fleetRules allow r1 to use the keys below fleet/r1, the operator all keys below fleet, and all other nodes no key.
var fleetRules = func() map[string]any {
	every := []string{"put", "delete", "declare_subscriber", "query", "reply", "declare_queryable",
		"liveliness_token", "liveliness_query", "declare_liveliness_subscriber"}
	rule := func(id, keys string, messages []string) map[string]any {
		return map[string]any{"id": id, "permission": "allow", "flows": []string{"ingress", "egress"},
			"messages": messages, "key_exprs": []string{keys}}
	}
	return map[string]any{"enabled": true, "default_permission": "deny",
		"rules": []any{rule("r1", "fleet/r1/**", every), rule("operators", "fleet/**", every)},
		"subjects": []any{map[string]any{"id": "r1", "cert_common_names": []string{"r1"}},
			map[string]any{"id": "operator", "cert_common_names": []string{"operator"}}},
		"policies": []any{map[string]any{"rules": []string{"r1"}, "subjects": []string{"r1"}},
			map[string]any{"rules": []string{"operators"}, "subjects": []string{"operator"}}},
	}
}()

func allowed(t *testing.T, robot, boss wire.Session) {
	var got, tokens diary
	rttest.Must(boss.Subscribe("fleet/r1/**", got.sample))(t)
	rttest.Must(boss.SubscribeTokens("fleet/**", tokens.Deposit))(t)
	rttest.Must(robot.Token("fleet/r1/alive"))(t)
	rttest.Must(robot.Queryable("fleet/r1/status", func(q wire.Query) {
		q.Reply("fleet/r1/status", []byte("fine"))
		q.Finish()
	}))(t)
	tokens.reads(t, "+fleet/r1/alive")
	pub := rttest.Must(robot.Publisher("fleet/r1/state", wire.ActionQoS))(t)
	rttest.Eventually(t, "the sample", func() bool { pub.Put([]byte("here"), nil); return len(got.Entries()) > 0 })
	rttest.Eventually(t, "the reply", func() bool {
		r, err := boss.Get(context.Background(), "fleet/r1/status", nil, time.Second)
		return err == nil && len(r) == 1 && string(r[0].Payload) == "fine"
	})
}

func denied(t *testing.T, robot, boss, stranger wire.Session) {
	var leaked diary
	// The robot may not receive the samples of other robots, and a stranger may not publish on the robot's keys.
	rttest.Must(robot.Subscribe("fleet/**", leaked.sample))(t)
	rttest.Must(boss.Subscribe("fleet/r1/forged", leaked.sample))(t)
	rttest.Must(stranger.Token("fleet/r1/false"))(t)
	rttest.Must(stranger.Queryable("fleet/r1/secret", func(q wire.Query) {
		q.Reply("fleet/r1/secret", []byte("no"))
		q.Finish()
	}))(t)
	put := func(s wire.Session, key string) {
		t.Helper()
		pub := rttest.Must(s.Publisher(key, wire.QoS{Reliable: true, Block: true}))(t)
		rttest.Do(t, pub.Put([]byte(key), nil))
		pub.Undeclare()
	}
	put(boss, "fleet/r2/cmd")
	put(stranger, "fleet/r1/forged")
	began := time.Now()
	if r, err := stranger.Get(context.Background(), "fleet/r1/status", nil, patience); len(r) != 0 || err != nil ||
		time.Since(began) > patience/2 {
		t.Errorf("a stranger's question: %v, %v after %v, want nothing at once", r, err, time.Since(began))
	}
	rttest.Equal(t, rttest.Must(stranger.Tokens(context.Background(), "fleet/**", patience))(t),
		[]string{"fleet/r1/false"}, "tokens that a stranger sees")
	rttest.Want(t, len(rttest.Must(boss.Tokens(context.Background(), "fleet/r1/*", patience))(t)), 1,
		"tokens that the operator sees")
	rttest.Want(t, len(rttest.Must(boss.Get(context.Background(), "fleet/r1/secret", nil, patience))(t)), 0,
		"answers of a stranger's queryable")
	time.Sleep(200 * time.Millisecond) // any sample that must not arrive would have arrived by then
	rttest.Want(t, len(leaked.Entries()), 0, "samples that pass though denied")
}
