package zenoh

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

// quick is the configuration of a session that reconnects fast enough for a test.
func quick(at string) Config {
	return Config{Connect: []string{at}, BackoffMin: 10 * time.Millisecond, BackoffMax: 40 * time.Millisecond}
}

// cut ends the link of a client without a Close, as a network does.
func cut(s *Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d, ok := s.up.(*dialled); ok {
		d.Discard()
	}
}

// Goal: after its links were cut, and after the listener itself ended and returned on the same
// port, every declaration works again, and its tokens vanished in between.
func TestReconnectDeclaresEverythingAgain(t *testing.T) {
	server, at := listener(t, Config{})
	edge := mustOpen(t, quick(at))
	var got samples
	if _, err := edge.Subscribe("@r/act", got.deposit); err != nil {
		t.Fatal(err)
	}
	if _, err := edge.Queryable("@r/q", func(q wire.Query) { q.Reply("@r/q", []byte("yes")); q.Finish() }); err != nil {
		t.Fatal(err)
	}
	if _, err := edge.Token("@r/edge"); err != nil {
		t.Fatal(err)
	}
	var edgeSees presence
	if _, err := edge.SubscribeTokens("@r/server", edgeSees.deposit); err != nil {
		t.Fatal(err)
	}
	up, err := edge.Publisher("@r/obs", wire.ObservationQoS)
	if err != nil {
		t.Fatal(err)
	}
	works := func(server *Session, serverSees *presence, tokens, edgeTokens []string) {
		t.Helper()
		var heard samples
		sub, err := server.Subscribe("@r/obs", heard.deposit)
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Undeclare()
		down, err := server.Publisher("@r/act", wire.ActionQoS)
		if err != nil {
			t.Fatal(err)
		}
		defer down.Undeclare()
		before := got.count()
		rttest.Eventually(t, "an action", func() bool { down.Put([]byte("a"), nil); return got.count() > before })
		rttest.Eventually(t, "an observation", func() bool { up.PutLatest([]byte("o"), nil); return heard.count() > 0 })
		rttest.Eventually(t, "a reply", func() bool {
			r, err := server.Get(context.Background(), "@r/q", nil, time.Second)
			return err == nil && len(r) == 1 && string(r[0].Payload) == "yes"
		})
		rttest.Eventually(t, fmt.Sprint("the server to see ", tokens), func() bool {
			return slices.Equal(serverSees.seen(), tokens)
		})
		rttest.Eventually(t, fmt.Sprint("the edge to see ", edgeTokens), func() bool {
			return slices.Equal(edgeSees.seen(), edgeTokens)
		})
	}
	var serverSees presence
	server.SubscribeTokens("@r/edge", serverSees.deposit)
	if _, err := server.Token("@r/server"); err != nil {
		t.Fatal(err)
	}
	works(server, &serverSees, []string{"+@r/edge"}, []string{"+@r/server"})
	cut(edge)
	works(server, &serverSees, []string{"+@r/edge", "-@r/edge", "+@r/edge"},
		[]string{"+@r/server", "-@r/server", "+@r/server"})

	server.Close()
	rttest.Eventually(t, "the edge to notice", func() bool { return !edge.Connected() })
	if err := up.Put(nil, nil); !errors.Is(err, wire.ErrDisconnected) {
		t.Errorf("Put without a link = %v, want %v", err, wire.ErrDisconnected)
	}
	if _, err := edge.Get(context.Background(), "@r/server", nil, time.Second); !errors.Is(err, wire.ErrDisconnected) {
		t.Errorf("Get without a link = %v, want %v", err, wire.ErrDisconnected)
	}
	again := mustOpen(t, Config{Listen: []string{at}})
	var againSees presence
	again.SubscribeTokens("@r/edge", againSees.deposit)
	if _, err := again.Token("@r/server"); err != nil {
		t.Fatal(err)
	}
	works(again, &againSees, []string{"+@r/edge"},
		[]string{"+@r/server", "-@r/server", "+@r/server", "-@r/server", "+@r/server"})
}

// Goal: a Get ends with the link that it waits for, long before its timeout.
func TestLostLinkEndsGet(t *testing.T) {
	server, at := listener(t, Config{})
	if _, err := server.Queryable("@g", func(q wire.Query) { q.Reply("@g", []byte("one")) }); err != nil {
		t.Fatal(err)
	}
	edge := mustOpen(t, quick(at))
	got := make(chan []wire.Reply, 1)
	go func() {
		r, _ := edge.Get(context.Background(), "@g", nil, time.Hour)
		got <- r
	}()
	rttest.Eventually(t, "the reply", func() bool {
		edge.mu.Lock()
		defer edge.mu.Unlock()
		for _, q := range edge.outQueries {
			return len(q.replies) == 1
		}
		return false
	})
	cut(edge)
	select {
	case r := <-got:
		if len(r) != 1 {
			t.Errorf("Get = %v, want the one reply", r)
		}
	case <-time.After(rttest.Patience):
		t.Error("Get still waits for a link that is gone")
	}
}

