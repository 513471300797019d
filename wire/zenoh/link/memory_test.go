package link

import (
	"testing"
	"time"
)

// Goal: what a link held stays counted from its end for the budget's sake until
// its goroutines have let go of it and a collection has taken it away: without
// that, one link after the other gets the same bytes on a host that is slow to
// run those goroutines. A reader waits meanwhile, and not for ever.
func TestEndedLinksStayCounted(t *testing.T) {
	const limit = 1 << 20
	b := NewBudget(limit)
	ended := 0
	holder := func() *memory { return &memory{budget: b, end: func() { ended++ }} }
	first, second, third := holder(), holder(), holder()
	if !first.take(limit) || !second.take(limit*6/10) || ended != 1 {
		t.Fatalf("the second link's part ended %d links, want the first", ended)
	}
	began := time.Now()
	if third.await(); time.Since(began) < debtPatience {
		t.Errorf("the reader waited %v for links that do not let go, want %v", time.Since(began), debtPatience)
	}
	if ended != 1 || b.leaving != limit {
		t.Errorf("%d links ended, %d bytes leaving, want the first and all of its %d", ended, b.leaving, limit)
	}
	second.release()
	waited := make(chan bool)
	go func() { third.await(); waited <- third.take(limit / 2) }()
	first.release()
	if !<-waited {
		t.Error("no room after both have let go")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used != limit/2 || b.leaving != 0 || b.garbage > limit/collectPart {
		t.Errorf("%d bytes used, %d leaving, %d of garbage, want %d, 0, and what is not worth a collection", b.used, b.leaving, b.garbage, limit/2)
	}
}

// Goal: a link's buffers that are kept for the next message are no garbage.
func TestSharedBuffersOfAnEndedLink(t *testing.T) {
	b := NewBudget(1 << 20)
	for _, revoked := range []bool{false, true} {
		m := &memory{budget: b, end: func() {}}
		buf, ok := m.lend(nil, 100<<10)
		if !ok {
			t.Fatal("no room")
		}
		if revoked {
			b.mu.Lock()
			m.left = b.holders[m]
			b.leaving += m.left
			m.forget()
			b.mu.Unlock()
		}
		m.recycle(buf)
		m.release()
		if b.used != 0 || b.leaving != 0 || b.garbage != 0 || b.spared != cap(buf) {
			t.Errorf("revoked %v: %d bytes used, %d leaving, %d of garbage, %d spare, want only %d spare", revoked, b.used, b.leaving, b.garbage, b.spared, cap(buf))
		}
	}
}
