package router

import (
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
	"github.com/edge-rt/edge-rt/wire/zenoh/link"
)

// from is a connection of a given address.
type from struct {
	net.Conn
	ip     string
	closed bool
}

func (f *from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(f.ip)} }
func (f *from) Close() error         { f.closed = true; return nil }

// Goal: a flood from one address displaces its own connections, not the connections of other addresses.
func TestFloodPushesOutItself(t *testing.T) {
	var half halfOpen
	good := &from{ip: "10.0.0.1"}
	half.enter(good)
	var flood []*from
	for range 10 * maxHalfOpen {
		c := &from{ip: "10.6.6.6"}
		flood = append(flood, c)
		half.enter(c)
	}
	if good.closed || len(half.conns) != maxHalfOpen {
		t.Errorf("good one closed: %v, %d in their handshake", good.closed, len(half.conns))
	}
	if !flood[0].closed || flood[len(flood)-1].closed {
		t.Error("the flood's oldest goes first")
	}
}

// node is a client of the router that sends arbitrary messages.
type node struct {
	t    *testing.T
	link *link.Link
	gone chan struct{}
	said chan uint32 // numbers of the node's queries that were answered in full
}

func join(t *testing.T, r *Router) *node {
	t.Helper()
	l, gone, err := dial(r, codec.Client)
	rttest.Do(t, err)
	n := &node{t: t, link: l, gone: gone, said: make(chan uint32, 16)}
	go l.Run(func(m *codec.Message) error {
		if m.Kind == codec.KindFinal {
			n.said <- m.Final.ID
		}
		return nil
	})
	return n
}

func (n *node) send(part codec.Part) {
	n.t.Helper()
	rttest.PanicOn(n.link.Send(codec.AppendMessage(nil, part.Message()),
		link.Delivery{QoS: codec.RequestQoS, Reliable: true}))
}

func (n *node) declare(kind codec.DeclareKind, id uint32, key string) {
	n.t.Helper()
	n.send(codec.Declare{Kind: kind, ID: id, Expr: codec.Key(key)})
}

// settle waits until the router has processed all earlier messages of the node.
func (n *node) settle(id uint32) {
	n.t.Helper()
	n.send(codec.Request{ID: id, Expr: codec.Key("@nobody")})
	for <-n.said != id {
	}
}

// Goal: a link's memory is freed when the link ends, even if cached routes of other links lead to it and no further
// sample has the keys of these routes.
func TestRoutesLetGoOfLinks(t *testing.T) {
	r := newRouter()
	defer r.Stop()
	a := join(t, r)
	a.settle(1) // now the router lists a's link first
	b := join(t, r)
	b.declare(codec.DeclareSubscriber, 1, "@stale")
	b.settle(1)
	a.send(codec.Push{Expr: codec.Key("@stale")})
	a.settle(2)
	r.mu.Lock()
	gone := weak.Make(r.faces[1].link)
	r.mu.Unlock()
	b.link.Discard()
	<-b.gone
	rttest.Eventually(t, "the link to be forgotten", func() bool {
		// this message reuses the buffers that refer to the link
		a.send(codec.Push{Expr: codec.Key("@other")})
		runtime.GC()
		return gone.Value() == nil
	})
}

// Goal: a key that is declared under many numbers is counted once for each number, until that number is undeclared.
func TestNumbersOfOneKeyCount(t *testing.T) {
	const numbers = 10_000
	r := newRouter()
	defer r.Stop()
	before := r.Held().Bytes
	a := join(t, r)
	for id := range uint32(numbers) {
		a.declare(codec.DeclareToken, id+1, "@same")
	}
	a.settle(1)
	if n := r.Held().Bytes - before; n < numbers*numberedBytes {
		t.Errorf("%d numbers of one key count as %d bytes, want at least %d", numbers, n, numbers*numberedBytes)
	}
	for id := range uint32(numbers) {
		a.declare(codec.UndeclareToken, id+1, "@same")
	}
	a.settle(2)
	rttest.Want(t, r.Held().Bytes, before, "bytes left after the end of all")
}

