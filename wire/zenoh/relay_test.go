package zenoh

import (
	"context"
	"encoding/binary"
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
	"github.com/edge-rt/edge-rt/wire/zenoh/link"
	"github.com/edge-rt/edge-rt/wire/zenoh/sessiontest"
)

// settled waits until the listener has processed every earlier declaration of the clients. Each client lists tokens:
// the listener processes that request after the declarations.
func settled(t testing.TB, clients ...*Session) {
	t.Helper()
	for _, c := range clients {
		rttest.Must(c.Tokens(context.Background(), "@settled", 10*time.Second))(t)
	}
}

func mustPublisher(t testing.TB, s *Session, key string, qos wire.QoS) wire.Publisher {
	t.Helper()
	return rttest.Must(s.Publisher(key, qos))(t)
}

// Goal: neither the listener nor its clients allocate for a sample between two clients, whether it fits into one batch
// or needs fragments.
func TestRelayAllocatesNothing(t *testing.T) {
	_, at := listener(t, Config{})
	from, to := mustOpen(t, patient(at)), mustOpen(t, patient(at))
	var n atomic.Int64
	rttest.Must(to.Subscribe("@relay/*", func(s wire.Sample) { n.Add(1) }))(t)
	pub := mustPublisher(t, from, "@relay/a", wire.QoS{Reliable: true, Block: true})
	settled(t, to)
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	rt.PrefillRuntime()
	for _, size := range []int{64, 4096, 100_000} {
		payload := make([]byte, size)
		put := func() {
			before := n.Load()
			rttest.Do(t, pub.Put(payload, payload[:27]))
			for n.Load() == before {
				time.Sleep(10 * time.Microsecond) // Eventually is not used, because it may allocate
			}
		}
		for range 500 {
			put()
		}
		rttest.Want(t, testing.AllocsPerRun(2000, put), 0, "%d bytes: allocations for a sample through the listener",
			size)
	}
}

// Goal: a subscriber that does not read delays no other subscriber. The others still get the samples of the same
// publisher and of another publisher, and all of them if the publishers block.
func TestStuckLinksBlockNobody(t *testing.T) {
	rttest.RealTime(t)
	for _, block := range []bool{false, true} {
		t.Run(fmt.Sprintf("block=%v", block), func(t *testing.T) {
			server, at := listener(t, Config{})
			from := mustOpen(t, patient(at))
			good := mustOpen(t, patient(at))
			other := mustOpen(t, patient(at))
			var got, gotOther atomic.Int64
			good.Subscribe("@s/good", func(wire.Sample) { got.Add(1) })
			good.Subscribe("@s/other", func(wire.Sample) { gotOther.Add(1) })
			settled(t, good)
			for range 3 {
				a := rttest.Must(dialFrom(t, "127.0.0.1", at, newZID()))(t)
				a.declare(codec.DeclareSubscriber, 1, "@s/**")
				a.stall()
			}
			rttest.Eventually(t, "the stuck ones to be known", func() bool {
				return server.router.Held().Subscribers == 2+3
			})
			qos := wire.QoS{Reliable: true, Block: block}
			bulk, fine := mustPublisher(t, from, "@s/bulk", qos), mustPublisher(t, from, "@s/good", qos)
			also := mustPublisher(t, other, "@s/other", wire.QoS{Priority: 4, Reliable: true, Block: block})
			payload := make([]byte, 200_000)
			began := time.Now()
			const n = 100 // 20 MB for each stuck subscriber, more than queues and sockets hold
			for range n {
				bulk.Put(payload, nil)
				fine.Put(payload[:8], nil)
				also.Put(payload[:8], nil)
			}
			if block {
				rttest.Eventually(t, "all samples", func() bool { return got.Load() == n && gotOther.Load() == n })
			} else {
				rttest.Eventually(t, "the stuck links to be full", func() bool {
					bulk.Put(payload, nil)
					return server.Stats().RelayDropped > 0
				})
				rttest.Eventually(t, "what may be dropped", func() bool {
					fine.Put(nil, nil)
					also.Put(nil, nil)
					return got.Load() > n/2 && gotOther.Load() > n/2
				})
			}
			took := time.Since(began)
			t.Logf("took %v, %d and %d, stats %+v", took, got.Load(), gotOther.Load(), server.Stats())
			if took > link.DefaultStall-time.Second {
				t.Errorf("others waited %v for links that do not read", took)
			}
			if server.Stats().RelayDropped == 0 {
				t.Error("nothing was dropped: the links were not congested")
			}
		})
	}
}

