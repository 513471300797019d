package drive

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/servo"
)

// Goal: a bus that loses a reply in every cycle is refused for its losses, not as slow, even if losses are tolerated.
func TestABusWithoutACleanCycle(t *testing.T) {
	arm := newDriven(t, "off").cfg.Bus.(*hotplug.Arm).Arm()
	for clean, want := range []string{"motor 3 (elbow_flex) 9 of 9", ""} {
		err := new(BusCheck).losses(arm, servo.Measurement{Cycles: 9, Clean: clean, Lost: []int{0, 0, 9, 0, 0, 0}})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d clean cycles: %v, want %q", clean, err, want)
		}
	}
}

// Goal: of two possible causes, the log of a slow simulated bus names the true one.
func TestSlowSimulatedBus(t *testing.T) {
	lossy := errors.New("motor 2 loses replies")
	for _, tt := range []struct {
		unfit error
		want  string
	}{
		{nil, "cycle_p99=12.35ms want=10ms"},
		{lossy, `why="motor 2 loses replies"`},
	} {
		var out strings.Builder
		slog.New(slog.NewTextHandler(&out, nil)).Warn("slow", slowness(12346*time.Microsecond, 10*time.Millisecond,
			tt.unfit)...)
		if !strings.HasSuffix(out.String(), " msg=slow "+tt.want+"\n") {
			t.Errorf("%v: %s", tt.unfit, out.String())
		}
	}
}