// Goal: an answered query is no longer counted as memory of the asker's link.
func TestAnsweredQueriesAreForgotten(t *testing.T) {
	r := newRouter()
	defer r.Stop()
	a := join(t, r)
	a.settle(1)
	before := r.cfg.Link.Budget.Used()
	for id := range uint32(2 * maxQueries) {
		a.send(codec.Request{ID: 2 + id, Expr: codec.Key("@t/1")})
		for <-a.said != 2+id {
		}
	}
	// The budget also counts the link's own buffers.
	if more := r.cfg.Link.Budget.Used() - before; r.Held().Queries != 0 || r.queryBytes != 0 ||
		more >= maxQueries*queryBytes {
		t.Errorf("%d queries of %d bytes are left, and %d bytes held for the link", r.Held().Queries, r.queryBytes,
			more)
	}
}

// Goal: a query waits for room on one congested link only, and not on a link that has ended. If a link ends during the
// wait, the query waits for no other link.
func TestAQueryWaitsForOneLink(t *testing.T) {
	for _, ends := range []time.Duration{0, relayPatience / 2} {
		synctest.Test(t, func(t *testing.T) {
			r := newRouter()
			join(t, r).settle(1)
			hold := make(chan struct{})
			declared := codec.AppendMessage(nil,
				codec.Declare{Kind: codec.DeclareQueryable, ID: 1, Expr: codec.Key("@stuck")}.Message())
			for range 3 {
				l, _, err := dial(r, codec.Client)
				rttest.Do(t, err)
				go l.Run(func(*codec.Message) error { <-hold; return nil })
				rttest.Do(t, l.Send(declared, link.Control))
			}
			synctest.Wait()
			m := codec.Request{Envelope: codec.Envelope{QoS: codec.RequestQoS}, Expr: codec.Key("@stuck")}.Message()
			for _, f := range r.faces[1:] {
				for f.link.Send(codec.AppendMessage(nil, m),
					link.Delivery{QoS: m.Request.QoS, Reliable: true, NoWait: true}) == nil {
					synctest.Wait()
				}
			}
			time.AfterFunc(ends, func() { r.faces[1].link.Close(codec.CloseGeneric) })
			synctest.Wait()
			began := time.Now()
			r.faces[0].request(&m.Request)
			rttest.Want(t, time.Since(began), relayPatience-ends, "wait")
			close(hold)
			r.Stop()
		})
	}
}

// Goal: a sample for the session and for another link costs no allocation.
func TestPushAllocatesNothing(t *testing.T) {
	r := newRouter()
	defer r.Stop()
	join(t, r)
	b := join(t, r)
	b.declare(codec.DeclareSubscriber, 1, "@t/*")
	b.settle(1)
	r.mu.Lock()
	from := r.faces[0]
	r.mu.Unlock()
	m := codec.Push{Envelope: codec.Envelope{QoS: codec.DefaultQoS}, Expr: codec.Key("@t/1"),
		Data: codec.Data{Payload: make([]byte, 64)}}
	for range 1000 {
		from.push(&m, true)
	}
	rttest.NoAllocs(t, "a sample costs %v allocations, want 0", 1000, func() { from.push(&m, true) })
}

// Goal: hostOf returns the text of a link's host, by which a server counts sessions.
func TestHostOf(t *testing.T) {
	for want, addr := range map[string]net.Addr{
		"10.0.0.7":          &net.TCPAddr{IP: net.ParseIP("10.0.0.7"), Port: 4242},
		"2001:db8:1:2::/64": &net.TCPAddr{IP: net.ParseIP("2001:db8:1:2:3:4:5:6"), Port: 4242},
		"":                  &net.UnixAddr{Name: "/run/x", Net: "unix"},
	} {
		rttest.Want(t, hostOf(addr), want, "hostOf(%v)", addr)
	}
}