// Goal: two listeners that dial each other keep one link. Three listeners in a ring relay the traffic of their clients,
// and no sample arrives twice or circulates.
func TestNothingGoesRound(t *testing.T) {
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprintf("%d listeners in a ring", n), func(t *testing.T) {
			var ends []string
			for range n {
				ends = append(ends, sessiontest.FreeEndpoint(t))
			}
			var hubs, leaves []*Session
			got := make([]sessiontest.Basket, n)
			for i := range n {
				cfg := patient(ends[(i+1)%n])
				cfg.Listen = []string{ends[i]}
				hubs = append(hubs, mustOpen(t, cfg))
			}
			for i := range n {
				rttest.Eventually(t, "the ring", func() bool {
					h := hubs[i].router.Held()
					return h.Ready == n-1 && h.Links == n-1
				})
				leaves = append(leaves, mustOpen(t, patient(ends[i])))
				leaves[i].Subscribe("@ring/**", got[i].Deposit)
				leaves[i].Token(fmt.Sprintf("@ring/%d", i))
			}
			for i := range n {
				rttest.Eventually(t, "all tokens", func() bool {
					keys, _ := leaves[i].Tokens(context.Background(), "@ring/*", time.Second)
					return len(keys) == n
				})
			}
			rttest.Eventually(t, "every hub to know every leaf", func() bool {
				for _, h := range hubs {
					if h.router.Held().Subscribers != n {
						return false
					}
				}
				return true
			})
			for i := range n {
				p := mustPublisher(t, leaves[i], fmt.Sprintf("@ring/%d", i), wire.QoS{Reliable: true, Block: true})
				for range 10 {
					rttest.Do(t, p.Put([]byte("x"), nil))
				}
			}
			for i := range n {
				rttest.Eventually(t, "all samples", func() bool { return got[i].Count() >= 10*(n-1) })
			}
			time.Sleep(50 * time.Millisecond) // a second copy would arrive in this time
			for i := range n {
				rttest.Want(t, got[i].Count(), 10*(n-1), "samples at leaf %d", i)
			}
		})
	}
}

// Goal: a listener relays nothing between two peers, because they reach each other directly. It relays everything
// between a peer and a client.
func TestPeersAreNotBridged(t *testing.T) {
	_, at := listener(t, Config{})
	asPeer := func() *Session {
		cfg := patient(at)
		cfg.Listen = []string{"tcp/127.0.0.1:0"} // the listening node is a peer
		s := mustOpen(t, cfg)
		rttest.Eventually(t, "the link", s.Connected)
		return s
	}
	a := asPeer()
	b := asPeer()
	client := mustOpen(t, patient(at))
	var atB, atClient sessiontest.Basket
	b.Subscribe("@p/*", atB.Deposit)
	client.Subscribe("@p/*", atClient.Deposit)
	b.Token("@p/b")
	client.Token("@p/client")
	b.Queryable("@p/q", func(q wire.Query) { q.Reply("@p/q", []byte("b")); q.Finish() })
	client.Queryable("@p/q", func(q wire.Query) { q.Reply("@p/q", []byte("client")); q.Finish() })
	fromA, fromClient := mustPublisher(t, a, "@p/a", wire.ActionQoS), mustPublisher(t, client, "@p/c", wire.ActionQoS)
	rttest.Eventually(t, "the client to hear the peer", func() bool {
		fromA.Put(nil, nil)
		return slices.Contains(atClient.Keys(), "@p/a")
	})
	rttest.Eventually(t, "the peer to hear the client", func() bool {
		fromClient.Put(nil, nil)
		return atB.Count() > 0
	})
	if slices.Contains(atB.Keys(), "@p/a") {
		t.Error("one peer's sample was passed on to another")
	}
	rttest.Equal(t, rttest.Must(a.Tokens(context.Background(), "@p/*", time.Second))(t), []string{"@p/client"},
		"tokens that peer a lists")
	r, err := a.Get(context.Background(), "@p/q", nil, 5*time.Second)
	if err != nil || len(r) != 1 || string(r[0].Payload) != "client" {
		t.Errorf("peer a asked: %v, %v, want the client's reply alone", r, err)
	}
	if r, err = client.Get(context.Background(), "@p/q", nil, 5*time.Second); err != nil || len(r) != 1 ||
		string(r[0].Payload) != "b" {
		t.Errorf("the client asked: %v, %v, want peer b's reply", r, err)
	}
}

