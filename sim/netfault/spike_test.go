package netfault

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

// Goal: a spike holds back every chunk that arrives during it, and no chunk before it. The test
// checks minimum times only, so a busy host does no harm.
func TestSessionSpike(t *testing.T) {
	const stop = 60 * time.Millisecond
	inner, clock := new(loop), rt.KernelClock()
	s := Wrap(inner, clock, mustParse(t, "faults: [{kind: spike, at: 5ms, delay: 60ms}]").Plan(1, tick))
	defer s.Close()
	var mu sync.Mutex
	var got []string
	var last rt.Instant
	if _, err := s.Subscribe("k", func(in wire.Sample) {
		mu.Lock()
		defer mu.Unlock()
		got, last = append(got, string(in.Payload)), clock.Now()
	}); err != nil {
		t.Fatal(err)
	}
	inner.deposit(wire.Sample{Payload: []byte("before")}) // the episode has not begun
	mu.Lock()
	if !slices.Equal(got, []string{"before"}) {
		t.Errorf("before the spike: %q, want the chunk at once", got)
	}
	mu.Unlock()
	p := rttest.Must(s.Publisher("k", wire.QoS{}))
	rttest.Do(p.Put([]byte("observation"), nil))
	clock.SleepUntil(clock.Now().Add(6 * time.Millisecond))
	began := clock.Now()
	inner.deposit(wire.Sample{Payload: []byte("x")})
	inner.deposit(wire.Sample{Payload: []byte("y")}) // arrives during the spike
	for done := false; !done && clock.Now().Sub(began) < 5*time.Second; {
		clock.SleepUntil(clock.Now().Add(pollInterval))
		mu.Lock()
		done = len(got) == 3
		mu.Unlock()
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(got, []string{"before", "x", "y"}) || last.Sub(began) < stop {
		t.Errorf("received %q, the last after %v, want all three after at least %v", got, last.Sub(began), stop)
	}
}

// Goal: a spike at the very begin takes effect, and a spike during a pause of the server prolongs
// the pause. The test checks minimum times only.
func TestSessionSpikesAddUp(t *testing.T) {
	const stop = 60 * time.Millisecond
	inner, clock := new(loop), rt.KernelClock()
	s := Wrap(inner, clock,
		mustParse(t, "faults: [{kind: spike, delay: 60ms}, {kind: spike, at: 5ms, delay: 60ms}]").Plan(1, tick))
	defer s.Close()
	came := make(chan rt.Instant, 2)
	rttest.Must(s.Subscribe("k", func(wire.Sample) { came <- clock.Now() }))
	p := rttest.Must(s.Publisher("k", wire.QoS{}))
	began := clock.Now()
	rttest.Do(p.Put([]byte("observation"), nil))
	for range 2 {
		inner.deposit(wire.Sample{Payload: []byte("x")})
		clock.SleepUntil(clock.Now().Add(6 * time.Millisecond))
	}
	for i := range 2 {
		select {
		case at := <-came:
			if least := time.Duration(i+1) * stop; at.Sub(began) < least {
				t.Errorf("chunk %d came after %v, want at least %v", i+1, at.Sub(began), least)
			}
		case <-time.After(5 * time.Second):
			t.Fatalf("chunk %d did not come", i+1)
		}
	}
}
