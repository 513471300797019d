package rt

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
)

// Property: under any order of calls, a ring behaves like a slice with a bound.
func TestRingAgainstSlice(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 0))
		ring := NewRing[int](1 << rng.IntN(5))
		var oracle []int
		for op := range 400 {
			if rng.IntN(2) == 0 {
				slot := ring.Reserve()
				if full := len(oracle) == len(ring.slots); (slot == nil) != full {
					t.Fatalf("seed %d op %d: Reserve = %v with %d of %d slots used", seed, op, slot, len(oracle),
						len(ring.slots))
				}
				if slot != nil && rng.IntN(8) > 0 { // a producer sometimes gives up
					*slot = op
					ring.Commit()
					oracle = append(oracle, op)
				}
			} else {
				slot := ring.Peek()
				if (slot == nil) != (len(oracle) == 0) || slot != nil && *slot != oracle[0] {
					t.Fatalf("seed %d op %d: Peek = %v, want the first of %v", seed, op, slot, oracle)
				}
				if slot != nil {
					ring.Release()
					oracle = oracle[1:]
				}
			}
			if ring.Len() != len(oracle) {
				t.Fatalf("seed %d op %d: Len = %d, want %d", seed, op, ring.Len(), len(oracle))
			}
		}
	}
}

func TestRingHandsOverEverythingInOrder(t *testing.T) {
	const n = 20_000
	r := NewRing[[4]uint64](8)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := uint64(0); i < n; {
			s := r.Reserve()
			if s == nil {
				runtime.Gosched()
				continue
			}
			*s = [4]uint64{i, i, i, i}
			r.Commit()
			i++
		}
	})
	wg.Go(func() { // a third goroutine may call Len
		for range 1000 {
			if n := r.Len(); n < 0 || n > len(r.slots) {
				t.Errorf("Len = %d, want 0 to %d", n, len(r.slots))
			}
			runtime.Gosched()
		}
	})
	for i := uint64(0); i < n; {
		s := r.Peek()
		if s == nil {
			runtime.Gosched()
			continue
		}
		if *s != [4]uint64{i, i, i, i} {
			t.Fatalf("slot %d = %v", i, *s)
		}
		r.Release()
		i++
	}
	wg.Wait()
}

func TestNewRingPanicsUnlessPowerOfTwo(t *testing.T) {
	for _, n := range []int{-4, 0, 3, 6, 1000} {
		if !Panics(func() { NewRing[byte](n) }) {
			t.Errorf("NewRing(%d) did not panic", n)
		}
	}
}

// Every slot is prepared once, and the ring is as empty as before.
func TestRingPrepares(t *testing.T) {
	r, n := NewRing[int](4), 0
	r.Prepare(func(slot *int) { n++; *slot = n })
	if r.Peek() != nil || r.Len() != 0 {
		t.Error("slots are handed over that nobody has filled")
	}
	for want := 1; want <= 4; want++ {
		if slot := r.Reserve(); slot == nil || *slot != want {
			t.Errorf("slot %d is lent as %v", want, slot)
		}
		r.Commit()
	}
	if n != 4 || r.Reserve() != nil {
		t.Errorf("%d slots were prepared of 4", n)
	}
}

func TestRingNoAlloc(t *testing.T) {
	r := NewRing[[64]byte](2)
	if n := testing.AllocsPerRun(1000, func() {
		r.Reserve()[0] = 1
		r.Commit()
		if r.Len() != 1 {
			t.Fatal("Len != 1")
		}
		r.Peek()
		r.Release()
	}); n != 0 {
		t.Errorf("Reserve to Release allocates %v times, want 0", n)
	}
}
