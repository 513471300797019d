package zenoh

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// Goal: an official node and a client of ours meet at our listener.
func TestOfficialMeetsOursAtOurListener(t *testing.T) {
	python := interopPython(t)
	for _, mode := range []string{"client", "peer", "router"} {
		t.Run(mode, func(t *testing.T) {
			_, at := listener(t, Config{})
			theirs := startNode(t, python)
			theirs.do("open", args{"mode": mode, "connect": []string{at}})
			across(t, mustOpen(t, Config{Connect: []string{at}}), theirs)
		})
	}
}

// Goal: our listener that has dialled an official router, or an official peer,
// joins its own clients to that network.
func TestOurListenerAtOfficialNode(t *testing.T) {
	python := interopPython(t)
	for _, mode := range []string{"router", "peer"} {
		t.Run(mode, func(t *testing.T) {
			far := freeEndpoint(t)
			hub := startNode(t, python)
			hub.do("open", args{"mode": mode, "listen": []string{far}})
			theirs := startNode(t, python)
			theirs.do("open", args{"mode": "client", "connect": []string{far}})
			listening, at := listener(t, Config{Listen: []string{"tcp/127.0.0.1:0"}, Connect: []string{far}})
			eventually(t, "the link to it", listening.Connected)
			edge := mustOpen(t, Config{Connect: []string{at}})
			t.Run("an edge and the node itself", func(t *testing.T) { across(t, edge, hub) })
			if mode == "router" {
				t.Run("an edge and a client of the node", func(t *testing.T) { across(t, edge, theirs) })
			}
		})
	}
}

// Goal: two official nodes meet at our listener, as long as one of them is a
// client, and neither gets anything twice.
func TestOfficialsMeetAtOurListener(t *testing.T) {
	python := interopPython(t)
	for _, modes := range [][2]string{{"client", "client"}, {"client", "peer"}, {"peer", "client"}, {"client", "router"}} {
		t.Run(modes[0]+" and "+modes[1], func(t *testing.T) {
			_, at := listener(t, Config{})
			a, b := startNode(t, python), startNode(t, python)
			a.do("open", args{"mode": modes[0], "connect": []string{at}})
			b.do("open", args{"mode": modes[1], "connect": []string{at}})
			officialSamples(t, a, b)
			officialQueries(t, a, b)
			officialTokens(t, a, b)
		})
	}
}

func officialSamples(t *testing.T, a, b *node) {
	t.Helper()
	b.do("subscribe", args{"name": "s", "key": "@o/**"})
	a.do("publisher", args{"name": "p", "key": "@o/p"})
	matches := func(want bool) {
		t.Helper()
		eventually(t, fmt.Sprint("matching to be ", want), func() bool {
			return a.do("matching", args{"name": "p"}).Matching == want
		})
	}
	matches(true)
	const n = 20
	for i := range n {
		a.do("publish", args{"name": "p", "hex": fmt.Sprintf("%02x", i)})
	}
	for _, size := range interopSizes {
		a.do("put", args{"key": "@o/put", "size": size, "attachment": "a1b2", "block": true})
	}
	eventually(t, "all samples", func() bool { return len(b.seen("s")) >= n+len(interopSizes) })
	time.Sleep(100 * time.Millisecond)
	got := b.seen("s")
	if len(got) != n+len(interopSizes) {
		t.Fatalf("%d samples, want %d", len(got), n+len(interopSizes))
	}
	for i, size := range interopSizes {
		if r := got[n+i]; r.Size != size || r.Sum != sum(pattern(size)) || r.Attachment == nil || *r.Attachment != "a1b2" {
			t.Errorf("sample of %d bytes arrived as %+v", size, r)
		}
	}
	b.do("undeclare", args{"name": "s"})
	matches(false)
}

func officialQueries(t *testing.T, a, b *node) {
	t.Helper()
	b.do("queryable", args{"name": "q", "key": "@o/q/*"})
	a.do("queryable", args{"name": "own", "key": "@o/q/own"})
	asks := func(key string, n int) (r report) {
		t.Helper()
		eventually(t, fmt.Sprint(n, " replies on ", key), func() bool {
			r = a.do("get", args{"key": key, "hex": "6869"})
			return len(r.Replies) == n
		})
		return r
	}
	if r := asks("@o/q/x", 1); r.Replies[0].Hex != fmt.Sprintf("%x", "re:hi") {
		t.Errorf("replies %+v", r.Replies)
	}
	asks("@o/nobody", 0)
	b.do("undeclare", args{"name": "q"})
	asks("@o/q/x", 0)
}

func officialTokens(t *testing.T, a, b *node) {
	t.Helper()
	sees := func(n *node, name string, want ...string) {
		t.Helper()
		eventually(t, fmt.Sprint(name, " to see ", want), func() bool {
			got := n.tokensSeen(name)
			slices.Sort(got)
			slices.Sort(want)
			return slices.Equal(got, want)
		})
	}
	b.do("token", args{"name": "t1", "key": "@o/t/1"})
	eventually(t, "a's list", func() bool {
		return slices.Equal(a.do("tokens", args{"key": "@o/t/*"}).Keys, []string{"@o/t/1"})
	})
	a.do("watch", args{"name": "w", "key": "@o/t/*"})
	a.do("watch", args{"name": "late", "key": "@o/t/**", "history": false})
	sees(a, "w", "+@o/t/1")
	a.do("token", args{"name": "t2", "key": "@o/t/2"}) // its own
	sees(a, "w", "+@o/t/1", "+@o/t/2")
	b.do("undeclare", args{"name": "t1"})
	sees(a, "w", "+@o/t/1", "+@o/t/2", "-@o/t/1")
	a.do("undeclare", args{"name": "t2"})
	sees(a, "w", "+@o/t/1", "+@o/t/2", "-@o/t/1", "-@o/t/2")
	sees(a, "late", "+@o/t/2", "-@o/t/1", "-@o/t/2")
}
