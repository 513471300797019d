package zenohtest

import (
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/sim/netfault"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
)

// Churn is the usual duration of an attack that would otherwise continue without end.
const Churn = time.Second

const (
	hostileLease = 60_000 // ms
	stuckLimit   = 2 * time.Second
	handshakes   = 10 * time.Second
	largePiece   = 60_000
	largePayload = 50_000

	// HeldKey is the key of an attack's queries. There the attacker declares a queryable that never answers, and the
	// victim should do the same.
	HeldKey = "@victim/held"
	// PingKey is the key of an attack's publications.
	PingKey = "@victim/ping"
	// victimKeys are the victim's subscriptions.
	victimKeys = "@victim/**"
)

// Attack describes an attack of hostile nodes on a listener over many links at once.
type Attack struct {
	Name  string
	Links int
	Churn bool // the attack continues until its time is over; other attacks end with their last message

	link func(a *attacker, i int)
}

// Attacks are attacks that have exhausted the memory of some listener.
var Attacks = []Attack{
	{"idle links", 250, false, func(*attacker, int) {}},
	{"a claimed batch that does not come", 250, false, func(a *attacker, _ int) {
		a.conn.Write([]byte{0xff, 0xff, 1, 2, 3})
	}},
	{"unfinished messages on every lane", 100, false, func(a *attacker, _ int) { a.unfinished(20) }},
	{"subscribers that read nothing", 250, false, (*attacker).subscribeUnread},
	{"queries that are never answered", 100, false, (*attacker).unanswered},
	{"declarations", 12, false, (*attacker).declarations},
	{"watchers of all declarations", 100, false, func(a *attacker, i int) {
		go io.Copy(io.Discard, a.conn)
		a.send(5, codec.Interest{ID: 1, Mode: codec.InterestCurrentFuture,
			About: codec.AboutSubscribers | codec.AboutQueryables | codec.AboutTokens})
		for id := uint32(1); i < 4 && id <= 6000; id++ {
			a.declare(codec.DeclareToken, id, freshKey(i, id))
		}
	}},
	{"interests in keys of many chunks", 4, false, func(a *attacker, i int) {
		go io.Copy(io.Discard, a.conn)
		deep := strings.Repeat(fmt.Sprint("/", i), 50)
		for id := uint32(1); id <= 16_384; id++ {
			if !a.interest(id, codec.Key(fmt.Appendf(nil, "@deep/%d%s", id, deep)), true) {
				return
			}
		}
	}},
	{"interests in everything", 20, false, func(a *attacker, _ int) {
		go io.Copy(io.Discard, a.conn)
		for id := uint32(1); id <= 16_384 && a.interest(id, codec.Expr{}, false); id++ {
		}
	}},
	{"declarations whose keys grow", 4, false, func(a *attacker, i int) {
		go io.Copy(io.Discard, a.conn)
		long := strings.Repeat("x", 900)
		for id := uint32(1); id <= 8192 && a.declare(codec.DeclareToken, id, freshKey(i, id)); id++ {
		}
		for id := uint32(1); id <= 8192 && a.declare(codec.DeclareToken, id,
			codec.Key(fmt.Appendf(nil, "@grown/%d/%d/%s", i, id, long))); id++ {
		}
	}},
	{"one key under many numbers", 50, false, func(a *attacker, _ int) {
		go io.Copy(io.Discard, a.conn)
		for id := uint32(1); id <= 16_384 && a.declare(codec.DeclareToken, id, codec.Key("@same")); id++ {
		}
	}},
	{"all of that at once", 100, false, func(a *attacker, i int) {
		switch {
		case i < 12:
			a.declarations(i)
		case i%3 == 0:
			a.unfinished(20)
		case i%3 == 1:
			a.subscribeUnread(i)
		default:
			a.unanswered(i)
		}
	}},
	{"links that come and go", 4, true, func(a *attacker, _ int) {
		for a.redial() {
		}
	}},
	{"bytes that are no message", 4, true, func(a *attacker, _ int) {
		for junk := make([]byte, 1000); a.redial(); a.conn.Write(junk) {
			rand.Read(junk)
		}
	}},
	{"links that end in the middle of messages", 4, true, func(a *attacker, _ int) {
		for a.redial() {
			a.unfinished(4)
		}
	}},
	{"declarations that come and go", 4, true, (*attacker).redeclare},
	{"samples on keys that are new", 4, true, (*attacker).pushNewKeys},
	{"queries of everything", 4, true, func(a *attacker, _ int) {
		for n := uint32(1); a.more(); n++ {
			a.send(5, codec.Request{
				Envelope:  codec.Envelope{QoS: codec.RequestQoS},
				ID:        n,
				TimeoutMS: 1000,
				Expr:      codec.Key([...]string{"**", "@lerobot/**"}[n%2]),
				Query:     codec.Query{HasBody: true, Payload: make([]byte, 1000)},
			})
		}
	}},
}

// RouterAttacks are attacks of a hostile router on the sessions that dial it.
var RouterAttacks = []Attack{
	{"unfinished messages on every lane", 1, true, func(a *attacker, _ int) {
		for a.more() {
			a.unfinished(20)
		}
	}},
	{"declarations", 1, true, (*attacker).declarations},
	{"declarations that come and go", 1, true, (*attacker).redeclare},
	{"samples on keys that are new", 1, true, (*attacker).pushNewKeys},
}

// Run is an Attack under way.
type Run struct {
	Refused atomic.Uint64 // links that the victim refused
	Sent    atomic.Uint64 // batches that the victim's system has accepted

	at    string
	until time.Time
	links sync.WaitGroup
	over  chan struct{}
	conns netfault.Conns
}

// Start attacks the listener at tcp/host:port or tls/host:port. The parameter lasts is the duration of an attack with
// Churn.
func (a *Attack) Start(at string, lasts time.Duration) *Run {
	x := &Run{at: at, until: time.Now().Add(lasts), over: make(chan struct{})}
	for i := range a.Links {
		n := &attacker{run: x, churn: a.Churn}
		if !n.redial() {
			continue
		}
		x.links.Go(func() { a.link(n, i) })
	}
	go func() { x.links.Wait(); close(x.over) }()
	return x
}

// Wait waits until all messages are sent, and reports whether that took less than limit. The links stay open until
// Close.
func (x *Run) Wait(limit time.Duration) bool {
	select {
	case <-x.over:
		return true
	case <-time.After(limit):
		return false
	}
}

// Close ends all links of the attack.
func (x *Run) Close() {
	x.closeAll()
	<-x.over
}

func (x *Run) closeAll() {
	x.conns.Refuse(true)
	x.conns.Each(func(c net.Conn) { c.Close() })
}
