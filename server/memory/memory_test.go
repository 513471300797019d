package memory

import (
	"sync"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestBound(t *testing.T) {
	b := New(100 << 20)
	if !b.Take(Sessions, 60<<20) || b.TakeSpare(Observations, 20<<20) || !b.TakeSpare(Observations, 15<<20) ||
		!b.Take(Observations, 25<<20) || b.Take(Captures, 1) {
		t.Fatalf("%v, want 60 MiB, then 15 of the 75 that are not kept back, then the last 25", b)
	}
	rttest.Want(t, b.String(),
		"100.0 MiB of 100.0 MiB are in use (sessions 60.0 MiB, observations 40.0 MiB, "+
			"captures 0.0 KiB, replicas 0.0 KiB)",
		"String()")
	rttest.Want(t, b.Promisable(), 100<<20, "bytes for promises to robots")
	b.Release(Observations, 40<<20)
	if b.Used() != 60<<20 || b.Of(Observations) != 0 || b.Most() != 100<<20 || !b.Take(Replicas, 40<<20) ||
		b.Promisable() != 60<<20 {
		t.Errorf("after a part was given back: %v, at most %d", b, b.Most())
	}
}

// When many goroutines take and release memory at once, they never hold more than the limit, and no byte is lost from
// the count.
func TestBoundIsExactForMany(t *testing.T) {
	b := New(1000)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 10_000 {
				if b.Take(Observations, 300) {
					if b.Used() > 1000 {
						t.Error("more is used than there is")
					}
					b.Release(Observations, 300)
				}
			}
		})
	}
	wg.Wait()
	if b.Used() != 0 || b.Of(Observations) != 0 || b.Most() < 300 || b.Most() > 900 {
		t.Errorf("%v, at most %d, want nothing in use and at most 900 ever", b, b.Most())
	}
}

func TestBoundNoAlloc(t *testing.T) {
	b := New(1000)
	rttest.NoAllocs(t, "taking and giving allocates %v times, want 0", 100, func() {
		b.Take(Observations, 500)
		b.TakeSpare(Observations, 500)
		b.Release(Observations, 500)
	})
}