// Goal: the numbers that a client declares for keys are valid on its link only. When the client sends a message with
// such a number, the receivers get the message with the whole key.
func TestNumberedKeysAreWrittenOut(t *testing.T) {
	_, at := listener(t, Config{})
	other := mustOpen(t, patient(at))
	var got sessiontest.Basket
	other.Subscribe("@num/**", got.Deposit)
	other.Queryable("@num/q/*", func(q wire.Query) { q.Reply(q.Key(), []byte(q.Key())); q.Finish() })
	settled(t, other)
	a := mustAttack(t, at)
	named := func(scope uint16, suffix string) codec.Expr {
		return codec.Expr{Scope: scope, Suffix: []byte(suffix), Sender: true}
	}
	a.declare(codec.DeclareExpr, 7, "@num")
	a.send(codec.Declare{Kind: codec.DeclareExpr, ID: 9, Expr: codec.Expr{Scope: 7, Suffix: []byte("/q/x")}})
	a.send(codec.Declare{Kind: codec.DeclareToken, ID: 3, Expr: named(7, "/token")})
	a.send(codec.Declare{Kind: codec.DeclareSubscriber, ID: 4, Expr: named(7, "/sub")})
	a.send(codec.Push{Expr: named(7, "/a"),
		Data: codec.Data{Payload: []byte("1")}})
	a.send(codec.Push{Expr: named(9, ""),
		Data: codec.Data{Payload: []byte("2")}})
	a.send(codec.Request{ID: 11, Expr: named(9, "")})
	rttest.Eventually(t, "both samples", func() bool { return got.Count() == 2 })
	if got.Samples()[0].Key != "@num/a" || got.Samples()[1].Key != "@num/q/x" {
		t.Errorf("keys %s and %s, want @num/a and @num/q/x", got.Samples()[0].Key, got.Samples()[1].Key)
	}
	rttest.Eventually(t, "the token", func() bool {
		keys, _ := other.Tokens(context.Background(), "@num/*", time.Second)
		return slices.Equal(keys, []string{"@num/token"})
	})
	rttest.Do(t, mustPublisher(t, other, "@num/sub", wire.ActionQoS).Put(nil, nil))
	replied, pushed := false, false
	a.await(func(m codec.Message) bool {
		pushed = pushed || m.Kind == codec.KindPush
		if m.Kind == codec.KindResponse {
			replied = true
			rttest.Want(t, m.Response.ID, 11, "the reply's number")
		}
		return replied && pushed
	})
}

// Property: while a few clients subscribe and unsubscribe in any order, each sample reaches exactly the matching
// subscribers of the other clients, each once. The listener uses its caches all the time.
func TestRelayAgainstModel(t *testing.T) {
	hub, at := listener(t, Config{Lease: time.Minute})
	const n = 3
	var clients []*Session
	for range n {
		cfg := patient(at)
		cfg.Lease = time.Minute // a busy machine must not end the link
		clients = append(clients, mustOpen(t, cfg))
	}
	sessions := append(clients, hub)
	keys := []string{"m/a", "m/b", "m/a/b", "m/@v"}
	exprs := []string{"m/*", "m/**", "m/a", "m/a/**", "**/b", "m/@v", "m/$*a", "m/a/b"}
	type one struct {
		expr string
		got  *atomic.Int64
		sub  wire.Declaration
	}
	var pubs [][]wire.Publisher
	for _, s := range sessions {
		var own []wire.Publisher
		for _, k := range keys {
			own = append(own, mustPublisher(t, s, k, wire.QoS{Reliable: true, Block: true}))
		}
		pubs = append(pubs, own)
	}
	subs := make([][]one, len(sessions))
	rapid.Check(t, func(t *rapid.T) {
		for range rapid.IntRange(1, 6).Draw(t, "rounds") {
			i := rapid.IntRange(0, n).Draw(t, "who subscribes")
			if len(subs[i]) > 0 && rapid.Bool().Draw(t, "undeclare") {
				subs[i][0].sub.Undeclare()
				subs[i] = subs[i][1:]
			} else {
				o := one{expr: rapid.SampledFrom(exprs).Draw(t, "expr"), got: new(atomic.Int64)}
				o.sub, _ = sessions[i].Subscribe(o.expr, func(s wire.Sample) {
					o.got.Add(int64(binary.LittleEndian.Uint32(s.Payload)))
				})
				subs[i] = append(subs[i], o)
			}
			for _, c := range clients {
				c.Tokens(context.Background(), "@settled", 10*time.Second)
			}
			want := map[*atomic.Int64]int64{}
			for _, all := range subs {
				for _, o := range all {
					want[o.got] = o.got.Load()
				}
			}
			for round := range 4 {
				from, k := rapid.IntRange(0, n).Draw(t, "who puts"), rapid.IntRange(0, len(keys)-1).Draw(t, "key")
				weight := uint32(1) << (8 * (round % 3))
				pubs[from][k].Put(binary.LittleEndian.AppendUint32(nil, weight), nil)
				for who, all := range subs {
					for _, o := range all {
						if who != from && slowMatch(o.expr, keys[k]) {
							want[o.got] += int64(weight)
						}
					}
				}
			}
			for got, sum := range want {
				deadline := time.Now().Add(20 * time.Second)
				// The test polls here, because Eventually needs a testing.TB, which a *rapid.T does not implement.
				for ; got.Load() != sum; time.Sleep(100 * time.Microsecond) {
					if time.Now().After(deadline) {
						t.Fatalf("a subscriber's sum is %#x, want %#x", got.Load(), sum)
					}
				}
			}
		}
	})
}

