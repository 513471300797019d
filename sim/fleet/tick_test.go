package fleet

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/chunk/smoothing"
	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim"
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
	mustRun(t, cfg)
	if received < 5 || late == 0 {
		t.Errorf("%d answers, %d of them after a wait: nothing was tried", received, late)
	}
}

// An action that is older than MaxAge never runs.
func TestMaxAge(t *testing.T) {
	for age, want := range map[int]bool{2: false, 100: true} {
		if r := mustRun(t, Config{Policy: new(counter), Ticks: 60, Delay: 5, MaxAge: age}); (r.Actions > 0) != want {
			t.Errorf("at most %d ticks old, answers after 5: %d actions, want some %v", age, r.Actions, want)
		}
	}
}

// ramper is a policy that answers with a ramp of 10 degrees per row on every joint.
type ramper struct{ still }

func (r *ramper) Answer(*Observation) (Answer, error) {
	for i := range r.chunk {
		r.chunk[i] = 10 * float32(i/sim.DOF+1)
	}
	return Answer{Robot: r.chunk[:]}, nil
}

// The goals of the arm are the results of the edge's own stages and gate.
func TestStagesAndGate(t *testing.T) {
	row := func(v float32) []float32 { return slices.Repeat([]float32{v}, sim.DOF) }
	for _, tt := range []struct {
		name string
		cfg  Config
		most float64 // degrees per tick
	}{
		{"none", Config{}, 200},
		{"a limit of 120 degrees per second", Config{Stages: smoothing.Config{Velocity: 120}}, 2},
		{"a gate of 1.5 degrees per tick", Config{Gate: &follow.Gate{Min: row(-300), Max: row(300), Step: row(1.5)}},
			1.5},
	} {
		cfg, moved := tt.cfg, 0.0
		cfg.Policy = new(ramper)
		cfg.Ticks = 60
		cfg.Delay = 3
		_, ticks := watch(t, cfg)
		for i := range ticks[1:] {
			moved = max(moved, math.Abs(ticks[i+1].Goal[pan]-ticks[i].Goal[pan]))
		}
		if limited := tt.most < 200; limited && (moved > tt.most+1e-3 || moved < tt.most-1e-3) || !limited &&
			moved < 9 {
			t.Errorf("%s: the goal moved by %v degrees in a tick, want at most %v", tt.name, moved, tt.most)
		}
	}
	for _, bad := range []smoothing.Config{{Multiplier: 2}, {Cutoff: 1000}} {
		if _, err := Open(Config{Policy: new(still), Stages: bad}); !errors.Is(err, ErrConfig) {
			t.Errorf("stages %+v: %v, want %v", bad, err, ErrConfig)
		}
	}
}
