package zenoh

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
	"github.com/edge-rt/edge-rt/wire/zenoh/sessiontest"
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

// Goal: a session without a link fails its calls at once. When the listener is back on the same port, the session's
// declarations are there again.
func TestListenerReturns(t *testing.T) {
	server, at := listener(t, Config{})
	edge := mustOpen(t, quick(at))
	up := mustPublisher(t, edge, "@r/obs", wire.ObservationQoS)
	rttest.Must(edge.Token("@r/edge"))(t)
	server.Close()
	rttest.Eventually(t, "the edge to notice", func() bool { return !edge.Connected() })
	rttest.FailsAs(t, up.Put(nil, nil), wire.ErrDisconnected) // Put without a link
	// Get without a link
	rttest.FailsAs(t, rttest.Err(edge.Get(t.Context(), "@r/server", nil, time.Second)), wire.ErrDisconnected)
	again := mustOpen(t, Config{Listen: []string{at}})
	rttest.Eventually(t, "the edge's token", func() bool {
		keys, _ := again.Tokens(t.Context(), "@r/*", time.Second)
		return slices.Equal(keys, []string{"@r/edge"})
	})
}

// Goal: the other side gets the end of a subscriber. The end of the last watcher frees the tokens that the session kept
// for it.
func TestUndeclareLeavesNothing(t *testing.T) {
	server, at := listener(t, Config{})
	edge := mustOpen(t, Config{Connect: []string{at}})
	sub := rttest.Must(edge.Subscribe("@s/a", func(wire.Sample) {}))(t)
	hearing(t, server, "@s/a")
	sub.Undeclare()
	rttest.Eventually(t, "no receiver", func() bool { return len(server.up.Receivers(nil, "@s/a")) == 0 })
	rttest.Must(server.Token("@w/a"))(t)
	var seen sessiontest.Diary
	w := rttest.Must(edge.SubscribeTokens("@w/*", seen.Deposit))(t)
	rttest.Eventually(t, "the token", func() bool { return len(seen.Entries()) == 1 })
	w.Undeclare()
	edge.mu.Lock()
	defer edge.mu.Unlock()
	rttest.Want(t, edge.index.Tree(codec.DeclareToken).Len()+len(edge.tokens.byID), 0,
		"tokens held for no robot")
}

// Goal: when the link ends on which a Get waits for replies, the Get ends long before its timeout.
func TestLostLinkEndsGet(t *testing.T) {
	server, at := listener(t, Config{})
	rttest.Must(server.Queryable("@g", func(q wire.Query) { q.Reply("@g", []byte("one")) }))(t)
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
		rttest.Want(t, len(r), 1, "replies %v: number", r)
	case <-time.After(rttest.Patience):
		t.Error("Get still waits for a link that is gone")
	}
}

// Goal: a query that the link does not take is an error, not a query without replies.
func TestQueryThatCannotBeSent(t *testing.T) {
	_, at := listener(t, Config{})
	edge := mustOpen(t, Config{Connect: []string{at}, MaxMessage: 1000})
	rttest.Fails(t, rttest.Err(edge.Get(t.Context(), "@g", make([]byte, 2000), time.Second)), "larger than the limit")
}

// Goal: if a queryable never finishes a query, the querier's Get and the entry of the query still end, after the
// timeout and the grace.
func TestUnfinishedQueryIsEnded(t *testing.T) {
	server, at := listener(t, Config{})
	held := make(chan wire.Query, 1)
	rttest.Must(server.Queryable("@u", func(q wire.Query) { held <- q }))(t)
	edge := mustOpen(t, Config{Connect: []string{at}})
	rttest.Want(t, len(rttest.Must(edge.Get(context.Background(), "@u", nil, 50*time.Millisecond))(t)), 0, "Get")
	rttest.Eventually(t, "the query to be forgotten", func() bool {
		server.mu.Lock()
		defer server.mu.Unlock()
		return len(server.inQueries) == 0 && server.router.Held().Queries == 0
	})
	q := <-held
	rttest.Fails(t, q.Reply("@u", nil))
	q.Finish()
	q.Finish()
}

// Goal: if many edges use one server, each with its own action topic, every edge gets exactly its own samples. Samples
// without a subscriber are not sent.
func TestManyEdges(t *testing.T) {
	const n = 20
	server, at := listener(t, Config{})
	var heard sessiontest.Basket
	rttest.Must(server.Subscribe("@f/*/obs", heard.Deposit))(t)
	got := make([]sessiontest.Basket, n)
	for i := range n {
		edge := mustOpen(t, Config{Connect: []string{at}})
		rttest.Must(edge.Subscribe(fmt.Sprintf("@f/r%d/act", i), got[i].Deposit))(t)
		pub := rttest.Must(edge.Publisher(fmt.Sprintf("@f/r%d/obs", i), wire.ObservationQoS))(t)
		rttest.Do(t, pub.Put([]byte{byte(i)}, nil))
	}
	rttest.Eventually(t, "all observations", func() bool { return heard.Count() == n })
	for i := range n {
		key := fmt.Sprintf("@f/r%d/act", i)
		hearing(t, server, key)
		pub := rttest.Must(server.Publisher(key, wire.ActionQoS))(t)
		rttest.Do(t, pub.Put([]byte{byte(i)}, nil))
		rttest.Want(t, len(pub.(*publisher).targets), 1, "links of an action of one robot")
	}
	for i := range n {
		rttest.Eventually(t, "an action", func() bool { return got[i].Count() > 0 })
		if got[i].Count() != 1 || got[i].Samples()[0].Payload[0] != byte(i) {
			t.Errorf("edge %d got %d actions, the first for %d", i, got[i].Count(), got[i].Samples()[0].Payload[0])
		}
	}
}

func TestNeverLinkedToItself(t *testing.T) {
	selfish := sessiontest.FreeEndpoint(t)
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
		server, at := listener(t, Config{})
		edge := mustOpen(t, quick(at))
		edge.Token("@x")
		edge.Close()
		server.Close()
	}
	rttest.Eventually(t, "all goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
}

// Goal: while there is no listener, the log gets few lines, however many attempts fail. At the end it gets one line
// with the length of this time.
func TestFewLinesOfAnAbsence(t *testing.T) {
	rttest.RealTime(t)
	server, at := listener(t, Config{})
	server.Close()
	var mu sync.Mutex
	var lines []string
	attempts := 0
	cfg := quick(at)
	cfg.Log = func(line string) { mu.Lock(); defer mu.Unlock(); lines = append(lines, line) }
	cfg.Links = func(LinkEvent) { mu.Lock(); defer mu.Unlock(); attempts++ }
	began := time.Now()
	go func() {
		if s, err := Open(t.Context(), cfg); err == nil {
			<-t.Context().Done()
			s.Close()
		}
	}()
	so := func(is func() bool) func() bool {
		return func() bool { mu.Lock(); defer mu.Unlock(); return is() }
	}
	rttest.Eventually(t, "attempts", so(func() bool {
		return attempts > 10 && time.Since(began) > 1100*time.Millisecond
	}))
	mustOpen(t, Config{Listen: []string{at}})
	rttest.Eventually(t, "a line about the new link", so(func() bool {
		return strings.HasPrefix(lines[len(lines)-1], "connected to "+at+" after ")
	}))
	mu.Lock()
	defer mu.Unlock()
	if n := len(lines); n < 2 || n > 2+int(time.Since(began)/(10*time.Second)) ||
		!strings.HasPrefix(lines[0], "no link to "+at) {
		t.Errorf("%d attempts: %q", attempts, lines)
	}
}
