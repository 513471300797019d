package rt

import (
	"sync"
	"testing"
	"time"
)

func newWaker(tb testing.TB) *Waker {
	w, err := NewWaker()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { w.Close() })
	return w
}

func TestWaker(t *testing.T) {
	const short = 5 * time.Millisecond
	w := newWaker(t)
	if w.Wait(0) {
		t.Error("Wait(0) before any Wake = true")
	}
	start := kernel.Now()
	if w.Wait(short) {
		t.Error("Wait without a Wake = true")
	}
	if waited := kernel.Now().Sub(start); waited < short {
		t.Errorf("Wait(%v) returned after %v", short, waited)
	}
	w.Wake()
	w.Wake()
	if !w.Wait(0) {
		t.Error("Wait after two Wakes = false")
	}
	if w.Wait(0) {
		t.Error("two Wakes woke twice, want once")
	}
}

func TestWakerWakesASleeper(t *testing.T) {
	ping, pong := newWaker(t), newWaker(t)
	const rounds = 200
	var wg sync.WaitGroup
	wg.Go(func() {
		for range rounds {
			ping.Wait(-1)
			pong.Wake()
		}
	})
	for i := range rounds {
		ping.Wake()
		if !pong.Wait(10 * time.Second) {
			t.Fatalf("round %d: no answer within 10s", i)
		}
	}
	wg.Wait()
}

func TestWakerWaitSurvivesSignals(t *testing.T) {
	w := newWaker(t)
	signalled(t, func() {
		const timeout = 50 * time.Millisecond
		start := kernel.Now()
		if w.Wait(timeout) {
			t.Error("a signal counted as a Wake")
		}
		if waited := kernel.Now().Sub(start); waited < timeout {
			t.Errorf("a signal ended Wait(%v) after %v", timeout, waited)
		}
	})
}

func TestWakerAfterClose(t *testing.T) {
	w := newWaker(t)
	for range 2 {
		if err := w.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	}
	w.Wake()
	if w.Wait(-1) {
		t.Error("Wait after Close = true")
	}
}

func TestWakerNoAlloc(t *testing.T) {
	w := newWaker(t)
	if n := testing.AllocsPerRun(200, func() {
		w.Wake()
		w.Wait(time.Second)
		w.Wait(0)
	}); n != 0 {
		t.Errorf("Wake and Wait allocate %v times, want 0", n)
	}
}
