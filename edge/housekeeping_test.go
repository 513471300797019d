package edge

import (
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Goal: a tick that hangs is reported while it hangs. Time for which the process was stopped does
// not count.
func TestAHungTickIsRecorded(t *testing.T) {
	clock := rttest.NewClock(1)
	e := &Edge{cfg: Config{FPS: 60}, clock: clock}
	var w tickWatch
	now := rt.Instant(time.Second)
	for _, tt := range []struct {
		looks int
		every time.Duration
		told  time.Duration
	}{{1, 0, 0}, {1, 10 * time.Second, 0}, {20, drive.Housekeeping, 0}, {5, drive.Housekeeping, tickMissing},
		{30, drive.Housekeeping, 2 * tickMissing}} {
		for range tt.looks {
			now = now.Add(tt.every)
			w.look(e, now, 1)
		}
		if w.told < tt.told || w.told >= tt.told+tickMissing {
			t.Errorf("after %d looks %v apart: told of %v, want %v", tt.looks, tt.every, w.told, tt.told)
		}
	}
}
