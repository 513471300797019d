package recording

import (
	"testing"

	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Goal: a tick is recorded with its values, without allocations.
func TestTicks(t *testing.T) {
	cfg := config(record.All, t.TempDir())
	r := opened(t, cfg)
	arm := follow.One(&follow.Follower{State: []float32{1, 2}, Goal: []float32{3, 4}})
	now := cfg.Clock.Now()
	tick := func() {
		if m := Begin(r.Recorder, rt.Tick{Woke: now, Deadline: now.Add(-5), Skipped: 7}); m != nil {
			Arm(m, arm)
			r.Recorder.Ticks.Commit()
		}
	}
	rttest.NoAllocs(t, "%v allocations, want 0", 100, tick)
	if Begin(nil, rt.Tick{}) != nil {
		t.Error("without a recorder there is a record")
	}
	n := 0
	written(t, r, cfg.Dir, record.Visitor{Tick: func(m *record.Tick) error {
		n++
		if m.At != now || m.Lateness != 5 || m.Skipped != 7 || m.State.N != 2 || m.Goal.V[1] != 4 || m.Action.N != 0 {
			t.Errorf("on record is %+v", m)
		}
		return nil
	}})
	rttest.Want(t, n, 101, "ticks")
}
