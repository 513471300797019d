package fleet

import (
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// The server receives an observation when it arrives, even while the server stops or is busy with
// the observation before.
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
		rttest.Want(t, tick.ServerIn-tick.Sent, way, "tick %d: time from its sending", tick.Tick)
		if tick.ServerOut-tick.ServerIn > cfg.Compute {
			late++
		}
	}
	mustRun(t, cfg, 1)
	if received < 5 || late == 0 {
		t.Errorf("%d answers, %d of them after a wait: nothing was tried", received, late)
	}
}

// An action that is older than MaxAge never runs.
func TestMaxAge(t *testing.T) {
	for age, want := range map[int]bool{2: false, 100: true} {
		if r := mustRun(t, Config{Policy: new(counter), Ticks: 60, Delay: 5, MaxAge: age}, 1); (r.Actions > 0) != want {
			t.Errorf("at most %d ticks old, answers after 5: %d actions, want some %v", age, r.Actions, want)
		}
	}
}
