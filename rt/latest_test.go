package rt

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
)

func TestLatest(t *testing.T) {
	l := NewLatest(func(v *[]int) { *v = []int{-1} })
	if v, key, fresh := l.Front(); (*v)[0] != -1 || key != NoKey || fresh {
		t.Fatalf("Front before Publish = %v, %d, %t, want [-1], NoKey, false", *v, key, fresh)
	}
	for _, tt := range []struct {
		name         string
		publish      []int64 // keys; the value is the key
		wantKey      int64
		wantFresh    bool
		wantRefused  int    // values that Publish refuses
		wantReplaced uint64 // values replaced in total
	}{
		{"a first value", []int64{7}, 7, true, 0, 0},
		{"nothing new", nil, 7, false, 0, 0},
		{"the same key again", []int64{7}, 7, false, 1, 0},
		{"an older key", []int64{3}, 7, false, 1, 0},
		{"two at once, the newer wins", []int64{8, 9}, 9, true, 0, 1},
		{"newer, then older: the newer stays", []int64{20, 10}, 20, true, 1, 1},
		{"a gap", []int64{1 << 40}, 1 << 40, true, 0, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			refused := 0
			for _, k := range tt.publish {
				(*l.Back())[0] = int(k)
				if !l.Publish(k) {
					refused++
				}
			}
			v, key, fresh := l.Front()
			if key != tt.wantKey || (*v)[0] != int(tt.wantKey) || fresh != tt.wantFresh {
				t.Errorf("Front = %v, %d, %t, want [%d], same, %t", *v, key, fresh, tt.wantKey, tt.wantFresh)
			}
			if refused != tt.wantRefused || l.Replaced() != tt.wantReplaced {
				t.Errorf("refused, replaced = %d, %d, want %d, %d", refused, l.Replaced(), tt.wantRefused,
					tt.wantReplaced)
			}
		})
	}
}

func TestLatestAcceptsNegativeKeys(t *testing.T) {
	l := NewLatest[int](nil)
	if !l.Publish(NoKey+1) || !l.Publish(-5) || l.Publish(-6) {
		t.Error("Publish of NoKey+1, -5, -6: want true, true, false")
	}
}

// Property: under any interleaving the consumer never gets a torn value, or an older value after a newer one, and at
// the end it gets the newest. Every published value is taken, replaced or refused.
func TestLatestUnderConcurrency(t *testing.T) {
	const n = 30_000
	l := NewLatest(func(v *[]int64) { *v = make([]int64, 8) })
	newest := int64(NoKey)
	accepted := uint64(0)
	var wg sync.WaitGroup
	wg.Go(func() {
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range int64(n) {
			key := i - rng.Int64N(4) // some keys are late or repeated
			for j := range *l.Back() {
				(*l.Back())[j] = key
			}
			if l.Publish(key) != (key > newest) {
				t.Errorf("Publish(%d) after %d = %t", key, newest, key <= newest)
			}
			if key > newest {
				newest = key
				accepted++
			}
		}
		(*l.Back())[0] = n
		for j := range *l.Back() {
			(*l.Back())[j] = n
		}
		l.Publish(n)
		accepted++
	})
	last, seen := int64(NoKey), uint64(0)
	for last < n {
		v, key, fresh := l.Front()
		if fresh != (key > last) || key < last {
			t.Fatalf("key %d after %d, fresh %t", key, last, fresh)
		}
		for _, x := range *v {
			if fresh && x != key {
				t.Fatalf("value %v under key %d", *v, key)
			}
		}
		last = key
		if fresh {
			seen++
		} else {
			runtime.Gosched()
		}
	}
	wg.Wait()
	if seen+l.Replaced() != accepted {
		t.Errorf("%d seen + %d replaced of %d accepted", seen, l.Replaced(), accepted)
	}
}

func TestLatestNoAlloc(t *testing.T) {
	l := NewLatest[[32]byte](nil)
	key := int64(0)
	if n := testing.AllocsPerRun(1000, func() {
		key++
		l.Back()[0] = byte(key)
		l.Publish(key)
		l.Publish(key)
		l.Front()
	}); n != 0 {
		t.Errorf("Back to Front allocates %v times, want 0", n)
	}
}
