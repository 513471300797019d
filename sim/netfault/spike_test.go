package netfault

import (
	"testing"
	"time"
)

// Goal: a spike holds back every chunk that arrives during the spike, and no earlier chunk. The
// test checks only minimum times, so it also passes on a busy host.
func TestSessionSpike(t *testing.T) {
	w := wrap(t, "faults: [{kind: spike, at: 5ms, delay: 60ms}]")
	defer w.Close()
	w.arrive("before") // a chunk before the episode begins
	w.mu.Lock()
	if len(w.got) != 1 {
		t.Errorf("before the spike: %q, want the chunk at once", w.got)
	}
	w.mu.Unlock()
	w.observe("observation")
	w.clock.SleepUntil(w.clock.Now().Add(6 * time.Millisecond))
	began := w.clock.Now()
	w.arrive("x")
	w.arrive("y") // a chunk during the spike
	if took := w.want(t, "before", "x", "y").Sub(began); took < 60*time.Millisecond {
		t.Errorf("the last came after %v, want at least 60ms", took)
	}
}

// Goal: a spike at the start of the episode takes effect, and a spike while the server is stopped
// prolongs the stop. The test checks only minimum times.
func TestSessionSpikesAddUp(t *testing.T) {
	w := wrap(t, "faults: [{kind: spike, delay: 60ms}, {kind: spike, at: 5ms, delay: 60ms}]")
	defer w.Close()
	began := w.clock.Now()
	w.observe("observation")
	for range 2 {
		w.arrive("x")
		w.clock.SleepUntil(w.clock.Now().Add(6 * time.Millisecond))
	}
	w.want(t, "x", "x")
	for i, at := range w.times {
		if least := time.Duration(i+1) * 60 * time.Millisecond; at.Sub(began) < least {
			t.Errorf("chunk %d came after %v, want at least %v", i+1, at.Sub(began), least)
		}
	}
}