// slowMatch evaluates the model's expressions in another way.
func slowMatch(expr, key string) bool {
	return slices.Contains(map[string][]string{
		"m/*": {"m/a", "m/b"}, "m/**": {"m/a", "m/b", "m/a/b"}, "m/a": {"m/a"}, "m/a/**": {"m/a", "m/a/b"},
		"**/b": {"m/b", "m/a/b"}, "m/@v": {"m/@v"}, "m/$*a": {"m/a"}, "m/a/b": {"m/a/b"},
	}[expr], key)
}

// answers makes the attacker declare a queryable on key and answer every query with one reply on the key reply.
// complete is the attribute of the queryable.
func (a *attacker) answers(key, reply string, complete bool) {
	a.t.Helper()
	a.send(codec.Declare{
		Kind:     codec.DeclareQueryable,
		ID:       1,
		Expr:     codec.Key(key),
		Complete: complete,
	})
	a.settle(1)
	go func() {
		for m := range a.said {
			if m.Kind == codec.KindRequest {
				a.trySend(codec.Response{ID: m.Request.ID, Expr: codec.Key(reply)})
				a.trySend(codec.Final{ID: m.Request.ID})
			}
		}
	}()
}

// asks sends a query with a target and returns the number of replies.
func (a *attacker) asks(id uint32, key string, target codec.Target) (replies int) {
	a.t.Helper()
	a.send(codec.Request{
		ID:        id,
		Target:    target,
		TimeoutMS: 20_000,
		Expr:      codec.Key(key),
	})
	a.await(func(m codec.Message) bool {
		if m.Kind == codec.KindResponse && m.Response.ID == id {
			replies++
		}
		return m.Kind == codec.KindFinal && m.Final.ID == id
	})
	return replies
}

// Goal: the target "best" selects one of the complete queryables of several clients, and "all" selects all of them.
// When the best one has ended, "best" selects another. Official queriers use these targets.
func TestTargetsAcrossClients(t *testing.T) {
	hub, at := listener(t, Config{})
	linked := func() int { return hub.router.Held().Links }
	asker := mustAttack(t, at)
	var holders []*attacker
	for range 3 {
		a := mustAttack(t, at)
		a.answers("@best/**", "@best/a", true)
		holders = append(holders, a)
	}
	mustAttack(t, at).answers("@best/a", "@best/a", false)
	id := uint32(0)
	ask := func(target codec.Target) int {
		id++
		return asker.asks(id, "@best/a", target)
	}
	for left := 3; left > 0; left-- {
		if best, complete, all := ask(codec.BestMatching), ask(codec.AllComplete), ask(codec.All); best != 1 ||
			complete != left || all != left+1 {
			t.Errorf("with %d complete ones: %d best, %d complete, %d in all", left, best, complete, all)
		}
		before := linked()
		holders[left-1].conn.Close()
		rttest.Eventually(t, "its end", func() bool { return linked() == before-1 })
		rttest.Want(t, ask(codec.AllComplete), left-1, "answers of complete queryables")
	}
	mustAttack(t, at).answers("@wide/a", "@wide/a", true)
	if all, complete := asker.asks(100, "@wide/*", codec.All),
		asker.asks(101, "@wide/*", codec.AllComplete); all != 1 || complete != 0 {
		t.Errorf("a query that is wider than a complete queryable: %d replies, %d from those complete; want 1 and 0",
			all, complete)
	}
	if best := ask(codec.BestMatching); best != 1 { // only the incomplete queryable is left
		t.Errorf("%d replies without a complete one, want 1", best)
	}
}

