package zenoh

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
	"github.com/edge-rt/edge-rt/wire/zenoh/link"
	"github.com/edge-rt/edge-rt/wire/zenoh/router"
	"github.com/edge-rt/edge-rt/wire/zenoh/sessiontest"
)

// attacker is a node with a valid handshake that then sends arbitrary messages.
type attacker struct {
	t    *testing.T
	link *link.Link
	conn net.Conn
	said chan codec.Message // the victim's messages; only declarations and samples have valid slices
	end  chan error
}

// dialFrom opens the link of an attacker at an address of this machine.
func dialFrom(t *testing.T, ip, at string, zid []byte) (*attacker, error) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	conn := rttest.Must(d.Dial("tcp", strings.TrimPrefix(at, "tcp/")))(t)
	t.Cleanup(func() { conn.Close() })
	l, err := link.Dial(t.Context(), conn, link.Config{ZID: zid, Role: codec.Client, Lease: time.Minute,
		KeepAlive: time.Second, MaxMessage: 1 << 20, Budget: link.NewBudget(16 << 20), Counters: new(link.Counters)})
	return &attacker{t: t, link: l, conn: conn, said: make(chan codec.Message, 10_000), end: make(chan error, 1)}, err
}

// attackFrom attacks from another address of this machine.
func attackFrom(t *testing.T, ip, at string, zid []byte) (*attacker, error) {
	t.Helper()
	a, err := dialFrom(t, ip, at, zid)
	if err == nil {
		go func() { a.end <- a.link.Run(a.receive) }()
	}
	return a, err
}

func attack(t *testing.T, at string, zid []byte) (*attacker, error) {
	t.Helper()
	return attackFrom(t, "127.0.0.1", at, zid)
}

func mustAttack(t *testing.T, at string) *attacker {
	t.Helper()
	return rttest.Must(attack(t, at, newZID()))(t)
}

// receive keeps a copy of a message, because the buffer of the message is reused.
func (a *attacker) receive(m *codec.Message) error {
	kept := *m
	kept.Declare.Expr.Suffix = bytes.Clone(m.Declare.Expr.Suffix)
	if m.Kind == codec.KindPush {
		p := &kept.Push
		p.Expr.Suffix = bytes.Clone(p.Expr.Suffix)
		p.Data.Payload, p.Data.Attachment = bytes.Clone(p.Data.Payload), bytes.Clone(p.Data.Attachment)
		p.Data.Encoding.Schema = bytes.Clone(p.Data.Encoding.Schema)
		p.Data.Timestamp.ID = bytes.Clone(p.Data.Timestamp.ID)
	}
	select {
	case a.said <- kept:
	default:
	}
	return nil
}

// await returns the victim's next message for which the function is returns true.
func (a *attacker) await(is func(codec.Message) bool) codec.Message {
	a.t.Helper()
	for {
		select {
		case m := <-a.said:
			if is(m) {
				return m
			}
		case err := <-a.end:
			a.t.Fatalf("the link ended: %v", err)
		case <-time.After(10 * time.Second):
			a.t.Fatal("no answer in 10 s")
		}
	}
}

// stall keeps the link open until the test ends, without reading from it.
func (a *attacker) stall() {
	hold := make(chan struct{})
	a.t.Cleanup(func() { close(hold) })
	go a.link.Run(func(*codec.Message) error { <-hold; return nil })
}

func (a *attacker) trySend(part codec.Part) error {
	return a.link.Send(codec.AppendMessage(nil, part.Message()), link.Delivery{QoS: codec.RequestQoS, Reliable: true})
}

func (a *attacker) send(part codec.Part) { rttest.PanicOn(a.trySend(part)) }

func (a *attacker) declare(kind codec.DeclareKind, id uint32, key string) {
	a.t.Helper()
	a.send(codec.Declare{Kind: kind, ID: id, Expr: codec.Key(key)})
}

// settle sends a query and waits for the answer. By then the victim has processed all earlier messages.
func (a *attacker) settle(id uint32) {
	a.t.Helper()
	a.send(codec.Request{ID: id, Expr: codec.Key("@nobody")})
	a.await(func(m codec.Message) bool { return m.Kind == codec.KindFinal && m.Final.ID == id })
}

// serves checks that the victim still serves other sessions.
func serves(t *testing.T, victim *Session, at string) {
	t.Helper()
	var got sessiontest.Basket
	defer rttest.Must(victim.Subscribe("@good/*", got.Deposit))(t).Undeclare()
	good := mustOpen(t, Config{Connect: []string{at}})
	defer good.Close()
	pub := rttest.Must(good.Publisher("@good/a", wire.ActionQoS))(t)
	rttest.Eventually(t, "a good client's sample", func() bool { pub.Put(nil, nil); return got.Count() > 0 })
}

