package fleet

import (
	"testing"
	"time"
)

// An observation is received when it arrives, also while the server stands still
// or is busy with the one before.
func TestServerReceivesAtArrival(t *testing.T) {
	const way = 4 * time.Millisecond
	received, late := 0, 0
	cfg := Config{
		Policy: new(counter), Network: way, Compute: 200 * time.Millisecond, Ticks: 300,
		Faults: script(t, "faults: [{kind: spike, at: 1s, delay: 500ms, every: 2s}]"),
	}
	cfg.Trace = func(tick *Tick) {
		if !tick.Received {
			return
		}
		received++
		if got := tick.ServerIn - tick.Sent; got != way {
			t.Errorf("tick %d: received %v after it was sent, want %v", tick.Tick, got, way)
		}
		if tick.ServerOut-tick.ServerIn > cfg.Compute {
			late++
		}
	}
	mustRun(t, cfg)
	if received < 5 || late == 0 {
		t.Errorf("%d answers, %d of them after a wait: nothing was tried", received, late)
	}
}