// Goal: when a client's link ends during a query, the listener no longer waits for the replies of that client.
func TestQueryableLeavesInTheMiddle(t *testing.T) {
	rttest.RealTime(t)
	_, at := listener(t, Config{})
	asker, asked := mustOpen(t, patient(at)), mustOpen(t, patient(at))
	waiting := make(chan struct{}, 1)
	asked.Queryable("@wait", func(wire.Query) { waiting <- struct{}{} })
	settled(t, asked)
	go func() { <-waiting; asked.Close() }()
	began := time.Now()
	if r, err := asker.Get(context.Background(), "@wait", nil, 30*time.Second); err != nil || len(r) != 0 ||
		time.Since(began) > 15*time.Second {
		t.Errorf("Get = %v, %v after %v, want nothing as soon as its queryable is gone", r, err, time.Since(began))
	}
}

// subscribeAt joins a listener as a subscriber.
func subscribeAt(t *testing.T, at, expr string) (next func() codec.Push) {
	t.Helper()
	a := mustAttack(t, at)
	a.declare(codec.DeclareSubscriber, 1, expr)
	a.settle(1)
	return func() codec.Push {
		return a.await(func(m codec.Message) bool { return m.Kind == codec.KindPush }).Push
	}
}

// Goal: a listener relays the other fields of a sample (encoding, time, attachment, QoS, deletion) between official
// nodes unchanged. A subscriber of ours gets only samples with a payload, no deletions.
func TestRelayPassesEverything(t *testing.T) {
	hub, at := listener(t, Config{})
	var own sessiontest.Basket
	rttest.Must(hub.Subscribe("@all/**", own.Deposit))(t)
	next := subscribeAt(t, at, "@all/**")
	a := mustAttack(t, at)
	stamp := codec.Timestamp{Time: 0x6682b5c680000000, ID: []byte{0x33}}
	for _, want := range []codec.Push{
		{Envelope: codec.Envelope{QoS: 1 | codec.Express}, Expr: codec.Key("@all/e"),
			Data: codec.Data{Encoding: codec.Encoding{ID: 5, Schema: []byte("x/y")}, Payload: []byte("{}"),
				Attachment: []byte("att")}},
		{Envelope: codec.Envelope{QoS: 7 | codec.Block}, Expr: codec.Key("@all/t"),
			Data: codec.Data{Timestamp: stamp, Payload: []byte("t")}},
		{Envelope: codec.Envelope{QoS: codec.DefaultQoS}, Expr: codec.Key("@all/d"),
			Data: codec.Data{Delete: true, Timestamp: stamp, Attachment: []byte("why")}},
	} {
		a.send(want)
		if p := next(); !reflect.DeepEqual(p, want) {
			t.Errorf("passed on as %+v, want %+v", p, want)
		}
	}
	if slices.Contains(own.Keys(), "@all/d") || own.Count() != 2 {
		t.Errorf("the own subscriber got %d samples, a deletion %v; want 2 and none", own.Count(),
			slices.Contains(own.Keys(), "@all/d"))
	}
}

// Goal: samples have the QoS with which the publisher was declared. The default priority is data.
func TestQoSOfPublishers(t *testing.T) {
	server, at := listener(t, Config{})
	next := subscribeAt(t, at, "@qos")
	for _, tt := range []struct {
		qos  wire.QoS
		want codec.QoS
	}{
		{wire.QoS{}, 5},
		{wire.QoS{Priority: 1, Express: true}, 1 | codec.Express},
		{wire.QoS{Priority: 7, Block: true}, 7 | codec.Block},
		{wire.ObservationQoS, 5},
		{wire.ActionQoS, 2 | codec.Express},
	} {
		rttest.Do(t, mustPublisher(t, server, "@qos", tt.qos).Put([]byte("x"), nil))
		rttest.Want(t, next().QoS, tt.want, "%+v as sent", tt.qos)
	}
}