// Goal: a queryable that never finishes keeps neither its querier nor its table entry beyond the
// timeout and the grace.
func TestUnfinishedQueryIsEnded(t *testing.T) {
	server, at := listener(t, Config{})
	held := make(chan wire.Query, 1)
	if _, err := server.Queryable("@u", func(q wire.Query) { held <- q }); err != nil {
		t.Fatal(err)
	}
	edge := mustOpen(t, Config{Connect: []string{at}})
	if r, err := edge.Get(context.Background(), "@u", nil, 50*time.Millisecond); len(r) != 0 || err != nil {
		t.Errorf("Get = %v, %v, want nothing after its timeout", r, err)
	}
	rttest.Eventually(t, "the query to be forgotten", func() bool {
		server.mu.Lock()
		defer server.mu.Unlock()
		return len(server.inQueries) == 0 && server.router.Held().Queries == 0
	})
	q := <-held
	if err := q.Reply("@u", nil); err == nil {
		t.Error("Reply to an ended query succeeded")
	}
	q.Finish()
	q.Finish()
}

func TestContextEndsGet(t *testing.T) {
	server, at := listener(t, Config{})
	server.Queryable("@c", func(wire.Query) {})
	edge := mustOpen(t, Config{Connect: []string{at}})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := edge.Get(ctx, "@c", nil, 10*time.Second); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Get = %v, want %v", err, context.DeadlineExceeded)
	}
}

func TestReplyMustMatchTheQuery(t *testing.T) {
	server, at := listener(t, Config{})
	errs := make(chan error, 1)
	server.Queryable("@k/**", func(q wire.Query) {
		errs <- q.Reply("@other/a", nil)
		q.Finish()
	})
	edge := mustOpen(t, Config{Connect: []string{at}})
	if r, err := edge.Get(context.Background(), "@k/a", nil, 2*time.Second); len(r) != 0 || err != nil {
		t.Errorf("Get = %v, %v, want nothing", r, err)
	}
	if err := <-errs; err == nil {
		t.Error("Reply on a foreign key succeeded")
	}
}

// Goal: many edges at one server, each with its own action topic: every edge gets its own samples
// and nothing else, and samples without a subscriber are not sent.
func TestManyEdges(t *testing.T) {
	const n = 20
	server, at := listener(t, Config{Log: func(string) {}})
	var heard samples
	if _, err := server.Subscribe("@f/*/obs", heard.deposit); err != nil {
		t.Fatal(err)
	}
	got := make([]samples, n)
	for i := range n {
		edge := mustOpen(t, Config{Connect: []string{at}, Log: func(string) {}})
		if _, err := edge.Subscribe(fmt.Sprintf("@f/r%d/act", i), got[i].deposit); err != nil {
			t.Fatal(err)
		}
		pub, err := edge.Publisher(fmt.Sprintf("@f/r%d/obs", i), wire.ObservationQoS)
		if err != nil {
			t.Fatal(err)
		}
		if err := pub.Put([]byte{byte(i)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	rttest.Eventually(t, "all observations", func() bool { return heard.count() == n })
	for i := range n {
		key := fmt.Sprintf("@f/r%d/act", i)
		hearing(t, server, key)
		pub, err := server.Publisher(key, wire.ActionQoS)
		if err != nil {
			t.Fatal(err)
		}
		if err := pub.Put([]byte{byte(i)}, nil); err != nil {
			t.Fatal(err)
		}
		if targets := len(pub.(*publisher).targets); targets != 1 {
			t.Errorf("an action of one robot goes to %d links, want 1", targets)
		}
	}
	for i := range n {
		rttest.Eventually(t, "an action", func() bool { return got[i].count() > 0 })
		if got[i].count() != 1 || got[i].at(0).Payload[0] != byte(i) {
			t.Errorf("edge %d got %d actions, the first for %d", i, got[i].count(), got[i].at(0).Payload[0])
		}
	}
}

func TestUndeclaredSubscriberHearsNothing(t *testing.T) {
	server, at := listener(t, Config{})
	edge := mustOpen(t, Config{Connect: []string{at}})
	var got, rest samples
	sub, err := edge.Subscribe("@s/a", got.deposit)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := edge.Subscribe("@s/b", rest.deposit); err != nil {
		t.Fatal(err)
	}
	hearing(t, server, "@s/a")
	hearing(t, server, "@s/b")
	a, _ := server.Publisher("@s/a", wire.ActionQoS)
	b, _ := server.Publisher("@s/b", wire.ActionQoS)
	a.Put(nil, nil)
	rttest.Eventually(t, "one sample", func() bool { return got.count() == 1 })
	sub.Undeclare()
	a.Put(nil, nil)
	b.Put(nil, nil) // later than the samples on the same lane
	rttest.Eventually(t, "the other's sample", func() bool { return rest.count() == 1 })
	if got.count() != 1 {
		t.Errorf("%d samples after Undeclare, want the 1 from before", got.count())
	}
	rttest.Eventually(t, "the server to know", func() bool { a.Put(nil, nil); return len(a.(*publisher).targets) == 0 })
}

func TestNeverLinkedToItself(t *testing.T) {
	selfish := freeEndpoint(t)
	var links events
	self := mustOpen(t, Config{
		Listen:     []string{selfish},
		Connect:    []string{selfish},
		BackoffMin: 10 * time.Millisecond,
		Links:      links.add,
	})
	rttest.Eventually(t, "three attempts", func() bool { _, n := links.last(false); return n >= 3 })
	if self.Connected() {
		t.Error("a session is connected to itself")
	}
}

func TestCloseLeavesNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 5 {
		server, at := listener(t, Config{Log: func(string) {}})
		edge := mustOpen(t, quick(at))
		edge.Token("@x")
		edge.Close()
		server.Close()
	}
	rttest.Eventually(t, "all goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
}