// Goal: a listener refuses each key that crashes the official router. It keeps the sender's link and all other links.
func TestHostileKeys(t *testing.T) {
	victim, at := listener(t, Config{})
	a := mustAttack(t, at)
	bad := []string{"x$y", "a//b", "", "/", "a#b", "**/*", "***", strings.Repeat("a/", 70) + "b"}
	for i, key := range bad {
		for _, kind := range []codec.DeclareKind{codec.DeclareSubscriber, codec.DeclareQueryable, codec.DeclareToken,
			codec.DeclareExpr} {
			a.declare(kind, uint32(i+1), key)
		}
		a.send(codec.Push{Expr: codec.Key(key)})
		a.send(codec.Interest{ID: uint32(i + 1),
			Mode: codec.InterestCurrentFuture, About: 0xf, Restricted: true, Expr: codec.Key(key)})
	}
	a.send(codec.Push{Expr: codec.Expr{Scope: 7, Suffix: []byte("/x"),
		Sender: true}})
	a.settle(1)
	rttest.Want(t, victim.Stats().Keys, uint64(len(bad)*6+1), "keys refused")
	if h := victim.router.Held(); h.Subscribers+h.Queryables+h.Tokens+h.Interests != 0 {
		t.Errorf("some of the bad declarations are kept: %+v", h)
	}
	serves(t, victim, at)
}

// Goal: the memory for a link's declarations is bounded, is counted, and is freed when the link ends.
func TestHostileCounts(t *testing.T) {
	const maxDeclared, more = 16384, 500
	victim, at := listener(t, Config{})
	flood := func(n int, say func(a *attacker, id uint32, key string)) router.Held {
		a := mustAttack(t, at)
		for i := range uint32(n) {
			say(a, i+1, fmt.Sprintf("@flood/%d/**", i))
		}
		a.settle(1 << 20)
		held := victim.router.Held()
		a.conn.Close()
		rttest.Eventually(t, "the link's end", func() bool { return victim.router.Held().Links == 0 })
		return held
	}
	refused := uint64(0)
	declares := func(kind codec.DeclareKind) func(a *attacker, id uint32, key string) {
		return func(a *attacker, id uint32, key string) { a.declare(kind, id, key) }
	}
	for _, tt := range []struct {
		name string
		most int
		kept func(router.Held) int // nil: the victim does not answer
		say  func(a *attacker, id uint32, key string)
	}{
		{"subscribers", maxDeclared, func(h router.Held) int {
			return h.Subscribers
		}, declares(codec.DeclareSubscriber)},
		{"queryables", maxDeclared, func(h router.Held) int { return h.Queryables }, declares(codec.DeclareQueryable)},
		{"tokens", maxDeclared, func(h router.Held) int { return h.Tokens }, declares(codec.DeclareToken)},
		{"interests", maxDeclared, func(h router.Held) int {
			return h.Interests
		}, func(a *attacker, id uint32, key string) {
			a.send(codec.Interest{ID: id,
				Mode: codec.InterestFuture, About: codec.AboutTokens, Restricted: true, Expr: codec.Key(key)})
		}},
		{"numbered keys", 4096, nil, declares(codec.DeclareExpr)},
	} {
		held := flood(tt.most+more, tt.say)
		refused += more
		if got := victim.Stats().Declarations; got != refused || tt.kept != nil && tt.kept(held) != tt.most {
			t.Errorf("%s: kept %+v, %d refused in all; want %d and %d", tt.name, held, got, tt.most, refused)
		}
	}
	rttest.Want(t, victim.router.Held(), router.Held{}, "held when all links are gone")
	serves(t, victim, at)
}

// Goal: the memory for unfinished queries and for keys that are used once is bounded.
func TestHostileQueriesAndRoutes(t *testing.T) {
	victim, at := listener(t, Config{})
	held := make(chan wire.Query, maxInQueries+1)
	rttest.Must(victim.Queryable("@held", func(q wire.Query) { held <- q }))(t)
	var got sessiontest.Basket
	rttest.Must(victim.Subscribe("@push/**", got.Deposit))(t)
	a := mustAttack(t, at)
	const n = maxInQueries + 500
	for i := range uint32(n) {
		a.send(codec.Request{ID: i + 1, Expr: codec.Key("@held")})
		a.send(codec.Push{Expr: codec.Key(fmt.Sprintf("@push/%d",
			i))})
	}
	a.settle(1 << 20)
	queries := victim.router.Held().Queries
	if s := victim.Stats(); queries != maxInQueries || s.Queries != 500 || s.Routes != 1 || got.Count() != n {
		t.Errorf("%d queries wait, stats %+v, %d samples; want %d, 500 queries refused, one overflow of routes, %d "+
			"samples", queries, s, got.Count(), maxInQueries, n)
	}
	serves(t, victim, at)
}

