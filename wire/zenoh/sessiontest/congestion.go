package sessiontest

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

// gate is a subscriber whose callback blocks until release is called. It collects the number with
// which each sample begins.
type gate struct {
	Basket
	open    chan struct{}
	release func()
}

// gate subscribes to key at the receiving end.
func (p pair) gate(key string) *gate {
	g := &gate{open: make(chan struct{})}
	g.release = sync.OnceFunc(func() { close(g.open) })
	p.Cleanup(g.release)
	p.to.subscribe(key, func(s wire.Sample) {
		<-g.open
		s.Payload = s.Payload[:numberBytes]
		g.Deposit(s)
	})
	return g
}

func (g *gate) numbers() (all []int) {
	for _, s := range g.Samples() {
		all = append(all, numberOf(s.Payload))
	}
	return all
}

func (g *gate) last() int {
	if all := g.numbers(); len(all) > 0 {
		return all[len(all)-1]
	}
	return -1
}

// rising reports whether each number is above the number before it. If so, no sample arrived twice
// or overtook another.
func rising(all []int) bool {
	return slices.IsSorted(all) && len(slices.Compact(slices.Clone(all))) == len(all)
}

// longest calls f for 0 to n-1 and returns how long the longest call took.
func longest(n int, f func(i int)) (most time.Duration) {
	for i := range n {
		began := time.Now()
		f(i)
		most = max(most, time.Since(began))
	}
	return most
}

var congestion = []testCase{
	{"dropping never waits, and what arrives is in order", func(p pair) {
		g := p.gate("@c/drop")
		pub := p.matched(p.from, "@c/drop", wire.QoS{Priority: wire.Data})
		// More samples than the queues and socket buffers hold, so that some are dropped.
		const n = 400
		payload := make([]byte, 100_000)
		waited := longest(n, func(i int) {
			number(payload, i)
			pub.Put(payload, nil) // the transport may or may not report a drop
		})
		if waited > 2*time.Second {
			p.Errorf("a Put waited %v for a subscriber that does not take", waited)
		}
		g.release()
		rttest.Eventually(p.T, "a sample that was put after the hold", func() bool {
			number(payload, n)
			pub.Put(payload, nil)
			return g.last() == n
		})
		all := slices.DeleteFunc(g.numbers(), func(i int) bool { return i == n })
		if !rising(all) || len(all) == n {
			p.Errorf("%d of %d arrived, rising %v; want fewer than all, each once and in order", len(all), n,
				rising(all))
		}
	}},
	{"blocking loses nothing", func(p pair) {
		var got Basket
		p.to.subscribe("@c/block", func(s wire.Sample) {
			time.Sleep(time.Millisecond) // slower than the publisher
			s.Payload = s.Payload[:numberBytes]
			got.Deposit(s)
		})
		pub := p.matched(p.from, "@c/block", blocking)
		const n = 300
		payload := make([]byte, 64<<10)
		for i := range n {
			number(payload, i)
			rttest.PanicOn(pub.Put(payload, nil))
		}
		got.await(p, n)
		for i, s := range got.Samples() {
			if numberOf(s.Payload) != i {
				p.Fatalf("sample %d came as number %d", numberOf(s.Payload), i)
			}
		}
	}},
	{"PutLatest ends with the newest", func(p pair) {
		g := p.gate("@c/latest")
		pub := p.matched(p.from, "@c/latest", wire.QoS{Priority: wire.Data})
		const n = 400
		payload, replaced := make([]byte, 60_000), 0
		waited := longest(n, func(i int) {
			number(payload, i)
			r, err := pub.PutLatest(payload, nil)
			if err != nil && !p.from.Latest {
				p.Fatalf("PutLatest = %v", err)
			}
			if r {
				replaced++
			}
		})
		if waited > 2*time.Second {
			p.Errorf("a PutLatest waited %v", waited)
		}
		g.release()
		if p.from.Latest {
			p.Skip("PutLatest is a Put here: which one is last is the network's choice")
		}
		g.await(p, 1)
		p.Logf("%d of %d replaced", replaced, n)
		if replaced == 0 {
			p.Error("nothing was replaced while nobody took")
		}
		if all := g.numbers(); !rising(all) {
			p.Errorf("numbers %v, want each once and in order", all)
		}
		// A node between the two may have dropped the newest sample, so the test sends more samples until one arrives.
		rttest.Eventually(p.T, "the newest", func() bool {
			number(payload, n)
			pub.PutLatest(payload, nil)
			return g.last() == n
		})
	}},
	{"an urgent sample does not wait for bulk", func(p pair) {
		// The case puts bulk samples until the link is congested, and then an urgent sample. The urgent sample must
		// arrive before the last bulk sample that was queued at that time.
		var bulkSeen, bulkWhenUrgent atomic.Int64
		bulkWhenUrgent.Store(-1)
		p.to.subscribe("@c/bulk", func(wire.Sample) { bulkSeen.Add(1); time.Sleep(200 * time.Microsecond) })
		p.to.subscribe("@c/urgent", func(wire.Sample) { bulkWhenUrgent.CompareAndSwap(-1, bulkSeen.Load()) })
		bulk := p.matched(p.from, "@c/bulk", blocking)
		urgent := p.matched(p.from, "@c/urgent", wire.ActionQoS)
		payload := make([]byte, 64<<10)
		const n = 200
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range n {
				bulk.Put(payload, nil)
			}
		}()
		for bulkWhenUrgent.Load() < 0 {
			urgent.Put([]byte("now"), nil)
			time.Sleep(time.Millisecond)
		}
		rttest.Eventually(p.T, "the bulk", func() bool { return bulkSeen.Load() == n })
		<-done
		if at := bulkWhenUrgent.Load(); at >= n {
			p.Errorf("the urgent sample came after all %d bulk samples", at)
		}
	}},
}
