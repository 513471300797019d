package link

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Goal: an ended link's memory stays counted until its goroutines have released it and a collection has freed it.
// Otherwise the same bytes could be granted to one link after the other, if the machine runs those goroutines late. A
// reader waits meanwhile, but not for ever.
func TestEndedLinksStayCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 1 << 20
		b := NewBudget(limit)
		ended := 0
		holder := func() *account { m := b.join("", func() { ended++ }); return &m }
		first := holder()
		second := holder()
		third := holder()
		if !first.reserve(limit) || !second.reserve(limit*6/10) || ended != 1 {
			t.Fatalf("the second link's part ended %d links, want the first", ended)
		}
		began := time.Now()
		if third.throttle(); time.Since(began) != debtTimeout {
			t.Errorf("the reader waited %v for links that do not let go, want %v", time.Since(began), debtTimeout)
		}
		if ended != 1 || b.leaving != limit {
			t.Errorf("%d links ended, %d bytes leaving, want the first and all of its %d", ended, b.leaving, limit)
		}
		second.close()
		waited := make(chan bool)
		go func() { third.throttle(); waited <- third.reserve(limit / 2) }()
		first.close()
		if !<-waited {
			t.Error("no room after both have let go")
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.used != limit/2 || b.leaving != 0 || b.garbage > limit/collectFraction {
			t.Errorf("%d bytes used, %d leaving, %d of garbage, want %d, 0, and what is not worth a collection", b.used,
				b.leaving, b.garbage, limit/2)
		}
	})
}

// Goal: buffers of an ended link that are kept for other links do not count as garbage.
func TestSharedBuffersOfAnEndedLink(t *testing.T) {
	b := NewBudget(1 << 20)
	for _, revoked := range []bool{false, true} {
		m := b.join("", func() {})
		buf, ok := m.lend(nil, 100<<10)
		if !ok {
			t.Fatal("no room")
		}
		if revoked {
			b.mu.Lock()
			m.leaving = b.holders[&m]
			b.leaving += m.leaving
			m.uncount()
			b.mu.Unlock()
		}
		m.recycle(buf)
		m.close()
		if b.used != 0 || b.leaving != 0 || b.garbage != 0 || b.freeBytes != cap(buf) {
			t.Errorf("revoked %v: %d bytes used, %d leaving, %d of garbage, %d spare, want only %d spare", revoked,
				b.used, b.leaving, b.garbage, b.freeBytes, cap(buf))
		}
	}
}

// Goal: the links of one host are counted together. When a hundred small links of one host exhaust the budget, links of
// this host are ended. A large link of another host stays, because that host holds less in all.
func TestLinksOfOneHostCountTogether(t *testing.T) {
	const limit = 1 << 20
	b := NewBudget(limit)
	ended := map[string]int{}
	join := func(host string) *account {
		m := b.join(host, func() { ended[host]++ })
		return &m
	}
	good := join("good")
	if !good.reserve(limit / 4) {
		t.Fatal("no room in an empty budget")
	}
	var flood []*account
	for range 100 {
		m := join("flood")
		flood = append(flood, m)
		m.reserve(limit / 50)
	}
	other := join("other")
	if !other.reserve(limit / 10) {
		t.Error("no room for a third host")
	}
	if ended["good"] != 0 || ended["flood"] == 0 {
		t.Errorf("ended: %v, want only links of the flood", ended)
	}
	for _, m := range append(flood, good, other) {
		m.close()
	}
	if b.used != 0 || len(b.hosts) != 0 || len(b.holders) != 0 {
		t.Errorf("%d bytes of %d holders at %d hosts are left, want none", b.used, len(b.holders), len(b.hosts))
	}
}

// Goal: collections are at least collectInterval apart at any rate of garbage, and the reader that causes the garbage
// waits.
func TestCollectionRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, intervals = 1 << 20, 5
		b := NewBudget(limit)
		m := b.join("", func() {})
		began, most := time.Now(), 0
		var collections []time.Time
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for time.Since(began) < intervals*collectInterval {
			b.AddGarbage(limit / 100)
			m.throttle()
			b.mu.Lock()
			most = max(most, b.garbage)
			if n := len(collections); !b.collected.IsZero() && (n == 0 || collections[n-1] != b.collected) {
				collections = append(collections, b.collected)
			}
			b.mu.Unlock()
		}
		synctest.Wait()
		runtime.ReadMemStats(&after)
		if most > limit/debtFraction+limit/100 {
			t.Errorf("%d bytes of garbage at most, want at most %d", most, limit/debtFraction)
		}
		for i, at := range collections {
			if want := began.Add(time.Duration(i) * collectInterval); at != want {
				t.Errorf("collection %d after %v, want %v", i, at.Sub(began), want.Sub(began))
			}
		}
		if n := after.NumForcedGC - before.NumForcedGC; len(collections) != intervals+1 || n < intervals+1 {
			t.Errorf("%d collections, of which the runtime has counted %d; want one at once and one after each of %d "+
				"intervals", len(collections), n, intervals)
		}
	})
}

// Goal: a reader waits for the end of a collection even if, on a busy machine, the collection takes longer than
// debtTimeout. Otherwise the reader would cause more garbage meanwhile.
func TestSlowCollectionIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(1 << 20)
		m := b.join("", func() {})
		b.garbage, b.collecting = b.limit, true
		began, waited := time.Now(), make(chan time.Duration)
		go func() { m.throttle(); waited <- time.Since(began) }()
		time.Sleep(5 * debtTimeout) // duration of the collection, in virtual time
		b.mu.Lock()
		b.garbage, b.collecting = 0, false
		b.mu.Unlock()
		b.debtPaid.Broadcast()
		rttest.Want(t, <-waited, 5*debtTimeout, "the reader's wait for the collection")
	})
}
