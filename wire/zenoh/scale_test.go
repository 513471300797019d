package zenoh

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

// many is the number of objects of each kind that the tests of scale declare.
const many = 10_000

// Goal: our listener announces ten thousand subscribers, queryables and tokens of one client to another client. Lookups
// find each of them, and all vanish with their client. The official router takes more than 20 s for such a client.
func TestTenThousandDeclarations(t *testing.T) {
	hub, at := listener(t, Config{})
	cfg := patient(at)
	cfg.Lease = time.Minute // a busy machine must not end the link
	holder, other := mustOpen(t, cfg), mustOpen(t, cfg)
	var got atomic.Int64
	deposit := func(wire.Sample) { got.Add(1) }
	answer := func(q wire.Query) { q.Reply(q.Key(), nil); q.Finish() }
	n := many
	if testing.Short() {
		n = many / 10
	}
	began := time.Now()
	for i := range n {
		rttest.Must(holder.Subscribe(fmt.Sprintf("@many/s/%d", i), deposit))(t)
		rttest.Must(holder.Queryable(fmt.Sprintf("@many/q/%d", i), answer))(t)
		rttest.Must(holder.Token(fmt.Sprintf("@many/t/%d", i)))(t)
	}
	settled(t, holder)
	t.Logf("3 x %d declared in %v", n, time.Since(began))

	began = time.Now()
	var alive atomic.Int64
	rttest.Must(other.SubscribeTokens("@many/t/*", func(_ string, up bool) {
		if up {
			alive.Add(1)
		} else {
			alive.Add(-1)
		}
	}))(t)
	rttest.Eventually(t, "all tokens", func() bool { return alive.Load() == int64(n) })
	keys, err := other.Tokens(context.Background(), "@many/t/*", 20*time.Second)
	if err != nil || len(keys) != n || !slices.IsSorted(keys) {
		t.Fatalf("%d tokens listed, %v, want %d", len(keys), err, n)
	}
	t.Logf("%d tokens watched and listed in %v", n, time.Since(began))

	began = time.Now()
	qos := wire.QoS{Reliable: true, Block: true}
	for i := 0; i < n; i += 10 {
		rttest.Do(t, mustPublisher(t, other, fmt.Sprintf("@many/s/%d", i), qos).Put([]byte("x"), nil))
		if r, err := other.Get(context.Background(), fmt.Sprintf("@many/q/%d", i), nil, 20*time.Second); err != nil ||
			len(r) != 1 {
			t.Fatalf("query %d: %v, %v", i, r, err)
		}
	}
	rttest.Eventually(t, "all samples", func() bool { return got.Load() == int64(n/10) })
	t.Logf("%d samples and queries in %v", n/10, time.Since(began))

	began = time.Now()
	holder.Close()
	rttest.Eventually(t, "no token", func() bool { return alive.Load() == 0 })
	rttest.Want(t, hub.router.Held().Entries, 0, "entries of a client that has left")
	t.Logf("forgotten in %v", time.Since(began))
}

// hubWith starts a listener with three clients. One client has n subscribers, queryables and tokens; the two returned
// clients exchange samples.
func hubWith(b *testing.B, n int) (from, to *Session) {
	hub := rttest.Must(Open(b.Context(), Config{Listen: []string{"tcp/127.0.0.1:0"}}))(b)
	b.Cleanup(func() { hub.Close() })
	dial := func() *Session {
		s := rttest.Must(Open(b.Context(), Config{Connect: hub.(*Session).Endpoints(), Lease: time.Minute}))(b)
		b.Cleanup(func() { s.Close() })
		return s.(*Session)
	}
	crowd := dial()
	for i := range n {
		crowd.Subscribe(fmt.Sprintf("@many/s/%d/act", i), func(wire.Sample) {})
		crowd.Queryable(fmt.Sprintf("@many/q/%d", i), func(q wire.Query) { q.Finish() })
		crowd.Token(fmt.Sprintf("@many/t/%d", i))
	}
	settled(b, crowd)
	return dial(), dial()
}

// BenchmarkRelay sends a sample from one client to another through our listener, which has n subscribers on other keys.
func BenchmarkRelay(b *testing.B) {
	for _, n := range []int{0, many} {
		for _, size := range []int{64, 4096, 100_000} {
			b.Run(fmt.Sprintf("subscribers=%d/bytes=%d", n, size), func(b *testing.B) {
				from, to := hubWith(b, n)
				got := make(chan struct{}, 1)
				to.Subscribe("@many/s/x/obs", func(wire.Sample) { got <- struct{}{} })
				pub := mustPublisher(b, from, "@many/s/x/obs", wire.ActionQoS)
				settled(b, to)
				payload := make([]byte, size)
				b.ReportAllocs()
				b.SetBytes(int64(size))
				for b.Loop() {
					pub.Put(payload, nil)
					<-got
				}
			})
		}
	}
}
