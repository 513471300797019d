package queue

import (
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/memory"
)

// classOf returns the smallest class whose buffers hold a size. These buffers are at most a quarter larger than the
// size, apart from the smallest class.
func TestPoolClasses(t *testing.T) {
	for n := 1; n <= 1<<largestBits; n += 1 + n/97 {
		class := classOf(n)
		if size := sizeOf(class); size < n || class > 0 && (sizeOf(class-1) >= n || size > n+n/4+1) {
			t.Fatalf("%d bytes get %d of class %d, the class below has %d", n, size, class, sizeOf(max(0, class-1)))
		}
	}
}

// The mailboxes of robots that do not send take no memory, and the pool keeps its limit.
func TestPoolIsBounded(t *testing.T) {
	p := NewPool(memory.New(100 << 10))
	var lent []*Request
	for {
		r := p.lend(20<<10, true)
		if r == nil {
			break
		}
		lent = append(lent, r)
	}
	if len(lent) != 5 || p.Bytes() != 100<<10 {
		t.Fatalf("lent %d buffers of 20 KiB, %d bytes, want 5 and 100 KiB", len(lent), p.Bytes())
	}
	for _, r := range lent {
		p.Return(r)
	}
	if r := p.lend(90<<10, true); r == nil || p.Bytes() > 100<<10 {
		t.Errorf("a larger buffer = %v with %d bytes, want the free ones to make room", r, p.Bytes())
	} else {
		p.Return(r)
	}
	p.Trim()
	p.Trim()
	rttest.Want(t, p.Bytes(), 0, "bytes kept that nobody uses")
}