// Goal: the memory for long keys without a common prefix, and the memory for routes, are bounded for all links
// together. When it is exhausted, the links that declared the most are ended, never a link that declares little.
func TestHostileKeysAreBoundedInBytes(t *testing.T) {
	victim, at := listener(t, Config{})
	for n := range 3 {
		a := mustAttack(t, at)
		for i := range uint32(4000) {
			key := strings.Repeat(fmt.Sprintf("%d-%d/", n, i), 60) + strings.Repeat("x", 400)
			a.declare(codec.DeclareToken, i+1, key)
			a.send(codec.Push{Expr: codec.Key(key)})
		}
		a.settle(1 << 20)
	}
	const maxDeclaredBytes, maxRouteBytes = 14 << 20, 4 << 20
	h := victim.router.Held()
	if h.Bytes > maxDeclaredBytes+1<<20 || h.Bytes < maxDeclaredBytes/2 || victim.Stats().Declarations == 0 {
		t.Errorf("%d bytes of declarations, %d refused; want about %d and some", h.Bytes, victim.Stats().Declarations,
			maxDeclaredBytes)
	}
	if h.RouteBytes > maxRouteBytes {
		t.Errorf("%d bytes of routes, want at most %d", h.RouteBytes, maxRouteBytes)
	}
	modest := mustAttack(t, at)
	modest.declare(codec.DeclareToken, 1, "@modest")
	modest.settle(1)
	if keys, err := victim.Tokens(t.Context(), "@modest", time.Second); err != nil || len(keys) != 1 ||
		victim.Stats().Revoked == 0 {
		t.Errorf("the modest link's token: %v, %v; %d links ended, want it, and the largest ended", keys, err,
			victim.Stats().Revoked)
	}
	serves(t, victim, at)
}

// Goal: when the links of one host each declare little, but together too much, links of this host are ended. A link of
// another host stays, even if it declares more than any of them.
func TestManyLinksThatDeclareLittle(t *testing.T) {
	victim, at := listener(t, Config{})
	good := rttest.Must(attackFrom(t, "127.0.0.2", at, newZID()))(t)
	key := func(n int, i uint32) string {
		return strings.Repeat(fmt.Sprintf("%d-%d/", n, i), 60) + strings.Repeat("x", 400)
	}
	for i := range uint32(60) {
		good.declare(codec.DeclareToken, i+1, key(1000, i))
	}
	good.settle(1)
	var flood int
	for n := 0; n < 200 && victim.Stats().Revoked == 0; n++ {
		a := mustAttack(t, at)
		for i := range uint32(40) {
			a.declare(codec.DeclareToken, i+1, key(n, i))
		}
		a.settle(1)
		flood++
	}
	if victim.Stats().Revoked == 0 {
		t.Fatalf("%d links of 40 declarations end none: nothing is tested", flood)
	}
	good.settle(2)
	rttest.Want(t, len(rttest.Must(victim.Tokens(t.Context(), key(1000, 7), time.Second))(t)), 1,
		"tokens of the good link after %d links of another host", flood)
}

// Goal: a querier that reads no replies delays only itself, because a reply from the callback does not wait for the
// querier's link.
func TestStalledQuerierHoldsUpNobody(t *testing.T) {
	rttest.RealTime(t)
	victim, at := listener(t, Config{})
	big := make([]byte, 1<<20)
	failed := make(chan error, 100)
	rttest.Must(victim.Queryable("@big", func(q wire.Query) {
		failed <- q.Reply("@big", big)
		q.Finish()
	}))(t)
	a := rttest.Must(dialFrom(t, "127.0.0.1", at, newZID()))(t)
	for i := range uint32(20) {
		a.send(codec.Request{Envelope: codec.Envelope{QoS: codec.RequestQoS}, ID: i + 1, Expr: codec.Key("@big")})
	}
	a.stall()
	began := time.Now()
	for congested := false; !congested; {
		select {
		case err := <-failed:
			congested = errors.Is(err, link.ErrCongested)
		case <-time.After(3 * time.Second):
			t.Fatal("no reply was refused within 3 s")
		}
	}
	serves(t, victim, at)
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("others waited %v for a querier that does not read", took)
	}
}

