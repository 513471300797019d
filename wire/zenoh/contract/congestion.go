package contract

import (
	"sync"
	"sync/atomic"
	"time"

	"edgert/wire"
)

// gate is a subscriber that holds its receiver until it is opened, and notes the
// numbers of the samples.
type gate struct {
	open chan struct{}
	once sync.Once

	mu   sync.Mutex
	nums []int
}

func newGate() *gate { return &gate{open: make(chan struct{})} }

func (g *gate) deposit(s wire.Sample) {
	<-g.open
	g.mu.Lock()
	defer g.mu.Unlock()
	g.nums = append(g.nums, numberOf(s.Payload))
}

func (g *gate) release() { g.once.Do(func() { close(g.open) }) }

func (g *gate) seen() []int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]int(nil), g.nums...)
}

func (g *gate) last() int {
	if all := g.seen(); len(all) > 0 {
		return all[len(all)-1]
	}
	return -1
}

// rising reports whether numbers only grow: nothing twice, nothing overtaken.
func rising(nums []int) bool {
	for i := 1; i < len(nums); i++ {
		if nums[i] <= nums[i-1] {
			return false
		}
	}
	return true
}

var congestion = []testCase{
	{"dropping never waits, and what arrives is in order", func(p pair) {
		g := newGate()
		p.Cleanup(g.release)
		p.subscribe(p.to, "@c/drop", g.deposit)
		pub := p.heard(p.from, "@c/drop", wire.QoS{Priority: wire.Data})
		// More than queues and socket buffers hold: some must be dropped.
		const n = 400
		payload := make([]byte, 100_000)
		var longest time.Duration
		for i := range n {
			number(payload, i)
			began := time.Now()
			pub.Put(payload, nil) // reports a drop, or none
			longest = max(longest, time.Since(began))
		}
		if longest > 2*time.Second {
			p.Errorf("a Put waited %v for a subscriber that does not take", longest)
		}
		g.release()
		p.eventually("a sample that was put after the hold", func() bool {
			number(payload, n)
			pub.Put(payload, nil)
			return g.last() == n
		})
		all := g.seen()
		for len(all) > 0 && all[len(all)-1] == n {
			all = all[:len(all)-1]
		}
		if !rising(all) || len(all) == n {
			p.Errorf("%d of %d arrived, rising %v; want fewer than all, each once and in order", len(all), n, rising(all))
		}
	}},
	{"blocking loses nothing", func(p pair) {
		var got basket
		p.subscribe(p.to, "@c/block", func(s wire.Sample) {
			time.Sleep(time.Millisecond) // slower than the publisher
			s.Payload = s.Payload[:8]
			got.deposit(s)
		})
		pub := p.heard(p.from, "@c/block", blocking)
		const n = 300
		payload := make([]byte, 64<<10)
		for i := range n {
			number(payload, i)
			p.put(pub, payload, nil)
		}
		p.eventually("all samples", func() bool { return got.count() >= n })
		for i, s := range got.samples() {
			if numberOf(s.Payload) != i {
				p.Fatalf("sample %d came as number %d", numberOf(s.Payload), i)
			}
		}
	}},
	{"PutLatest ends with the newest", func(p pair) {
		g := newGate()
		p.Cleanup(g.release)
		p.subscribe(p.to, "@c/latest", g.deposit)
		pub := p.heard(p.from, "@c/latest", wire.QoS{Priority: wire.Data})
		const n = 400
		payload, replaced := make([]byte, 60_000), 0
		var longest time.Duration
		for i := range n {
			number(payload, i)
			began := time.Now()
			r, err := pub.PutLatest(payload, nil)
			if err != nil && !p.fromLacks.Latest {
				p.Fatalf("PutLatest = %v", err)
			}
			if r {
				replaced++
			}
			longest = max(longest, time.Since(began))
		}
		if longest > 2*time.Second {
			p.Errorf("a PutLatest waited %v", longest)
		}
		g.release()
		if p.fromLacks.Latest {
			p.Skip("PutLatest is a Put here: which one is last is the network's choice")
		}
		p.eventually("something", func() bool { return len(g.seen()) > 0 })
		p.Logf("%d of %d replaced", replaced, n)
		if replaced == 0 {
			p.Error("nothing was replaced while nobody took")
		}
		if all := g.seen(); !rising(all) {
			p.Errorf("numbers %v, want each once and in order", all)
		}
		// What a node on the way has dropped nobody can bring back, but the next
		// one must come.
		p.eventually("the newest", func() bool {
			number(payload, n)
			pub.PutLatest(payload, nil)
			return g.last() == n
		})
	}},
	{"an urgent sample does not wait for bulk", func(p pair) {
		// Bulk is put until it is congested, then an urgent sample: it must
		// arrive before the bulk that was queued with it has ended.
		var bulkSeen, bulkWhenUrgent atomic.Int64
		bulkWhenUrgent.Store(-1)
		p.subscribe(p.to, "@c/bulk", func(wire.Sample) { bulkSeen.Add(1); time.Sleep(200 * time.Microsecond) })
		p.subscribe(p.to, "@c/urgent", func(wire.Sample) { bulkWhenUrgent.CompareAndSwap(-1, bulkSeen.Load()) })
		bulk := p.heard(p.from, "@c/bulk", blocking)
		urgent := p.heard(p.from, "@c/urgent", wire.ActionQoS)
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
		p.eventually("the bulk", func() bool { return bulkSeen.Load() == n })
		<-done
		if at := bulkWhenUrgent.Load(); at >= n {
			p.Errorf("the urgent sample came behind all %d of the bulk", at)
		}
	}},
}