// Goal: wildcards that take 23 GB at an official router take almost no memory here.
func TestHostileWildcards(t *testing.T) {
	rttest.RealTime(t)
	victim, at := listener(t, Config{})
	rttest.Must(victim.Subscribe(strings.Repeat("**/a/", 30)+"b", func(wire.Sample) {}))(t)
	a := mustAttack(t, at)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	for i := range uint32(60) {
		a.declare(codec.DeclareSubscriber, i+1, strings.Repeat("**/a/", 30)+fmt.Sprint(i))
		a.send(codec.Push{Expr: codec.Key(strings.Repeat("a/", 62) +
			fmt.Sprint(i))})
	}
	a.settle(1)
	runtime.ReadMemStats(&after)
	if took := time.Since(began); took > 5*time.Second || after.TotalAlloc-before.TotalAlloc > 64<<20 {
		t.Errorf("took %v and %d MB", took, (after.TotalAlloc-before.TotalAlloc)>>20)
	}
}

// Goal: silent connections displace only each other, so a good client gets its link.
func TestIdleConnectionsDoNotBlock(t *testing.T) {
	rttest.RealTime(t)
	victim, at := listener(t, Config{})
	var first net.Conn
	for range 100 + 50 { // a hundred connections at most may be in their handshake
		conn := rttest.Must(net.Dial("tcp", strings.TrimPrefix(at, "tcp/")))(t)
		defer conn.Close()
		if first == nil {
			first = conn
		}
	}
	first.SetReadDeadline(time.Now().Add(5 * time.Second))
	if n, err := first.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the oldest silent connection is still open: %d bytes, %v", n, err)
	}
	began := time.Now()
	serves(t, victim, at)
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("a good client had to wait %v", took)
	}
	if got := victim.Stats().HalfOpen; got < 50 {
		t.Errorf("%d idle connections were pushed out, want at least 50", got)
	}
}

// Goal: when an address opens connections at a high rate, only few of them get a handshake. Connections from other
// addresses still get theirs.
func TestConnectionsAtAHighRate(t *testing.T) {
	victim, at := listener(t, Config{MaxSessions: 4})
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}
	const atOnce, more = 4 + 100, 300
	began := time.Now()
	for range atOnce + more {
		rttest.Must(from.Dial("tcp", strings.TrimPrefix(at, "tcp/")))(t).Close()
	}
	serves(t, victim, at)
	if got, due := victim.Stats().Handshakes, 1+uint64(time.Since(began)/(50*time.Millisecond)); got+due < more {
		t.Errorf("%d connections closed, want %d but %d", got, more, due)
	}
}

func TestAdmission(t *testing.T) {
	_, at := listener(t, Config{MaxSessions: 2})
	zid := newZID()
	first := rttest.Must(attack(t, at, zid))(t)
	for _, tt := range []struct {
		name string
		zid  []byte
		want codec.Reason
	}{
		{"same node again", zid, codec.CloseMaxLinks},
		{"second node", newZID(), 0},
		{"third node", newZID(), codec.CloseMaxSessions},
	} {
		_, err := attack(t, at, tt.zid)
		var closed *link.CloseError
		if tt.want == 0 && err != nil || tt.want != 0 && (!errors.As(err, &closed) || closed.Reason != tt.want) {
			t.Errorf("%s: %v, want reason %d", tt.name, err, tt.want)
		}
	}
	first.conn.Close()
	rttest.Eventually(t, "a free place", func() bool { _, err := attack(t, at, zid); return err == nil })
}

// Goal: for each declared chunk, a push on a key of only wildcards takes time proportional to the key's length, not to
// its square. So other links need not wait.
func TestWildChunksAreCheap(t *testing.T) {
	rttest.RealTime(t)
	victim, at := listener(t, Config{})
	a := mustAttack(t, at)
	for id := range uint32(5000) {
		a.declare(codec.DeclareSubscriber, id+1, fmt.Sprintf("@g/%s%d", strings.Repeat("a", 890), id))
	}
	a.settle(1)
	began := time.Now()
	for i := range 20 {
		a.send(codec.Push{Expr: codec.Key(fmt.Appendf(nil, "@g/%sb%d",
			strings.Repeat("a$*", 300), i))})
	}
	a.settle(2)
	// the push would take 30 s or more if each pair of chunks took the product of their lengths
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("20 keys took %v", took)
	}
	serves(t, victim, at)
}
